"""Requests of many lines, answered in order while they come."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from http import HTTPStatus

import msgspec

from fpdb.integrations.server.application import Request, Scope
from fpdb.integrations.server.messages import HttpReply, ProblemError

LINES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
# Lines that are taken together, and the most such batches that are begun and not answered.
_TOGETHER, _BEGUN = 500, 2
# Reading pauses while more bytes of lines than this aren't taken yet.
_AHEAD = 1 << 20
# While at least `_CLOSE` bytes of lines come together, `_ENOUGH` of them are waited for, until
# nothing comes for a pause: a transaction costs as much as some dozens of lines.
_CLOSE, _ENOUGH, _PAUSE = 1 << 13, 1 << 19, 0.005
encode_lines = msgspec.json.Encoder().encode_lines

# Answers lines: the first that it yields is nothing, once it has begun with all of them.
Submit = Callable[[Request, Sequence[bytearray]], AsyncGenerator[bytes, None]]
# Returns the last line of an answer, for an error of the request.
Refuse = Callable[[Exception], msgspec.Struct]


def media_type(request: Request) -> bytes:
    """Return the type of the body, without its charset."""
    return request.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


def lines_reply(request: Request, submit: Submit, refuse: Refuse) -> HttpReply:
    """Return the reply to lines that are submitted while they come, each answered when it is ready.

    No more is read while the client doesn't take answers. After the first ones, an error of the
    request is a last line.
    """
    answers = _answers(request, submit, refuse)
    return HttpReply(answers, headers={"Content-Type": "application/x-ndjson"})


async def _answers(request: Request, submit: Submit, refuse: Refuse) -> AsyncGenerator[bytes, None]:
    coming = _Coming(request)
    begun: deque[tuple[int, AsyncGenerator[bytes, None]]] = deque()
    try:
        while lines := await coming.take():
            begun.append((sum(map(len, lines)), submit(request, lines)))
            await anext(begun[-1][1])
            while begun and (len(begun) >= _BEGUN or not coming.lines):
                size, answers = begun.popleft()
                async for answer in answers:
                    yield answer
                    if coming.is_gone:
                        return
                request.hold(-size)
        if coming.error:
            if not (request.status and isinstance(coming.error, ProblemError)):
                raise coming.error
            yield encode_lines([refuse(coming.error)])
        yield b""
    finally:
        coming.reading.cancel()


class _Coming:
    """The lines of a request that have come and aren't taken."""

    def __init__(self, request: Request) -> None:
        self.lines: list[bytearray] = []
        # Why no more lines are read, if that isn't their end; and whether the client has gone.
        self.error: Exception | None = None
        self.is_gone = False
        self._size = self._last = 0
        self._ended = False
        self._changed = asyncio.Event()
        self.reading = asyncio.create_task(self._read(request))
        request.application.reading.add(self.reading)
        self.reading.add_done_callback(request.application.reading.discard)

    async def take(self) -> list[bytearray]:
        """Return the next lines once there are any, or none after their end."""
        while not self.lines and not self._ended:
            await self._change()
        with contextlib.suppress(TimeoutError):
            while self._last >= _CLOSE and self._size < _ENOUGH and not self._ended:
                async with asyncio.timeout(_PAUSE):
                    await self._change()
        taken = self.lines[:_TOGETHER]
        del self.lines[:_TOGETHER]
        self._size -= sum(map(len, taken))
        self._changed.set()
        return taken

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _read(self, request: Request) -> None:
        try:
            async for lines in _parts(request):
                self.lines += lines
                self._last = sum(map(len, lines))
                self._size += self._last
                self._changed.set()
                while self._size > _AHEAD:
                    await self._change()
        except asyncio.CancelledError:
            self.error = _end_of_server()
        except Exception as error:
            self.error = error
        finally:
            self._ended = True
            self._changed.set()
        if self.error is None:
            await request.receive()  # after the body, it returns when the client is gone
            self.is_gone = True


async def _parts(request: Request) -> AsyncIterator[list[bytearray]]:
    """Yield the lines that came together, without empty ones; of one that is too long the start."""
    limits = request.application.limits
    if request.application.stopping:
        raise _end_of_server()
    unfinished = bytearray()
    count = size = 0
    deadline = time.monotonic() + limits.seconds
    more = True
    while more and (message := await _next(request, deadline)):
        chunk, more = message.get("body", b""), message.get("more_body", False)
        before = len(unfinished)
        unfinished += chunk
        lines: list[bytearray] = []
        if b"\n" in chunk:
            *lines, unfinished = unfinished.split(b"\n")
        del unfinished[limits.document + 1 :]
        if not more:
            lines.append(unfinished)
            unfinished = bytearray()
        lines = [line for line in lines if line.strip()]
        count += len(lines)
        size += len(chunk)
        if count > limits.lines or size > limits.body:
            raise ProblemError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"found more than {limits.lines:,} lines or {limits.body:,} bytes in one request",
                hint="send the lines that have no answer in another request",
            )
        request.hold(sum(map(len, lines)) + len(unfinished) - before)
        if lines:
            yield lines
            deadline = time.monotonic() + limits.seconds


async def _next(request: Request, deadline: float) -> Scope | None:
    """Return the next part of a request, or None if the client is gone before."""
    try:
        async with asyncio.timeout_at(deadline):
            message = await request.receive()
    except TimeoutError:
        raise ProblemError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"no line was complete for {request.application.limits.seconds:g} seconds",
            hint="end a request while there is nothing to send, and begin another one later",
        ) from None
    return None if message["type"] == "http.disconnect" else message


def _end_of_server() -> ProblemError:
    hint = "send again what has no answer"
    return ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, "the server has ended", hint=hint)
