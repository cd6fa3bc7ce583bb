"""Requests of many lines, answered in order while they come."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from http import HTTPStatus

import msgspec

from fpdb.integrations.server.application import WEIGHT, Request, Scope
from fpdb.integrations.server.messages import HttpReply, ProblemError

_TYPES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
# Lines that are taken together, and what each is made into takes until it is answered.
_TOGETHER, _LINE = 500, 1 << 10
_encode_lines = msgspec.json.Encoder().encode_lines

# Takes lines, and yields what their answers are awaited from; the request holds these answers.
Submit = Callable[[Request, Sequence[bytearray]], AsyncIterator[Awaitable[bytes]]]
Refuse = Callable[[Exception], msgspec.Struct]
Ready = asyncio.Queue["asyncio.Future[bytes] | None"]


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
                weight = sum(WEIGHT * len(line) + _LINE for line in some)
                await _hold(request, weight)
                async for awaited in submit(request, some):
                    answers = asyncio.ensure_future(awaited)
                    ready.put_nowait(answers)
                answers.add_done_callback(partial(_release, request, weight))
    except ProblemError as error:
        if not begun:
            raise
        ready.put_nowait(asyncio.ensure_future(at_once(encoded(request, [refuse(error)]))))
    finally:
        ready.put_nowait(None)


async def at_once(answers: bytes) -> bytes:
    """Return answers that are there already to those who await them."""
    return answers


async def _hold(request: Request, size: int) -> None:
    """Hold more bytes; raise ProblemError if there is no room for them for too long."""
    try:
        async with asyncio.timeout(request.application.limits.seconds):
            await request.hold(size)
    except TimeoutError:
        raise request.application.memory.refusal() from None


def _release(request: Request, size: int, _: asyncio.Future[bytes]) -> None:
    request.release(size)


def encoded(request: Request, answers: Sequence[msgspec.Struct]) -> bytes:
    """Return answers as lines, which the request holds from then on."""
    written = _encode_lines(answers)
    request.application.memory.hold(request, len(written))
    return written


async def _parts(request: Request) -> AsyncIterator[list[bytearray]]:
    """Yield the lines that came together, without empty ones; of one that is too long the start."""
    limits, loop = request.application.limits, asyncio.get_running_loop()
    rest = bytearray()
    count = size = held = 0
    deadline = loop.time() + limits.seconds
    more = True
    while more and (message := await _next(request, deadline)):
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
                f"found more than {limits.lines:,} lines or {limits.body:,} bytes in one request",
                hint="send the lines that have no answer in another request",
            )
        request.release(max(0, held - len(rest)))
        held = min(held, len(rest))
        if lines:
            yield lines
            deadline = loop.time() + limits.seconds
        await _hold(request, len(rest) - held)
        held = len(rest)


async def _next(request: Request, deadline: float) -> Scope | None:
    """Return the next part of a request, or None if the client is gone before."""
    application, message = request.application, None
    waiting = asyncio.timeout_at(deadline)
    application.waiting.add(waiting)
    try:
        async with waiting:
            if not application.stopping:
                message = await request.receive()
    except TimeoutError:
        pass
    finally:
        application.waiting.discard(waiting)
    if message is not None:
        return None if message["type"] == "http.disconnect" else message
    if application.stopping:
        raise ProblemError(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "the server has ended",
            hint="send again what has no answer",
        )
    raise ProblemError(
        HTTPStatus.REQUEST_TIMEOUT,
        f"no line was complete for {application.limits.seconds:g} seconds",
        hint="end a request while there is nothing to send, and begin another one later",
    )
