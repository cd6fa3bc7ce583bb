"""The ASGI application: it finds the call of a request, keeps to the limits, and counts."""

import asyncio
import contextlib
import time
import warnings
from collections import Counter as Counts
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

import fpdb
from fpdb.integrations.batcher import Batcher, Outcome, added_to, again_if_moved
from fpdb.integrations.server.access import OPEN_TO_ALL, Access, Visitor
from fpdb.integrations.server.messages import HttpReply, PageMaker, ProblemError, problem_reply
from fpdb.integrations.server.shares import Account, Crew

Result = TypeVar("Result")
# As ASGI has them.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]

# Threads that read the database for a peer; more gain little, since one at a time runs Python.
_THREADS = 4
# Queries with more matches are answered by a single thread: they may take 64 KiB for each.
MANY_MATCHES = 100
# Documents that wait to be stored, in all; and how many characters count as one more of them.
_QUEUE, _CHARACTERS = 4000, 8192
# A body takes this multiple of its size: as it came, and decoded, four bytes for a character.
WEIGHT = 5
# One request or connection holds at most this share of the memory.
_SHARE = 5
# For small requests, a share is left by others.
_RESERVE = 4
# Room that there must be before an answer is made.
_ANSWER = 1 << 14
_NOBODY = Visitor("read")
# The answers to these are shared by all who ask, and take no place of theirs.
_WATCHED = frozenset({"/healthz", "/metrics"})

# Buckets of the histograms.
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
_DOCUMENTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Limits:
    """What one request may take, and how many there may be.

    A document, alone or in a line, has at most `document` bytes of JSON, and its text at most what
    the recipe takes. A request of lines has at most `lines` of them, and `body` bytes. A request
    takes at most `seconds`; one of lines as long for each line that comes. A token or an address
    has at most `requests` in flight, and all together less than twice as many; beyond these, they
    get the status 503. `memory` are the bytes that are held for all, of which documents that are
    read count five times; requests wait for it, and each gets what it leaves for the others. An
    answer, or the answer to a line, has at most `answer` bytes.
    """

    document: int = 4 << 20
    lines: int = 100_000
    body: int = 256 << 20
    requests: int = 1000
    memory: int = 160 << 20
    answer: int = 16 << 20
    seconds: float = 30.0


