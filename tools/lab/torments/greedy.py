"""Greedy clients of a server: each kind of what it could keep for them, with and without a token.

Meanwhile the server must stay small, and beside clients without a token it must answer others.
Holders of tokens may fill it: then others are told to try again. A server whose limits are lifted
must not stay small.
"""

import contextlib
import importlib
import json
import random
import resource
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from frame import Figures, caught, going
from worker import Workers

import fpdb

SECONDS = 30.0
CONNECTIONS = 400
# What a server may take beyond what the process had that it was forked from.
LARGEST_MIB = 400
LONGEST_CHECK, LONGEST_HEALTH = 5.0, 0.5
STORED, META = 1000, 20_000
HOST = "127.0.0.1"
READ, WRITE = "r" * 32, "w" * 32
TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more."
_MIB, _CHUNK = 1 << 20, 1 << 16


class Served(NamedTuple):
    """A server: its process, what that had when it was forked, and its port."""

    pid: int
    before: int
    port: int

    @property
    def mebibytes(self) -> int:
        return _mebibytes(self.pid, "VmHWM") - self.before


class Seen(NamedTuple):
    """What a server took, and how long an innocent client waited at most."""

    mebibytes: int
    check: float
    health: float
    refused: int
    answered: int


def _request(token: str, body: bytes, kind: str = "json", length: int = 0) -> bytes:
    head = _head(token) + f"Content-Type: application/{kind}\r\n".encode()
    return head + f"Content-Length: {length or len(body)}\r\n\r\n".encode() + body


def _head(token: str) -> bytes:
    secret = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"POST /v1/query HTTP/1.1\r\nHost: {HOST}\r\n{secret}".encode()


def _asking(limit: int) -> bytes:
    return json.dumps({"text": TEXT, "limit": limit}).encode()


