"""Greedy clients of a server: each kind of what it could keep for them, with and without a token.

Meanwhile the server must stay small, and answer others. A server whose limits are lifted must not.
"""

import contextlib
import json
import random
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from frame import Figures, caught, going

import fpdb

SECONDS = 30.0
CONNECTIONS = 400
LARGEST_MIB = 512
LONGEST_CHECK, LONGEST_HEALTH = 5.0, 1.0
STORED, META = 1000, 20_000
# Greedy clients come from one address, the innocent one from another.
GREEDY, INNOCENT = "127.0.0.2", "127.0.0.1"
READ, WRITE = "r" * 32, "w" * 32
TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more."
_MIB = 1 << 20
# A server without bounds: as one that counts nothing.
_SERVE = """
import sys, fpdb
from fpdb.integrations import server
if "unbounded" in sys.argv:
    limits = server.Limits(memory=1 << 40, requests=1 << 20, answer=1 << 40)
else:
    limits = server.Limits()
with fpdb.open(sys.argv[1]) as database:
    tokens = [("read", "r" * 32), ("write", "w" * 32)] if "tokens" in sys.argv else ()
    access = server.Access(tokens)
    server.serve(server.app(database, access=access, limits=limits), port=0,
        on_start=lambda url: print(url, flush=True))
"""


class Seen(NamedTuple):
    """What a server took, and how long an innocent client waited at most."""

    mebibytes: int
    check: float
    health: float
    refused: int
    answered: int


def _request(token: str, body: bytes, kind: str = "json", length: int = 0) -> bytes:
    """Return a request with a body, or with the begin of a longer one."""
    secret = f"Authorization: Bearer {token}\r\n" if token else ""
    head = f"POST /v1/query HTTP/1.1\r\nHost: {INNOCENT}\r\n{secret}"
    head += f"Content-Type: application/{kind}\r\nContent-Length: {length or len(body)}\r\n\r\n"
    return head.encode() + body


def _asking(limit: int) -> bytes:
    return json.dumps({"text": TEXT, "limit": limit}).encode()


# The token of the greedy clients, and whether the server requires one.
WAYS = {
    "no tokens": ("", False),
    "with a token": (READ, True),
    "without a token": ("", True),
}
# What each kind of greedy clients sends, with a token and what is random.
KINDS: dict[str, Callable[[str, random.Random], bytes]] = {
    "pipelined requests": lambda token, _: _request(token, b"{}") * 30_000,
    "bodies": lambda token, chance: _request(
        token, bytes(chance.randrange(1, 4 * _MIB)), length=4 * _MIB
    ),
    "unfinished lines": lambda token, chance: _request(
        token, b"x" * chance.randrange(1, 4 * _MIB), "x-ndjson", 200 * _MIB
    ),
    "lines with large answers": lambda token, _: _request(
        token, (_asking(1000) + b"\n") * 2000, "x-ndjson"
    ),
    "large answers": lambda token, chance: _request(
        token, _asking(chance.choice([10, 100, 400, 1000]))
    ),
    "idle connections": lambda _, chance: b"GET / HTTP/1.1\r\nA: "[: chance.randrange(19)],
}


def missing() -> str:
    """Return what this torment lacks here."""
    with socket.socket() as probe:
        try:
            probe.bind((GREEDY, 0))
        except OSError:
            return f"{GREEDY} is no address of this host"
    return ""


def run(
    figures: Figures, rounds: int, seed: int, work: Path, seconds: float = SECONDS,
    connections: int = CONNECTIONS, patience: float = 1.0,
) -> None:  # fmt: skip
    """Let greedy clients of each kind at a server, and measure it and what another client gets.

    Where other work takes the processors, an answer may take `patience` times as long.
    """
    chance = random.Random(seed)
    path = _filled(work)
    with _files():
        figures.control = caught("a server without bounds", 1, lambda _: _control(path, chance))
        for number in going(rounds):
            kind, way = (
                list(KINDS)[number // len(WAYS) % len(KINDS)],
                list(WAYS)[number % len(WAYS)],
            )
            token, required = WAYS[way]
            with (
                _server(path, *["tokens"] * required) as (process, port),
                _clients(port, kind, connections, token, chance.randrange(1 << 30)),
            ):
                seen = _observed(process, port, seconds, WRITE if required else "")
            good = (
                seen.mebibytes <= LARGEST_MIB
                and seen.check <= LONGEST_CHECK * patience
                and seen.health <= LONGEST_HEALTH * patience
                and not seen.refused
            )
            name = f"{kind}, {way}"
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


@contextlib.contextmanager
def _files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _control(path: Path, chance: random.Random) -> str:
    """Let greedy clients at a server without bounds, until it is too large."""
    end = time.monotonic() + 60
    with (
        _server(path, "unbounded") as (process, port),
        _clients(port, "unfinished lines", CONNECTIONS, "", chance.randrange(1 << 30)),
    ):
        while time.monotonic() < end:
            if _mebibytes(process) > LARGEST_MIB:
                return f"it took more than {LARGEST_MIB} MiB"
            time.sleep(0.1)
    return ""


@contextlib.contextmanager
def _server(path: Path, *more: str) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Serve a copy of a database; yield the process and the port."""
    copy = path.with_name("copy.fpdb")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    with subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(copy), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline().rpartition(b":")[2])
        finally:
            process.kill()


@contextlib.contextmanager
def _clients(port: int, kind: str, connections: int, token: str, seed: int) -> Iterator[None]:
    """Run greedy clients in a process of their own."""
    arguments = map(str, (port, kind, connections, token, seed))
    with subprocess.Popen([sys.executable, __file__, *arguments]) as process:
        try:
            time.sleep(0.5)
            yield
        finally:
            process.kill()


def _mebibytes(process: "subprocess.Popen[bytes]") -> int:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def _observed(process: "subprocess.Popen[bytes]", port: int, seconds: float, token: str) -> Seen:
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
            refused += not _asked(port, path, data, token)
            longest[path] = max(longest[path], time.monotonic() - began)
        answered += 1
        time.sleep(0.1)
    check, health = round(longest["/v1/check"], 2), round(longest["/healthz"], 2)
    return Seen(_mebibytes(process), check, health, refused, answered)


def _asked(port: int, path: str, data: bytes | None, token: str) -> bool:
    """Ask as an innocent client; return whether there was an answer."""
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"http://{INNOCENT}:{port}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _be_greedy(port: int, kind: str, connections: int, token: str, seed: int) -> None:
    """Send as much as possible, take nothing, and come again when cut off, until killed."""
    chance = random.Random(seed)
    sent = [KINDS[kind](token, chance) for _ in range(10)]
    clients: dict[socket.socket, memoryview] = {}
    while True:
        with contextlib.suppress(OSError):
            while len(clients) < connections:
                client = socket.socket()
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                client.settimeout(2)
                client.bind((GREEDY, 0))
                client.connect((INNOCENT, port))
                client.setblocking(False)  # noqa: FBT003
                clients[client] = memoryview(random.choice(sent))
        for client, left in list(clients.items()):
            try:
                if left:
                    clients[client] = left[client.send(left) :]
                elif client.recv(1, socket.MSG_PEEK) == b"":
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                client.close()
                del clients[client]
        time.sleep(0.1)


if __name__ == "__main__":
    _, _port, _kind, _connections, _token, _seed = sys.argv
    _be_greedy(int(_port), _kind, int(_connections), _token, int(_seed))
