"""Requests of many lines, answered in order while they come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from fpdb.integrations.server.problems import ProblemError
from fpdb.integrations.server.server import Server

_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")
# Parts of a request, as they came, whose answers aren't ready: together they fill a transaction.
_PARTS = 16
_encode_lines = msgspec.json.Encoder().encode_lines

Answers = Sequence[msgspec.Struct]
# Takes lines, None for each that is too long, and returns what their answers are awaited from.
Submit = Callable[[Sequence[bytes | None]], Awaitable[Awaitable[Answers]]]


def is_lines(request: Request) -> bool:
    """Return whether a request has lines of JSON."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() in _TYPES


class LinesResponse:
    """Reads the lines of a request, submits them, and sends their answers, each when it is ready.

    Answers that the client doesn't read yet are kept, so a client may send everything before it
    reads; the number of lines of a request bounds them.
    """

    def __init__(
        self,
        server: Server,
        submit: Submit,
        refuse: Callable[[Exception], msgspec.Struct],
    ) -> None:
        """Take what submits lines, and what makes the answer of an error."""
        self._server = server
        self._submit = submit
        self._refuse = refuse

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Answer the request."""
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        ready: asyncio.Queue[Awaitable[Answers] | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(receive, ready))
        try:
            while (awaited := await ready.get()) is not None:
                body = _encode_lines(await awaited)
                async with asyncio.timeout(self._server.limits.seconds):  # it may not be read
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await reading
            await send({"type": "http.response.body", "body": b""})
        finally:
            reading.cancel()

    async def _read(
        self, receive: Receive, ready: "asyncio.Queue[Awaitable[Answers] | None]"
    ) -> None:
        room = asyncio.Semaphore(_PARTS)
        try:
            async for lines in self._parts(receive):
                await room.acquire()
                answers = asyncio.ensure_future(await self._submit(lines))
                answers.add_done_callback(lambda _: room.release())
                ready.put_nowait(answers)
        except ProblemError as error:
            ready.put_nowait(_at_once([self._refuse(error)]))
        finally:
            ready.put_nowait(None)

    async def _parts(self, receive: Receive) -> AsyncIterator[list[bytes | None]]:
        """Yield the lines that came together, without empty ones."""
        stopping = asyncio.ensure_future(self._server.stopping.wait())
        limits = self._server.limits
        rest = bytearray()
        count = size = 0
        more = True
        try:
            while more and not self._server.stopping.is_set():
                message = await self._next(receive, stopping)
                if message is None or message["type"] == "http.disconnect":
                    return
                chunk, more = message.get("body", b""), message.get("more_body", False)
                size += len(chunk)
                *lines, last = chunk.split(b"\n")
                if lines:
                    lines[0] = bytes(rest) + lines[0]
                    rest.clear()
                rest += last
                del rest[limits.document + 1 :]  # a line that is too long stays so
                if not more:
                    lines.append(bytes(rest))
                found: list[bytes | None] = [
                    None if len(line) > limits.document else line for line in lines if line.strip()
                ]
                count += len(found)
                if count > limits.lines or size > limits.body:
                    raise ProblemError(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        f"found more than {limits.lines:,} lines or {limits.body:,} bytes in one "
                        "request",
                        hint="send the lines that have no answer in another request",
                    )
                if found:
                    yield found
        finally:
            stopping.cancel()

    async def _next(self, receive: Receive, stopping: "asyncio.Future[Any]") -> Any:
        """Return the next part of the request, or None if the server ends before it comes."""
        limits = self._server.limits
        receiving = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait(
            {receiving, stopping}, timeout=limits.seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if receiving in done:
            return receiving.result()
        receiving.cancel()
        if done:
            return None
        raise ProblemError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"nothing came for {limits.seconds:g} seconds",
            hint="end a request while there is nothing to send, and begin another one later",
        )


def _at_once(answers: Answers) -> Awaitable[Answers]:
    """Return answers that needn't be waited for."""
    future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
    future.set_result(answers)
    return future