# What each kind of greedy clients sends first, with a token and what is random, and then for ever.
KINDS: dict[str, Callable[[str, random.Random], tuple[bytes, bytes]]] = {
    "pipelined requests": lambda token, _: (b"", _request(token, b"{}") * 1000),
    "endless heads": lambda token, _: (_head(token) + b"A: ", b"a" * _CHUNK),
    "unfinished heads": lambda token, chance: (
        _head(token) + b"A: " + bytes(chance.randrange(1, 16_000)).replace(b"\0", b"a"), b""
    ),
    "trailers": lambda token, _: (
        _head(token) + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
        b"a:b\r\n" * (_CHUNK // 5),
    ),
    "endless bodies": lambda token, _: (_request(token, b"", length=_MIB << 10), b"a" * _CHUNK),
    "bodies": lambda token, chance: (
        _request(token, bytes(chance.randrange(1, 4 * _MIB)), length=4 * _MIB), b""
    ),
    "unfinished lines": lambda token, chance: (
        _request(token, b"x" * chance.randrange(1, 4 * _MIB), "x-ndjson", 200 * _MIB), b""
    ),
    "lines with large answers": lambda token, _: (
        _request(token, (_asking(1000) + b"\n") * 2000, "x-ndjson"), b""
    ),
    "large answers": lambda token, chance: (
        _request(token, _asking(chance.choice([10, 100, 400, 1000]))), b""
    ),
    "idle connections": lambda _, chance: (b"GET / HTTP/1.1\r\nA: "[: chance.randrange(19)], b""),
}  # fmt: skip


def run(
    figures: Figures, rounds: int, seed: int, work: Path, seconds: float = SECONDS,
    connections: int = CONNECTIONS, patience: float = 1.0,
) -> None:  # fmt: skip
    """Let greedy clients of each kind at a server, and measure it and what another client gets.

    Where other work takes the processors, an answer may take `patience` times as long.
    """
    chance = random.Random(seed)
    path = _filled(work)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    figures.control = caught("a server without bounds", 1, lambda _: _control(path, chance))
    for number in going(rounds):
        kind = list(KINDS)[number // 2 % len(KINDS)]
        token = ("", READ)[number % 2]
        clients = kind, connections, token, chance.randrange(1 << 30)
        with _served(path, clients) as served:
            seen = _observed(served, seconds)
        good = (
            seen.mebibytes <= LARGEST_MIB
            and seen.check <= LONGEST_CHECK * patience
            and (token or seen.health <= LONGEST_HEALTH * patience)
            and (token or not seen.refused)
        )
        name = f"{kind}, {'with' if token else 'without'} a token"
        figures.add(f"{name}, wrong", [str(seen)] * (not good), acknowledged=seen.answered)
        figures.notes[name] = str(seen)


def _filled(work: Path) -> Path:
    path = work / "served.fpdb"
    if not path.exists():
        with fpdb.create(path) as database:
            documents = (
                fpdb.Document(f"stored{number}", TEXT, {"v": "m" * META})
                for number in range(STORED)
            )
            for _ in database.add_many(documents):
                pass
    return path


def _control(path: Path, chance: random.Random) -> str:
    """Let greedy clients at a server without bounds, until it is too large."""
    end = time.monotonic() + 60
    clients = "unfinished lines", CONNECTIONS, READ, chance.randrange(1 << 30)
    with _served(path, clients, bounds=False) as served:
        while time.monotonic() < end:
            if served.mebibytes > LARGEST_MIB:
                return f"it took more than {LARGEST_MIB} MiB"
            time.sleep(0.1)
    return ""


@contextlib.contextmanager
def _served(
    path: Path, clients: tuple[str, int, str, int], *, bounds: bool = True
) -> Iterator[Served]:
    """Serve a copy of a database to greedy clients."""
    copy = path.with_name("copy.fpdb")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with Workers() as workers:
        server, greedy = workers.take(), workers.take()
        before = _mebibytes(server.pid, "VmRSS")
        server.begin("greedy.serve", str(copy), bounds=bounds)
        if not (message := server.hear(60)):
            raise RuntimeError(f"the server didn't start: {server.errors()}")
        greedy.begin("greedy.be_greedy", message["port"], *clients)
        time.sleep(0.5)
        yield Served(server.pid, before, message["port"])


def serve(channel: Any, path: str, *, bounds: bool) -> None:
    """Serve a database; without bounds, as if nothing was counted."""
    server = importlib.import_module("fpdb.integrations.server")
    lifted = {"memory": 1 << 40, "requests": 1 << 20, "answer": 1 << 40}
    limits = server.Limits(**({} if bounds else lifted))
    access = server.Access([("read", READ), ("write", WRITE)])
    with fpdb.open(path) as database:
        app = server.app(database, access=access, limits=limits)
        server.serve(
            app, port=0, on_start=lambda url: channel.tell(port=int(url.rpartition(":")[2]))
        )


def _mebibytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition(f"{name}:")[2].split()[0]) >> 10


def _observed(served: Served, seconds: float) -> Seen:
    """Ask as another client for some seconds; return how long that took at most."""
    end = time.monotonic() + seconds
    longest = {"/healthz": 0.0, "/v1/check": 0.0}
    refused = answered = 0
    while time.monotonic() < end:
        key = f"innocent{answered}"
        text = " ".join(f"{key}w{number}" for number in range(40))
        asked = {"/healthz": None, "/v1/check": json.dumps({"key": key, "text": text}).encode()}
        for path, data in asked.items():
            began = time.monotonic()
            refused += not _asked(served.port, path, data)
            longest[path] = max(longest[path], time.monotonic() - began)
        answered += 1
        time.sleep(0.1)
    check, health = round(longest["/v1/check"], 2), round(longest["/healthz"], 2)
    return Seen(served.mebibytes, check, health, refused, answered)


def _asked(port: int, path: str, data: bytes | None) -> bool:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {WRITE}"}
    request = urllib.request.Request(f"http://{HOST}:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def be_greedy(_: Any, port: int, kind: str, connections: int, token: str, seed: int) -> None:
    """Send as much as possible, take nothing, and come again when cut off, until killed."""
    chance = random.Random(seed)
    sent = [KINDS[kind](token, chance) for _ in range(10)]
    clients: dict[socket.socket, tuple[memoryview, bytes]] = {}
    while True:
        with contextlib.suppress(OSError):
            while len(clients) < connections:
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                client.settimeout(2)
                client.connect((HOST, port))
                client.setblocking(False)  # noqa: FBT003
                first, again = random.choice(sent)
                clients[client] = memoryview(first or again), again
        for client, (left, again) in list(clients.items()):
            try:
                if left:
                    clients[client] = left[client.send(left) :] or memoryview(again), again
                elif client.recv(1, socket.MSG_PEEK) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                client.close()
                del clients[client]
        time.sleep(0.01)
