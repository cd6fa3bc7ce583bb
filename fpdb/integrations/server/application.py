"""The ASGI application: it finds the call of a request, keeps to the limits, and counts."""

import asyncio
import contextlib
import logging
import math
import re
import secrets
import threading
import time
import warnings
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import msgspec
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)

import fpdb
from fpdb.integrations.batcher import Batcher, Outcome, added_to, again_if_moved
from fpdb.integrations.server.access import OPEN_TO_ALL, Access, Visitor
from fpdb.integrations.server.messages import (
    HttpReply,
    PageMaker,
    ProblemError,
    encode,
    problem_reply,
    status_name,
)

Result = TypeVar("Result")
# As ASGI has them.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

# Threads that read the database; more gain little, since one at a time runs Python.
_THREADS = 4
# A larger answer is sent in such parts: so a client that doesn't take it is noticed.
_PART = 1 << 16
_NOBODY = Visitor("read")
# They are answered however many requests are in flight.
_WATCHED = frozenset({"/healthz", "/metrics"})

# Buckets of the histograms.
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_DOCUMENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
logger = logging.getLogger(__name__)
# A line of JSON for each request, at the level INFO.
access_log = logging.getLogger(f"{__package__}.requests")
access_log.propagate = False
_REQUEST_ID = re.compile(rb"[!-~]{1,64}")


@dataclass(frozen=True)
class Limits:
    """What one request may take, and how many there may be.

    A document, alone or in a line, has at most `document` bytes of JSON, a request of lines at most
    `lines` of them and `body` bytes, an answer, or that to a line, `answer` bytes. A request takes
    at most `seconds`; one of lines as long for each line that comes. Beyond `requests` in flight,
    or `memory` bytes of their bodies and answers, further ones get the status 503.
    """

    document: int = 4 << 20
    lines: int = 100_000
    body: int = 256 << 20
    requests: int = 1000
    memory: int = 64 << 20
    answer: int = 16 << 20
    seconds: float = 30.0


class Call(NamedTuple):
    """A method of a path, or of all below one with *; what answers it; its body and answer."""

    method: str
    path: str
    reply: Callable[["Request"], Awaitable[HttpReply]]
    body: type[msgspec.Struct] | None = None
    answer: Any = None
    keyed: bool = False