class Call(NamedTuple):
    """A method of a path, what answers it, and what its body and its answer are.

    Its description is the docstring of what answers it. A path that ends with * is any below it.
    """

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
        self.similarity = similarity
        # What shows an error to people.
        self._page = page
        self.stopping = False
        # What requests of lines wait in for further ones.
        self.waiting: set[asyncio.Timeout] = set()
        # Everything that is held for connections and their requests.
        self.memory = Account(
            limits.memory,
            f"the requests in flight have more than {limits.memory:,} bytes",
            limits.memory // _SHARE,
            limits.memory // _RESERVE,
        )
        self.places = Account(
            2 * limits.requests,
            f"more than {limits.requests:,} requests of this token or address are in flight",
        )
        self.readers, self.many = Crew(_THREADS, "read"), Crew(1, "matches")
        self.metrics = Metrics(database)
        self._inside = 0
        self.metrics.in_flight.set_function(lambda: self._inside)
        self._watcher = Crew(1, "watch")
        self._watching: dict[Callable[[], Any], asyncio.Future[Any]] = {}
        self._adding = added_to(database, similarity)
        self._queue = Account(_QUEUE, "too many documents wait to be stored")
        self._batcher: Batcher[Outcome] | None = None
        self._calls: dict[str, dict[str, Call]] = {}
        for call in calls:
            self._calls.setdefault(call.path, {})[call.method] = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        began = time.perf_counter()
        request = Request(self, scope, receive, dict(scope["headers"]))
        self._inside += 1
        try:
            async with asyncio.timeout(self.limits.seconds):
                reply = await self._reply(request)
            await self._send(request, reply, send)
        except (ProblemError, fpdb.FpdbError, TimeoutError) as error:
            if request.status:  # half of it is sent: only the end of the connection says more
                raise
            accepted = request.headers.get(b"accept", b"")
            page = self._page if b"text/html" in accepted else None
            await self._send(request, problem_reply(error, page), send)
        finally:
            self._inside -= 1
            self.memory.give_all(request)
            if request.placed:
                self.places.give(request.visitor.peer)
            seconds = time.perf_counter() - began
            self.metrics.count_request(request.call, request.status, seconds)

    async def _reply(self, request: "Request") -> HttpReply:
        scope = request.scope
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
        if welcome := self.access.welcome(scope):
            return welcome
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        address = (scope.get("client") or [""])[0]
        request.visitor = self.access.admit(method, path, request.headers, address)
        if path not in _WATCHED:
            request.placed = self.places.take(request.visitor.peer)
            if not request.placed:
                raise self.places.refusal()
        calls = self._calls.get(path) or self._calls.get(f"{path.rpartition('/')[0]}/*", {})
        if method not in calls:
            raise _not_found(method, path, calls)
        reply = calls[method].reply
        request.call = f"{calls[method].method} {calls[method].path}"
        return await reply(request)

    async def _send(self, request: "Request", reply: HttpReply, send: Send) -> None:
        """Send a reply; of one in parts, the head with the first part."""
        if isinstance(reply.body, bytes):
            await _begin(request, reply, send)
            await send({"type": "http.response.body", "body": reply.body})
            return
        async with contextlib.aclosing(reply.body) as parts:
            async for part in parts:
                if not request.status:
                    await _begin(request, reply, send)
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Wait until everything is stored, at the end that a server announces."""
        for kind in ("startup", "shutdown"):
            await receive()
            if kind == "shutdown":
                await self.close()
            await send({"type": f"lifespan.{kind}.complete"})

    async def watch(self, function: Callable[[], Result]) -> Result:
        """Return what a function returns in a thread that nothing else uses.

        Those who call it at the same time get the same.
        """
        if (running := self._watching.get(function)) is None:
            running = self._watcher.run(None, partial(again_if_moved, self.database, function))
            self._watching[function] = running
            running.add_done_callback(lambda _: self._watching.pop(function))
        result: Result = await asyncio.shield(running)
        return result

    def stop(self) -> None:
        """Let requests of lines take no further ones, as the server ends."""
        self.stopping = True
        for each in self.waiting:
            each.reschedule(0)

    async def close(self) -> None:
        """Wait until everything that was accepted is stored."""
        if self._batcher is not None:
            await self._batcher.close()
        for crew in (self.readers, self.many, self._watcher):
            crew.close()

    async def add(
        self, request: "Request", documents: Sequence[fpdb.Document]
    ) -> asyncio.Future[list[Outcome]]:
        """Add documents once the peer has its turn; these and all before are durable then."""
        if self._batcher is None:  # here, since an application that is mounted has no lifespan
            self._batcher = batcher = Batcher(self._store)
            self.metrics.waiting.set_function(lambda: batcher.waiting)
        peer = request.visitor.peer
        size = sum(1 + len(document.text or "") // _CHARACTERS for document in documents)
        if size:
            await self._queue.wait(peer, size)
        adding = self._batcher.add(documents)
        if size:
            adding.add_done_callback(lambda _: self._queue.give(peer, size))
        return adding

    def _store(self, documents: Sequence[fpdb.Document]) -> list[Outcome]:
        """Add documents in one transaction, and count it."""
        began = time.perf_counter()
        found = self._adding(documents)
        self.metrics.count_transaction(found, time.perf_counter() - began)
        return found


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
        gauge("fpdb_documents", "Stored documents.").set_function(database.__len__)
        size = gauge("fpdb_file_bytes", "Size of the file.")
        size.set_function(lambda: (database.path / "data.mdb").stat().st_size)

    def written(self) -> bytes:
        """Return everything in the format of Prometheus."""
        return generate_latest(self._registry)

    def count_request(self, call: str, status: int, seconds: float) -> None:
        """Count a request that has its answer."""
        self._requests(call, status).inc()
        self._seconds(call).observe(seconds)

    def count_transaction(self, found: Sequence[Outcome], seconds: float) -> None:
        """Count what became of the documents of a transaction."""
        self._transactions.observe(seconds)
        self._documents.observe(len(found))
        added = [each for each in found if isinstance(each, fpdb.Added)]
        statuses = Counts(each.status for each in added)
        statuses["error"] = len(found) - len(added)
        for status, number in statuses.items():
            self._checked(status).inc(number)
        self._incomplete.inc(sum(not each.matches.complete for each in added))


@dataclass(slots=True, eq=False)
class Request:
    """A request to an application: who sent it, and its body, which is still to come."""

    application: Application
    scope: Scope
    receive: Receive
    headers: dict[bytes, bytes]
    visitor: Visitor = _NOBODY
    call: str = "none"
    # Of the reply, once it is sent.
    status: int = 0
    # Whether it has one of the places of its peer.
    placed: bool = False

    async def body(self) -> bytes:
        """Return the body, which has one document."""
        length = self.headers.get(b"content-length", b"")
        declared = int(length) if length.isdigit() else 0
        self.require_size(declared)
        await self.hold(declared * WEIGHT)
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ProblemError(HTTPStatus.BAD_REQUEST, "the body ended early")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            self.require_size(size)
            if size > declared:
                await self.hold((size - declared) * WEIGHT)
                declared = size
            more = message.get("more_body", False)
        return b"".join(parts)

    def require_size(self, size: int) -> None:
        """Raise ProblemError if a document has more bytes than it may."""
        largest = self.application.limits.document
        if size > largest:
            raise ProblemError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"found a document of more than {largest:,} bytes",
                hint="leave such documents out, or cut them into several",
            )

    def require_writer(self) -> None:
        """Raise ProblemError unless the visitor may write."""
        if self.visitor.role != "write":
            raise ProblemError(
                HTTPStatus.FORBIDDEN,
                "the token may only read",
                hint="send one of the lines `write TOKEN` of the token file",
            )

    async def hold(self, size: int) -> None:
        """Hold more bytes, once there is room for them."""
        if size:
            await self.application.memory.wait(self, size)

    def release(self, size: int) -> None:
        """Hold fewer bytes."""
        if size:
            self.application.memory.give(self, size)

    async def read(
        self, function: Callable[..., Result], *arguments: object, matches: int = 0
    ) -> Result:
        """Return what a function returns in a thread, once the visitor has a turn."""
        crew = self.application.many if matches > MANY_MATCHES else self.application.readers
        work = partial(again_if_moved, self.application.database, partial(function, *arguments))
        return await crew.run(self.visitor.peer, work)

    async def answer(
        self, function: Callable[[], Sequence[bytes]], matches: int
    ) -> Sequence[bytes]:
        """Return what a function returns in a thread, which is held from then on.

        If there is no room for it, it is dropped, and made again once there is.
        """
        room = _ANSWER
        while True:
            await self.hold(room)
            result = await self.read(function, matches=matches)
            self.release(room)
            room = sum(map(len, result))
            if self.application.memory.take(self, room):
                return result
            del result  # before it waits


async def _begin(request: Request, reply: HttpReply, send: Send) -> None:
    """Send the head of a reply."""
    headers = [(key.lower().encode(), value.encode()) for key, value in reply.headers.items()]
    if isinstance(reply.body, bytes) and reply.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    request.status = int(reply.status)
    await send({"type": "http.response.start", "status": request.status, "headers": headers})


def _not_found(method: str, path: str, allowed: Iterable[str]) -> ProblemError:
    """Return the error of a path without a call, or with other methods than the request has."""
    return ProblemError(
        HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND,
        f"found {method} {path[:200]!r}, expected a call of the API",
        hint="/openapi.json describes the calls",
        headers={"Allow": ", ".join(allowed)} if allowed else {},
    )
