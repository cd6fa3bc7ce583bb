"""The ASGI application: it finds the call of a request, keeps to the limits, and counts."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from urllib.parse import parse_qs

import fpdb
from fpdb.integrations.server.access import Access
from fpdb.integrations.server.calls import CALLS, Call
from fpdb.integrations.server.description import PAGES
from fpdb.integrations.server.replies import HttpReply, ProblemError, problem_page, problem_reply
from fpdb.integrations.server.server import Limits, Receive, Request, Scope, Send, Server

_MOST_FIELDS = 1_000


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
                if isinstance(reply.body, bytes):
                    await _send(request, reply, send)
                else:
                    deadline.reschedule(None)
                    await self._send_parts(request, reply, reply.body, send, deadline)
        except (ProblemError, fpdb.FpdbError, TimeoutError) as error:
            if request.status:  # half of it is sent: only the end of the connection says more
                raise
            shown = (
                b"text/html" in request.headers.get(b"accept", b"") and "/explore" in scope["path"]
            )
            await _send(request, (problem_page if shown else problem_reply)(error), send)
        finally:
            self._inside -= 1
            self.server.held -= request.held
            seconds = time.perf_counter() - began
            self.server.metrics.count_request(request.call, request.status, seconds)

    async def _reply(self, request: Request) -> HttpReply:
        server, scope = self.server, request.scope
        if welcome := server.access.welcome(scope):
            return welcome
        # The application may be mounted in another one.
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        request.visitor = server.access.admit(method, path, request.headers)
        if self._inside > server.limits.requests:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"more than {server.limits.requests:,} requests are in flight",
                hint="send fewer at a time, or many documents in one request",
            )
        calls = self._calls.get(path) or self._calls.get(f"{path.rpartition('/')[0]}/*", {})
        if method not in calls:
            raise ProblemError(
                HTTPStatus.METHOD_NOT_ALLOWED if calls else HTTPStatus.NOT_FOUND,
                f"found {method} {path[:200]!r}, expected a call of the API",
                hint="/docs describes the calls",
                headers={"Allow": ", ".join(calls)} if calls else {},
            )
        reply = calls[method].reply
        request.call = reply.__name__
        return await reply(request)

    async def _send_parts(
        self,
        request: Request,
        reply: HttpReply,
        body: AsyncGenerator[bytes, None],
        send: Send,
        deadline: asyncio.Timeout,
    ) -> None:
        """Send each part when it is there, which has the time of a request to be read."""
        loop, seconds = asyncio.get_running_loop(), self.server.limits.seconds
        async with contextlib.aclosing(body) as parts:
            async for part in parts:
                deadline.reschedule(loop.time() + seconds)
                if not request.status:
                    await _send(request, reply, send)
                await send({"type": "http.response.body", "body": part, "more_body": True})
                deadline.reschedule(None)
        await send({"type": "http.response.body"})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Wait until everything is stored, at the end that a server announces."""
        for kind in ("startup", "shutdown"):
            await receive()
            if kind == "shutdown":
                await self.server.close()
            await send({"type": f"lifespan.{kind}.complete"})


async def _send(request: Request, reply: HttpReply, send: Send) -> None:
    """Send the head of a reply, and its body if that is complete."""
    body = reply.body
    headers = [(key.lower().encode(), value.encode()) for key, value in reply.headers.items()]
    if isinstance(body, bytes) and reply.status != HTTPStatus.NO_CONTENT:
        headers.append((b"content-length", b"%d" % len(body)))
    request.status = int(reply.status)
    await send({"type": "http.response.start", "status": request.status, "headers": headers})
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body})


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
        found = await request.server.read(
            self._explorer.answer,
            request.scope["path"].rpartition("/")[2],
            fields,
            session=request.visitor.session,
            posted=posted,
            may_write=request.visitor.role == "write",
        )
        return HttpReply(found.body, found.status, found.headers)