class Application:
    """An ASGI application of a few calls about a database."""

    def __init__(
        self,
        database: fpdb.Database,
        calls: Iterable[Call],
        limits: Limits,
        access: Access,
        similarity: float | None,
        *,
        page: PageMaker | None = None,
    ) -> None:
        # Each answer says itself what it may miss; clients could fill the log with it.
        warnings.filterwarnings("ignore", "", fpdb.IncompleteWarning, r"fpdb\.integrations\.server")
        self.database, self.access, self.limits = database, access, limits
        self.similarity, self.key_type = similarity, database.key_type
        self._page = page
        self.stopping = False
        # The tasks that read the lines of requests.
        self.reading: set[asyncio.Task[None]] = set()
        # The requests in flight, and the bytes of their bodies and answers.
        self.requests = self.held = 0
        self.metrics = Metrics(database)
        self.metrics.in_flight.set_function(lambda: self.requests)
        self.readers = ThreadPoolExecutor(_THREADS, "fpdb-read")
        self.alone = threading.Lock()
        # Those who watch the server don't wait for what others have asked.
        self.watcher = ThreadPoolExecutor(1, "fpdb-watch")
        self._adding = added_to(database, similarity)
        self._batcher: Batcher[Outcome] | None = None
        self._calls: dict[str, dict[str, Call]] = {}
        for call in calls:
            self._calls.setdefault(call.path, {})[call.method] = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        began = time.monotonic()
        headers = dict(scope["headers"])
        request = Request(self, scope, receive, headers, began + self.limits.seconds)
        try:
            await self._send(request, await self._reply(request), send)
        except (fpdb.FpdbError, TimeoutError) as error:
            if request.status:  # half of it is sent: only the end of the connection says more
                raise
            page = self._page if b"text/html" in headers.get(b"accept", b"") else None
            await self._send(request, problem_reply(error, page), send)
        except Exception:
            logger.exception("the request %s couldn't be answered", request.id)
            raise
        finally:
            self.held -= request.held
            self.requests -= request.counted
            seconds = time.monotonic() - began
            self.metrics.count_request(request.call, request.status, seconds)
            if access_log.isEnabledFor(logging.INFO):
                access_log.info(request.described(seconds))

    async def _reply(self, request: "Request") -> HttpReply:
        scope = request.scope
        if len(request.headers) < len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            if names.count(b"host") > 1 or names.count(b"origin") > 1:
                raise ProblemError(
                    HTTPStatus.BAD_REQUEST,
                    "found two headers Host or Origin, expected one",
                    hint="a proxy has to replace the header, not to add another one",
                )
        # The application may be mounted in another one.
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if path not in OPEN_TO_ALL:
            if not path.startswith(f"{self.access.base}/"):
                raise _not_found(scope["method"], path, ())
            path = path.removeprefix(self.access.base)
        if scope["method"] == "GET" and (welcome := self.access.welcome(scope)):
            return welcome
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        address = (scope.get("client") or [""])[0]
        request.visitor = self.access.admit(method, path, request.headers, address)
        if path not in _WATCHED:
            request.count()
        coding = request.headers.get(b"content-encoding", b"identity").strip().lower()
        if coding != b"identity":  # its bytes would be stored as a page
            raise ProblemError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"found a body that is packed as {coding.decode('latin-1')[:40]!r}",
                hint="send what it becomes when it is unpacked, without Content-Encoding",
            )
        calls = self._calls.get(path) or self._calls.get(f"{path.rpartition('/')[0]}/*", {})
        if method not in calls:
            raise _not_found(method, path, calls)
        call = calls[method]
        request.call = f"{call.method} {call.path}"
        return await call.reply(request)

    async def _send(self, request: "Request", reply: HttpReply, send: Send) -> None:
        """Send a reply; of one in parts, the head with the first part."""
        body = reply.body
        if isinstance(body, bytes):
            await _begin(request, reply, send)
            last = max(0, len(body) - 1) // _PART * _PART
            for first in range(0, last, _PART):
                await self._send_part(body[first : first + _PART], send)
            await send({"type": "http.response.body", "body": body[last:]})
            return
        async with contextlib.aclosing(body) as parts:
            async for part in parts:
                if not request.status:
                    await _begin(request, reply, send)
                await self._send_part(part, send)
        await send({"type": "http.response.body"})

    async def _send_part(self, part: bytes, send: Send) -> None:
        async with asyncio.timeout(self.limits.seconds):
            await send({"type": "http.response.body", "body": part, "more_body": True})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Wait until everything is stored, at the end that a server announces."""
        for kind in ("startup", "shutdown"):
            await receive()
            if kind == "shutdown":
                await self.close()
            await send({"type": f"lifespan.{kind}.complete"})

    def stop(self) -> None:
        """Let requests of lines take no further ones, as the server ends."""
        self.stopping = True
        for task in self.reading:
            task.cancel()

    async def close(self) -> None:
        """Wait until everything that was accepted is stored."""
        if self._batcher is not None:
            await self._batcher.close()
        self.readers.shutdown(wait=False)
        self.watcher.shutdown(wait=False)

    def add(
        self, documents: Sequence[fpdb.Document], latest: float
    ) -> asyncio.Future[list[Outcome]]:
        """Add documents, unless they can't be stored before a time; then all before are durable."""
        if self._batcher is None:  # here, since an application that is mounted has no lifespan
            self._batcher = batcher = Batcher(self._store)
            self.metrics.waiting.set_function(lambda: batcher.waiting)
        return self._batcher.add(documents, latest)

    def _store(self, documents: Sequence[fpdb.Document]) -> list[Outcome]:
        began = time.perf_counter()
        outcomes = self._adding(documents)
        self.metrics.count_transaction(outcomes, time.perf_counter() - began)
        return outcomes


