"""Requests of many lines, answered in order while they come."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from fpdb.integrations.server.replies import HttpReply, ProblemError
from fpdb.integrations.server.server import Request, Scope

_TYPES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
# Lines that are taken together.
_TOGETHER = 500
# What a line takes until it is answered: a multiple of its size, and what each is made into.
_WEIGHT, _LINE = 5, 1 << 10
# A server that ends reads what a client still sends: until nothing comes for as long, at most this.
_QUIET_SECONDS, _MOST_SECONDS = 1.0, 10.0
_encode_lines = msgspec.json.Encoder().encode_lines

# Takes lines, and yields what their answers are awaited from; the request holds these answers.
Submit = Callable[[Request, Sequence[bytearray]], AsyncIterator[Awaitable[bytes]]]
Refuse = Callable[[Exception], msgspec.Struct]
Ready = asyncio.Queue[asyncio.Future[bytes] | None]


def is_lines(request: Request) -> bool:
    """Return whether a request has lines of JSON."""
    kind = request.headers.get(b"content-type", b"")
    return kind.partition(b";")[0].strip().lower() in _TYPES


def lines_reply(request: Request, submit: Submit, refuse: Refuse) -> HttpReply:
    """Return the reply to lines that are submitted while they come, each answered when it is ready.

    Answers that the client doesn't read yet are held, as long as the request may hold more. The
    status comes with the first answers; an error of the request after them is a last line.
    """
    return HttpReply(
        _answers(request, submit, refuse), headers={"Content-Type": "application/x-ndjson"}
    )


async def _answers(request: Request, submit: Submit, refuse: Refuse) -> AsyncGenerator[bytes, None]:
    ready: Ready = asyncio.Queue()
    reading = asyncio.create_task(_read(request, ready, submit, refuse))
    try:
        while (awaited := await ready.get()) is not None:
            answers = await awaited
            yield answers
            request.release(len(answers))
        await reading
        yield b""
    finally:
        reading.cancel()
        while not ready.empty():
            if (unwanted := ready.get_nowait()) is not None:
                unwanted.cancel()


async def _read(request: Request, ready: Ready, submit: Submit, refuse: Refuse) -> None:
    begun = False
    try:
        async for lines in _parts(request):
            begun = True
            for first in range(0, len(lines), _TOGETHER):
                some = lines[first : first + _TOGETHER]
                weight = sum(_WEIGHT * len(line) + _LINE for line in some)
                await _hold(request, weight)
                async for awaited in submit(request, some):
                    answers = asyncio.ensure_future(awaited)
                    ready.put_nowait(answers)
                answers.add_done_callback(partial(_release, request, weight))
    except ProblemError as error:
        if not begun:
            raise
        last: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        last.set_result(encoded(request, [refuse(error)]))
        ready.put_nowait(last)
    finally:
        ready.put_nowait(None)


async def _hold(request: Request, size: int) -> None:
    """Hold more bytes; raise ProblemError if there is no room for them for too long."""
    try:
        async with asyncio.timeout(request.server.limits.seconds):
            await request.hold(size)
    except TimeoutError:
        raise request.server.memory.refusal() from None


def _release(request: Request, size: int, _: asyncio.Future[bytes]) -> None:
    request.release(size)


def encoded(request: Request, answers: Sequence[msgspec.Struct]) -> bytes:
    """Return answers as lines, which the request holds from then on."""
    written = _encode_lines(answers)
    request.server.memory.hold(request, len(written))
    return written


async def _parts(request: Request) -> AsyncIterator[list[bytearray]]:
    """Yield the lines that came together, without empty ones; of one that is too long the start."""
    limits = request.server.limits
    ending = request.server.stopping
    stopping: asyncio.Future[Any] = asyncio.ensure_future(ending.wait())
    rest = bytearray()
    count = size = held = 0
    left = limits.seconds
    more = True
    try:
        while more and not ending.is_set():
            came = asyncio.get_running_loop().time()
            if (message := await _next(request, stopping, left)) is None:
                break
            chunk, more = message.get("body", b""), message.get("more_body", False)
            rest += chunk
            lines: list[bytearray] = []
            if b"\n" in chunk:
                *lines, rest = rest.split(b"\n")
            del rest[limits.document + 1 :]
            if not more:
                lines.append(rest)
                rest = bytearray()
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
            if len(rest) < held:
                request.release(held - len(rest))
                held = len(rest)
            if lines:
                yield lines
                left = limits.seconds
            else:
                left -= asyncio.get_running_loop().time() - came
            if len(rest) > held:
                await _hold(request, len(rest) - held)
                held = len(rest)
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


async def _next(request: Request, stopping: asyncio.Future[Any], seconds: float) -> Scope | None:
    """Return the next part of a request, or None if the server or the client ends before it."""
    receiving: asyncio.Future[Any] = asyncio.ensure_future(request.receive())
    done, _ = await asyncio.wait(
        {receiving, stopping}, timeout=max(0, seconds), return_when=asyncio.FIRST_COMPLETED
    )
    if receiving in done:
        message: Scope = receiving.result()
        return None if message["type"] == "http.disconnect" else message
    receiving.cancel()
    if not done:
        raise ProblemError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"no line was complete for {request.server.limits.seconds:g} seconds",
            hint="end a request while there is nothing to send, and begin another one later",
        )
    return None
