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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from figures import ControlError, Figures, going

import fpdb

ROUNDS = 18  # each kind in each way
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


def _head(path: str, kind: str, length: int, token: str) -> bytes:
    secret = f"Authorization: Bearer {token}\r\n" if token else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {INNOCENT}\r\n{secret}Content-Type: {kind}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def _pipelined(token: str, _: random.Random) -> bytes:
    return (
        _head("/v1/query", "application/json", 2, token).replace(b"\r\n\r\n", b"\r\n\r\n{}")
        * 30_000
    )


def _body(token: str, chance: random.Random) -> bytes:
    return _head("/v1/query", "application/json", 4 * _MIB, token) + bytes(
        chance.randrange(1, 4 * _MIB)
    )


def _line(token: str, chance: random.Random) -> bytes:
    return _head("/v1/query", "application/x-ndjson", 200 * _MIB, token) + b"x" * chance.randrange(
        1, 4 * _MIB
    )


def _lines(token: str, _: random.Random) -> bytes:
    line = json.dumps({"text": TEXT, "limit": 1000}).encode() + b"\n"
    return _head("/v1/query", "application/x-ndjson", 2000 * len(line), token) + 2000 * line


def _answer(token: str, chance: random.Random) -> bytes:
    body = json.dumps({"text": TEXT, "limit": chance.choice([10, 100, 400, 1000])}).encode()
    return _head("/v1/query", "application/json", len(body), token) + body


def _idle(_: str, chance: random.Random) -> bytes:
    return b"GET / HTTP/1.1\r\nA: "[: chance.randrange(19)]


# The token of the greedy clients, and whether the server requires one.
WAYS = {
    "no tokens": ("", False),
    "with a token": (READ, True),
    "without a token": ("", True),
}
KINDS = {
    "pipelined requests": _pipelined,
    "bodies": _body,
    "unfinished lines": _line,
    "lines with large answers": _lines,
    "large answers": _answer,
    "idle connections": _idle,
}


def missing() -> str:
    """Return what this torment lacks here."""
    if not Path("/proc/self/status").exists():
        return "there is no /proc"
    with socket.socket() as probe:
        try:
            probe.bind((GREEDY, 0))
        except OSError:
            return f"{GREEDY} is no address of this host"
    return ""


def run(
    rounds: int,
    seed: int,
    work: Path,
    seconds: float = SECONDS,
    connections: int = CONNECTIONS,
    patience: float = 1.0,
) -> Figures:
    """Let greedy clients of each kind at a server, and measure it and what another client gets.

    Where other work takes the processors, an answer may take `patience` times as long.
    """
    chance = random.Random(seed)
    path = _filled(work)
    inconsistent = total = checked = 0
    notes: dict[str, object] = {}
    with _files():
        control = _control(path, chance)
        for number in going(rounds):
            total += 1
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
            checked += seen.answered
            notes[f"{kind}, {way}"] = str(seen)
            inconsistent += (
                seen.mebibytes > LARGEST_MIB
                or seen.check > LONGEST_CHECK * patience
                or seen.health > LONGEST_HEALTH * patience
                or seen.refused > 0
            )
    return Figures(total, checked, 0, inconsistent, control=control, notes=notes)


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
        while (took := _mebibytes(process)) <= LARGEST_MIB:
            if time.monotonic() > end:
                raise ControlError(f"a server without bounds took {took} MiB")
            time.sleep(0.1)
    return f"a server without bounds took more than {LARGEST_MIB} MiB"


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


class Greedy:
    """Clients that send as much as they can, take nothing, and come again when they are cut off."""

    def __init__(self, port: int, kind: str, connections: int, token: str, seed: int) -> None:
        self._port, self._wanted = port, connections
        chance = random.Random(seed)
        self._sent = [KINDS[kind](token, chance) for _ in range(10)]
        self._open: dict[socket.socket, memoryview] = {}

    def run(self) -> None:
        """Go on until this process is killed."""
        while True:
            with contextlib.suppress(OSError):
                while len(self._open) < self._wanted:
                    self._connect()
            for client in list(self._open):
                self._push(client)
            time.sleep(0.1)

    def _connect(self) -> None:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        client.settimeout(2)
        client.bind((GREEDY, 0))
        client.connect((INNOCENT, self._port))
        client.setblocking(False)  # noqa: FBT003
        self._open[client] = memoryview(random.choice(self._sent))

    def _push(self, client: socket.socket) -> None:
        left = self._open[client]
        try:
            if left:
                self._open[client] = left[client.send(left) :]
            elif client.recv(1, socket.MSG_PEEK) == b"":
                raise ConnectionResetError
        except BlockingIOError:
            pass
        except OSError:
            client.close()
            del self._open[client]


if __name__ == "__main__":
    _, _port, _kind, _connections, _token, _seed = sys.argv
    Greedy(int(_port), _kind, int(_connections), _token, int(_seed)).run()