class Metrics:
    """Counts what a server does, for Prometheus."""

    def __init__(self, database: fpdb.Database) -> None:
        self._registry = registry = CollectorRegistry()
        count = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        times = partial(Histogram, buckets=_SECONDS, registry=registry)
        sizes = partial(Histogram, buckets=_DOCUMENTS, registry=registry)
        requests = count("fpdb_requests", "Requests, by what they called.", ["call", "status"])
        seconds = times("fpdb_request_seconds", "Time of a request.", ["call"])
        checked = count("fpdb_checked_documents", "Documents, by the outcome.", ["status"])
        # Looking a label up takes longer than counting.
        self._requests = cache(requests.labels)
        self._seconds = cache(seconds.labels)
        self._checked = cache(checked.labels)
        self.in_flight = gauge("fpdb_requests_in_flight", "Requests without a complete answer.")
        self.waiting = gauge("fpdb_waiting_documents", "Documents that wait to be stored.")
        self._incomplete = count("fpdb_incomplete_answers", "Searches that a budget ended.")
        self._documents = sizes("fpdb_transaction_documents", "Documents of a transaction.")
        self._transactions = times("fpdb_transaction_seconds", "Time of a transaction.")
        ProcessCollector(registry=registry)
        Info("fpdb_build", "The version.", registry=registry).info({"version": fpdb.__version__})
        gauge("fpdb_damaged", "1: the database is damaged.").set_function(
            lambda: bool(database.damage)
        )
        gauge("fpdb_documents", "Stored documents.").set_function(partial(_count, database))
        size = gauge("fpdb_file_bytes", "Size of the file.")
        size.set_function(partial(_size, database))

    def written(self) -> bytes:
        return generate_latest(self._registry)

    def count_request(self, call: str, status: int, seconds: float) -> None:
        self._requests(call, status).inc()
        self._seconds(call).observe(seconds)

    def count_transaction(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        self._transactions.observe(seconds)
        self._documents.observe(len(outcomes))
        added = [outcome for outcome in outcomes if isinstance(outcome, fpdb.Added)]
        self.count_checked(outcome.status for outcome in added)
        self.count_checked(status_name(error) for error in outcomes if isinstance(error, Exception))
        self._incomplete.inc(sum(not outcome.matches.complete for outcome in added))

    def count_checked(self, statuses: Iterable[str]) -> None:
        for status, number in Counts(statuses).items():
            self._checked(status).inc(number)


@dataclass(eq=False)
class Request:
    """A request to an application: who sent it, and its body, which is still to come."""

    application: Application
    scope: Scope
    receive: Receive
    headers: dict[bytes, bytes]
    # By `time.monotonic()`: it is answered until then, and commits nothing later.
    deadline: float
    visitor: Visitor = _NOBODY
    call: str = "none"
    # Of the reply, once it is sent.
    status: int = 0
    # Whether it is one of the requests in flight, and the bytes that it holds.
    counted: bool = False
    held: int = 0

    @cached_property
    def id(self) -> str:
        """The header X-Request-Id, or a number that the log has in its place."""
        header = self.headers.get(b"x-request-id", b"")
        return header.decode() if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8)

    def described(self, seconds: float) -> str:
        """Return a line of JSON for the log: neither keys nor texts, which others may not read."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "id": self.id,
            "address": (self.scope.get("client") or [""])[0],
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": self.status,
            "seconds": round(seconds, 6),
        }
        return encode(line).decode()

    def count(self) -> None:
        """Count it as one of the requests in flight; raise ProblemError if they are too many."""
        application = self.application
        if application.requests >= application.limits.requests:
            raise _too_much(f"more than {application.limits.requests:,} requests are in flight")
        application.requests += 1
        self.counted = True

    def hold(self, size: int) -> None:
        """Count more bytes that it holds, or fewer; raise ProblemError if all hold too many."""
        application, most = self.application, self.application.limits.memory
        if size > 0 and application.held + size > most:
            raise _too_much(f"the requests in flight have more than {most:,} bytes")
        application.held += size
        self.held += size

    def renew(self) -> None:
        """Let it take as long again, for a further line."""
        self.deadline = time.monotonic() + self.application.limits.seconds

    async def body(self) -> bytes:
        length = self.headers.get(b"content-length", b"")
        declared = int(length) if length.isdigit() else -1
        self.require_size(declared)
        parts: list[bytes] = []
        size, more = 0, True
        async with asyncio.timeout_at(self.deadline):
            while more:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ProblemError(HTTPStatus.BAD_REQUEST, "the body ended early")
                part = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self.require_size(size)
                self.hold(len(part))
                # One that has its length is complete: to receive its end takes as long again.
                more = message.get("more_body", False) and size != declared
        return b"".join(parts)

    def require_size(self, size: int) -> None:
        largest = self.application.limits.document
        if size > largest:
            raise ProblemError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"found a document of more than {largest:,} bytes",
                hint="leave such documents out, or cut them into several",
            )

    def require_writer(self) -> None:
        if self.visitor.role != "write":
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "the token may only read",
                hint="send one of the lines `write TOKEN` of the token file",
            )

    async def read(self, function: Callable[..., Result], *arguments: object) -> Result:
        async with asyncio.timeout_at(self.deadline):
            return await self._run(partial(function, *arguments))

    async def write(self, function: Callable[..., Result], *arguments: object) -> Result:
        """Return what a function that writes returns in a thread, which is always waited for."""

        def within() -> Result:
            with fpdb.deadline(self.deadline):
                return function(*arguments)

        return await self._run(within)

    async def _run(self, function: Callable[[], Result]) -> Result:
        application = self.application
        threads = application.readers if self.counted else application.watcher
        work = partial(again_if_moved, application.database, function)
        return await asyncio.get_running_loop().run_in_executor(threads, work)


def _count(database: fpdb.Database) -> float:
    """Return the number of documents; nothing keeps the other metrics from who watches them."""
    try:
        return again_if_moved(database, database.__len__)
    except fpdb.FpdbError:
        return math.nan


def _size(database: fpdb.Database) -> float:
    try:
        return (database.path / "data.mdb").stat().st_size
    except OSError:  # it was moved away
        return math.nan


def _too_much(detail: str) -> ProblemError:
    hint = "send fewer at a time, or many documents in one request"
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, detail, hint=hint)


async def _begin(request: Request, reply: HttpReply, send: Send) -> None:
    headers = [(key.lower().encode(), value.encode()) for key, value in reply.headers.items()]
    if isinstance(reply.body, bytes) and reply.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    request.status = int(reply.status)
    await send({"type": "http.response.start", "status": request.status, "headers": headers})


def _not_found(method: str, path: str, allowed: Iterable[str]) -> ProblemError:
    return ProblemError(
        HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND,
        f"found {method} {path[:200]!r}, expected a call of the API",
        hint="/openapi.json describes the calls",
        headers={"Allow": ", ".join(allowed)} if allowed else {},
    )
