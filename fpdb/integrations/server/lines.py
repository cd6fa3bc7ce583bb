"""Requests of many lines, answered in order while they come."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from fpdb.integrations.server.replies import HttpReply, ProblemError
from fpdb.integrations.server.server import Request, Scope

_TYPES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
# Parts of a request, as they came, whose answers aren't ready: together they fill a transaction.
_PARTS = 16
# A server that ends reads what a client still sends: until nothing comes for as long, at most this.
_QUIET_SECONDS, _MOST_SECONDS = 1.0, 10.0
_encode_lines = msgspec.json.Encoder().encode_lines

Answers = Sequence[msgspec.Struct]
# Takes lines, and returns what their answers are awaited from.
Submit = Callable[[Sequence[bytearray]], Awaitable[Awaitable[Answers]]]
Refuse = Callable[[Exception], msgspec.Struct]
Ready = asyncio.Queue[Awaitable[Answers] | None]


def is_lines(request: Request) -> bool:
    """Return whether a request has lines of JSON."""
    kind = request.headers.get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower() in _TYPES


def lines_reply(request: Request, submit: Submit, refuse: Refuse) -> HttpReply:
    """Return the reply to lines that are submitted while they come, each answered when it is ready.

    Answers that the client doesn't read yet are kept, so a client may send everything before it
    reads; the number of lines of a request bounds them. The status comes with the first answers; an
    error of the request after them is a last line.
    """
    return HttpReply(
        _answers(request, submit, refuse), headers={"Content-Type": "application/x-ndjson"}
    )


async def _answers(request: Request, submit: Submit, refuse: Refuse) -> AsyncGenerator[bytes, None]:
    ready: Ready = asyncio.Queue()
    reading = asyncio.create_task(_read(request, ready, submit, refuse))
    try:
        while (awaited := await ready.get()) is not None:
            yield _encode_lines(await awaited)
        await reading
        yield b""
    finally:
        reading.cancel()


async def _read(request: Request, ready: Ready, submit: Submit, refuse: Refuse) -> None:
    room = asyncio.Semaphore(_PARTS)
    begun = False
    try:
        async for lines in _parts(request):
            begun = True
            await room.acquire()
            answers = asyncio.ensure_future(await submit(lines))
            answers.add_done_callback(lambda _: room.release())
            ready.put_nowait(answers)
    except ProblemError as error:
        if not begun:
            raise
        last: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        last.set_result([refuse(error)])
        ready.put_nowait(last)
    finally:
        ready.put_nowait(None)


async def _parts(request: Request) -> AsyncIterator[list[bytearray]]:
    """Yield the lines that came together, without empty ones; of one that is too long the start."""
    limits = request.server.limits
    ending = request.server.stopping
    stopping: asyncio.Future[Any] = asyncio.ensure_future(ending.wait())
    rest = bytearray()
    count = size = 0
    more = True
    try:
        while more and not ending.is_set() and (message := await _next(request, stopping)):
            chunk, more = message.get("body", b""), message.get("more_body", False)
            rest += chunk
            lines: list[bytearray] = []
            if b"\n" in chunk:
                *lines, rest = rest.split(b"\n")
            del rest[limits.document + 1 :]
            if not more:
                lines.append(rest)
            lines = [line for line in lines if line.strip()]
            count += len(lines)
            size += len(chunk)
            if count > limits.lines or size > limits.body:
                raise ProblemError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    f"found more than {limits.lines:,} lines or {limits.body:,} bytes in one "
                    "request",
                    hint="send the lines that have no answer in another request",
                )
            if lines:
                yield lines
        if more and ending.is_set():
            await _drop_rest(request)
            raise ProblemError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the server has ended",
                hint="send again what has no answer",
            )
    finally:
        stopping.cancel()


async def _drop_rest(request: Request) -> None:
    """Read what still comes: a client that is cut off while it sends would lose its answers."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _MOST_SECONDS
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_QUIET_SECONDS) as quiet:
            while (await request.receive()).get("more_body") and loop.time() < end:
                quiet.reschedule(loop.time() + _QUIET_SECONDS)


async def _next(request: Request, stopping: asyncio.Future[Any]) -> Scope | None:
    """Return the next part of a request, or None if the server or the client ends before it."""
    seconds = request.server.limits.seconds
    receiving: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
    done, _ = await asyncio.wait(
        {receiving, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
    )
    if receiving in done:
        message: Scope = receiving.result()
        return None if message["type"] == "http.disconnect" else message
    receiving.cancel()
    if not done:
        raise ProblemError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"nothing came for {seconds:g} seconds",
            hint="end a request while there is nothing to send, and begin another one later",
        )
    return None
