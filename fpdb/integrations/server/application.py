"""The ASGI application: it finds the call of a request, keeps to the limits, and counts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from functools import partial
from http import HTTPStatus
from urllib.parse import parse_qs

import fpdb
from fpdb.integrations.server.access import OPEN_TO_ALL, Access
from fpdb.integrations.server.calls import CALLS, Call
from fpdb.integrations.server.description import PAGES
from fpdb.integrations.server.replies import HttpReply, ProblemError, problem_page, problem_reply
from fpdb.integrations.server.server import Limits, Receive, Request, Scope, Send, Server

_MOST_FIELDS = 1_000
# The answers to these are shared by all who ask, and take no place of theirs.
_WATCHED = frozenset({"/healthz", "/metrics"})
_PIECE = 1 << 16


def app(
    database: fpdb.Database,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    similarity: float | None = None,
    explorer: fpdb.Explorer | None = None,
) -> "Application":
    """Return an ASGI application that answers for a database, which stays the caller's to close.

    Texts with this `similarity` count as duplicates, by default that of the database. The pages of
    an `explorer` are at /explore/, where / leads.
    """
    server = Server(database, limits or Limits(), access or Access(), similarity)
    return Application(
        server, (*CALLS, *PAGES, *(_ExplorerPages(explorer).calls if explorer else ()))
    )


class Application:
    """An ASGI application of a few calls."""

    def __init__(self, server: Server, calls: Sequence[Call]) -> None:
        self.server = server
        self._inside = 0
        server.metrics.in_flight.set_function(lambda: self._inside)
        self._calls: dict[str, dict[str, Call]] = {}
        for call in calls:
            self._calls.setdefault(call.path, {})[call.method] = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        began = time.perf_counter()
        request = Request(self.server, scope, receive, dict(scope["headers"]))
        self._inside += 1
        try:
            async with asyncio.timeout(self.server.limits.seconds) as deadline:
                reply = await self._reply(request)
                deadline.reschedule(None)
                await self._send(request, reply, send, deadline)
        except (ProblemError, fpdb.FpdbError, TimeoutError) as error:
            if request.status:  # half of it is sent: only the end of the connection says more
                raise
            shown = (
                b"text/html" in request.headers.get(b"accept", b"") and "/explore" in scope["path"]
            )
            reply = (problem_page if shown else problem_reply)(error)
            async with asyncio.timeout(None) as deadline:
                await self._send(request, reply, send, deadline)
        finally:
            self._inside -= 1
            self.server.memory.give_all(request)
            if request.placed:
                self.server.places.give(request.visitor.peer)
            seconds = time.perf_counter() - began
            self.server.metrics.count_request(request.call, request.status, seconds)

    async def _reply(self, request: Request) -> HttpReply:
        server, scope = self.server, request.scope
        if len(request.headers) < len(scope["headers"]):
            _require_once(scope["headers"])
        # The application may be mounted in another one.
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if path not in OPEN_TO_ALL:
            if not path.startswith(f"{server.access.base}/"):
                raise _not_found(scope["method"], path, ())
            path = path.removeprefix(server.access.base)
        if welcome := server.access.welcome(scope):
            return welcome
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        address = (scope.get("client") or [""])[0]
        request.visitor = server.access.admit(method, path, request.headers, address)
        if path not in _WATCHED:
            request.placed = server.places.take(request.visitor.peer)
            if not request.placed:
                raise server.places.refusal()
        calls = self._calls.get(path) or self._calls.get(f"{path.rpartition('/')[0]}/*", {})
        if method not in calls:
            raise _not_found(method, path, calls)
        reply = calls[method].reply
        request.call = reply.__name__
        return await reply(request)

    async def _send(
        self, request: Request, reply: HttpReply, send: Send, deadline: asyncio.Timeout
    ) -> None:
        """Send a reply, by parts that each have the time of a request to be taken."""
        loop, seconds = asyncio.get_running_loop(), self.server.limits.seconds
        if isinstance(reply.body, bytes) and len(reply.body) <= _PIECE:
            await _begin(request, reply, send)
            await send({"type": "http.response.body", "body": reply.body})
            return
        body = _one_part(reply.body) if isinstance(reply.body, bytes) else reply.body
        async with contextlib.aclosing(body) as parts:
            async for part in parts:
                if not request.status:
                    await _begin(request, reply, send)
                for first in range(0, len(part), _PIECE):
                    deadline.reschedule(loop.time() + seconds)
                    piece = part[first : first + _PIECE]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                deadline.reschedule(None)
        await send({"type": "http.response.body"})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Wait until everything is stored, at the end that a server announces."""
        for kind in ("startup", "shutdown"):
            await receive()
            if kind == "shutdown":
                await self.server.close()
            await send({"type": f"lifespan.{kind}.complete"})


async def _begin(request: Request, reply: HttpReply, send: Send) -> None:
    """Send the head of a reply."""
    headers = [(key.lower().encode(), value.encode()) for key, value in reply.headers.items()]
    if isinstance(reply.body, bytes) and reply.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-length", b"%d" % len(reply.body)))
    request.status = int(reply.status)
    await send({"type": "http.response.start", "status": request.status, "headers": headers})


async def _one_part(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def _require_once(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise ProblemError if a header that says who may do what comes twice."""
    names = [name for name, _ in headers]
    for name in (b"host", b"origin"):
        if names.count(name) > 1:
            raise ProblemError(
                HTTPStatus.BAD_REQUEST,
                f"found {names.count(name)} headers {name.decode().title()}, expected one",
                hint="a proxy has to replace the header, not to add another one",
            )


def _not_found(method: str, path: str, allowed: Iterable[str]) -> ProblemError:
    """Return the error of a path without a call, or with other methods than the request has."""
    return ProblemError(
        HTTPStatus.METHOD_NOT_ALLOWED if allowed else HTTPStatus.NOT_FOUND,
        f"found {method} {path[:200]!r}, expected a call of the API",
        hint="/docs describes the calls",
        headers={"Allow": ", ".join(allowed)} if allowed else {},
    )


class _ExplorerPages:
    """The pages of an explorer as calls."""

    def __init__(self, explorer: fpdb.Explorer) -> None:
        self._explorer = explorer
        self.calls = (
            Call("GET", "/", self.home),
            Call("GET", "/explore", self.home),
            Call("GET", "/explore/*", self.page),
            Call("POST", "/explore/*", self.page),
        )

    async def home(self, _: Request) -> HttpReply:
        return HttpReply(status=HTTPStatus.SEE_OTHER, headers={"Location": "explore/"})

    async def page(self, request: Request) -> HttpReply:
        posted = request.scope["method"] == "POST"
        data = await request.body() if posted else request.scope["query_string"]
        try:
            fields = parse_qs(
                data.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
            )
        except ValueError:
            raise ProblemError(HTTPStatus.BAD_REQUEST, "the form has too many fields") from None
        answer = partial(
            self._explorer.answer,
            request.scope["path"].rpartition("/")[2],
            fields,
            session=request.visitor.session,
            posted=posted,
            may_write=request.visitor.role == "write",
        )
        found = await request.read(answer)
        request.server.memory.hold(request, len(found.body))
        return HttpReply(found.body, found.status, found.headers)
