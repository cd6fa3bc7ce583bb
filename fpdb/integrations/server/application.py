"""The ASGI application: who gets in, how many at a time, and for how long."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import Message, Receive, Scope, Send

import fpdb
from fpdb.integrations.server import calls, description
from fpdb.integrations.server.access import Access, path_in
from fpdb.integrations.server.problems import ProblemError, handle, response_to
from fpdb.integrations.server.server import Limits, Server


def app(
    database: fpdb.Database,
    *,
    limits: Limits | None = None,
    access: Access | None = None,
    similarity: float | None = None,
    routes: Iterable[BaseRoute] = (),
) -> "Application":
    """Return an ASGI application that answers for a database, which stays the caller's to close.

    Texts with this `similarity` count as duplicates, by default that of the database. `routes` are
    further pages of the application.
    """
    server = Server(database, limits or Limits(), access or Access(), similarity)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await server.close()

    pages = Starlette(
        routes=[*calls.ROUTES, *description.ROUTES, *routes],
        exception_handlers={
            HTTPException: handle,
            ProblemError: handle,
            fpdb.FpdbError: handle,
        },
        lifespan=lifespan,
    )
    pages.state.server = server
    return Application(server, pages)


class Application:
    """An ASGI application: who gets in, and no more than the limits allow; all is counted."""

    def __init__(self, server: Server, pages: Starlette) -> None:
        self.server = server
        self._pages = pages
        self._inside = 0
        server.metrics.in_flight.set_function(lambda: self._inside)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._inside += 1
        try:
            await self._answer(scope, receive, note)
        except (ProblemError, fpdb.FpdbError, TimeoutError) as error:
            if status:  # half of the answer is sent: only the end of the connection says more
                raise
            await response_to(error)(scope, receive, note)
        finally:
            self._inside -= 1
            self.server.held -= scope.get("fpdb.held", 0)
            call = getattr(scope.get("endpoint"), "__name__", "none")
            self.server.metrics.count_request(call, status, time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if welcome := self.server.access.welcome(scope):
            await welcome(scope, receive, send)
            return
        visitor = self.server.access.admit(scope)
        scope.setdefault("state", {}).update(role=visitor.role, session=visitor.session)
        limits = self.server.limits
        if self._inside > limits.requests:
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"more than {limits.requests:,} requests are in flight",
                hint="send fewer at a time, or many documents in one request",
            )
        async with asyncio.timeout(limits.seconds) as deadline:
            scope["fpdb.deadline"] = deadline
            # The layers of Starlette would take a quarter of the time of these calls.
            call = calls.FREQUENT.get((scope["method"], path_in(scope)))
            if call:
                scope["app"], scope["endpoint"] = self._pages, call
                response = await call(Request(scope, receive, send))
                await response(scope, receive, send)
            else:
                await self._pages(scope, receive, send)
