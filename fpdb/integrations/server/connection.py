"""Connections of HTTP/1: one parsed request each, and what comes meanwhile waits unparsed.

Everything that a connection holds is on one account with what requests hold. The parser reads heads
only, since it would parse all requests of a pipeline at once.
"""

import asyncio
import contextlib
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools

from fpdb.integrations.server.server import Scope
from fpdb.integrations.server.shares import Account

# A connection without a request is kept for as long.
_IDLE_SECONDS = 75
# What the head of a request may take, and the rest of a body that nobody wants.
_HEAD_SECONDS = 10.0
_HEAD_BYTES, _HEADERS = 1 << 16, 256
# A client that takes nothing of an answer is cut off after as long.
_TAKING_SECONDS = 30.0
# What is kept unparsed, the part of it for which there is always room, and with that part what any
# connection takes.
_UNPARSED, _LEAST, _OWN = 1 << 16, 1 << 12, 1 << 13
# Of the memory, a share that connections without requests can't fill.
_EACH = 1 << 14
# What is written at a time.
_PIECE = 1 << 16
# A parsed head takes this multiple of its size.
_HEAD_WEIGHT, _USUAL_HEAD = 4, 1 << 9
_SWEEP_SECONDS = 0.25
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")
_LONGEST_LINE = 1 << 12
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NEVER, _ENDLESS = float("inf"), 1 << 62
logger = logging.getLogger(__name__)

Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


class Connections:
    """The open connections of a server: which wait for a request, and how long each may wait.

    Of more than `most`, or than the memory is for, the oldest without a request is closed.
    """

    def __init__(self, application: Asgi, memory: Account, most: int, scheme: str) -> None:
        self.application, self.memory, self.scheme = application, memory, scheme
        self.most = max(1, min(most, memory.limit // _EACH))
        self.loop = asyncio.get_running_loop()
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}
        self.ending = False
        # All read into the same buffer: what is in it is copied at once.
        self.buffer = memoryview(bytearray(_UNPARSED))
        self.date = b""

    def enter(self, connection: "Connection") -> None:
        """Count a connection, and close the oldest without a request if there are too many."""
        self.open.add(connection)
        self.idle[connection] = None
        self.memory.hold(connection, _OWN)
        if len(self.open) > self.most:
            next(iter(self.idle)).abort()

    def leave(self, connection: "Connection") -> None:
        """Count that a connection has ended."""
        self.open.discard(connection)
        self.idle.pop(connection, None)
        self.memory.give_all(connection)

    async def accept(self, listener: socket.socket, secure: ssl.SSLContext) -> None:
        """Accept connections that begin with TLS."""
        listener.setblocking(False)  # noqa: FBT003 - it takes no name
        while True:
            try:
                opened, _ = await self.loop.sock_accept(listener)
            except OSError:  # it is gone already, or there are no descriptors for a moment
                await asyncio.sleep(_SWEEP_SECONDS)
                continue
            Connection(self).encrypt(opened, secure)

    async def sweep(self) -> None:
        """Close connections that let the server wait too long, and let others read on."""
        while True:
            self.date = formatdate(usegmt=True).encode()
            now = self.loop.time()
            for connection in list(self.open):
                connection.look(now)
            await asyncio.sleep(_SWEEP_SECONDS)

    async def end(self, seconds: float) -> None:
        """Wait until requests have their answers, at most for some seconds, and close all."""
        self.ending = True
        for connection in list(self.idle):
            connection.close()
        until = self.loop.time() + seconds
        while self.open and self.loop.time() < until:
            await asyncio.sleep(_SWEEP_SECONDS / 10)
        for connection in list(self.open):
            connection.abort()


class Connection(asyncio.BufferedProtocol):
    """A connection: what has come of the next requests, and the one that is being answered."""

    _transport: asyncio.Transport
    deadline = _NEVER

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._unparsed = bytearray()
        self._counted = self._searched = 0
        self._exchange: _Exchange | None = None
        # The rest of a body that nobody wants.
        self._unwanted: _Body | None = None
        self._taken: asyncio.Future[None] | None = None
        self._paused = self._delayed = self.lost = False
        self._handshake: asyncio.Future[Any] | None = None

    def encrypt(self, opened: socket.socket, secure: ssl.SSLContext) -> None:
        """Shake hands over a socket, in the time of a head; the connection is counted before."""
        self._all.enter(self)
        self.deadline = self._all.loop.time() + _HEAD_SECONDS
        shaking = self._all.loop.connect_accepted_socket(lambda: self, opened, ssl=secure)
        self._handshake = asyncio.ensure_future(shaking)
        self._handshake.add_done_callback(self._end_handshake)

    def _end_handshake(self, shaken: asyncio.Future[Any]) -> None:
        if shaken.cancelled() or shaken.exception():
            self._all.leave(self)

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request, in time."""
        if self not in self._all.open:
            self._all.enter(self)
        self._transport, self._handshake = transport, None
        self.deadline = self._all.loop.time() + _HEAD_SECONDS
        transport.set_write_buffer_limits(high=1, low=0)  # 0 would pause TLS for ever

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the base class
        """End what is under way: no work is done for a client that is gone."""
        self.lost = True
        self._all.leave(self)
        if self._taken and not self._taken.done():
            self._taken.set_result(None)
        if self._exchange:
            self._exchange.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - of the base class
        """Return where to read to: as much as there is room for."""
        there = len(self._unparsed)
        room = min(_UNPARSED - there, self._all.memory.free // 8)
        if room <= 0 or not self._all.memory.fits(self, room):
            # Byte by byte, hundreds of clients would keep the loop busy.
            room = _LEAST if self._all.memory.fits(self, _LEAST) else max(1, _LEAST - there)
        return self._all.buffer[:room]

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has come."""
        self._unparsed += self._all.buffer[:nbytes]
        if self._exchange:
            self._exchange.wake()
        else:
            self._advance()
        self._settle()

    def pause_writing(self) -> None:
        """Count what the client hasn't taken."""
        self._taken = self._all.loop.create_future()
        self.deadline = self._all.loop.time() + _TAKING_SECONDS
        self._settle()

    def resume_writing(self) -> None:
        """Go on, as the client has taken everything."""
        taken, self._taken = self._taken, None
        if taken and not taken.done():
            taken.set_result(None)
        if self._exchange:
            self.deadline = _NEVER
        else:
            self._await_head()
            self._advance()
        self._settle()

    def look(self, now: float) -> None:
        """End a connection whose time is over; let one that waited for memory read on."""
        if now > self.deadline:
            if self._handshake or self._taken or self._transport.is_closing():
                self.abort()
            else:
                self.close()
        elif self._paused or self._delayed:
            self._delayed = False
            self._advance()
            self._settle()

    def close(self) -> None:
        """Close, once the client has taken what is written, in time."""
        if self._handshake:
            self.abort()
            return
        self.deadline = min(self.deadline, self._all.loop.time() + _TAKING_SECONDS)
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._all.leave(self)
        if self._handshake:
            self._handshake.cancel()
        else:
            self._transport.abort()

    def take(self, body: "_Body") -> bytes:
        """Return what is there of a body, and read on."""
        part = body.take(self._unparsed)
        self._settle()
        return part

    async def write(self, data: bytes) -> None:
        """Write by pieces, each once the one before it is taken."""
        for first in range(0, len(data), _PIECE):
            if self._taken:
                await self._taken
            if self.lost:
                return
            self._transport.write(data[first : first + _PIECE] if len(data) > _PIECE else data)

    def refuse(self, status: HTTPStatus) -> None:
        """Answer what isn't HTTP, and close."""
        body = status.phrase.encode()
        head = b"content-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self._transport.write(_status_line(status) + head % len(body) + body)
        self._linger()

    def finish(self, exchange: "_Exchange") -> None:
        """Go on after a request that is answered."""
        self._exchange = None
        if self.lost:
            return
        if exchange.weight:
            self._all.memory.give(self, exchange.weight)
        self._all.idle[self] = None
        if not exchange.complete:
            self.abort()
            return
        if exchange.last or self._all.ending:
            self._linger()
            return
        self._unwanted = exchange.body
        # Who is refused can't keep the server busy with what it sends next.
        self._delayed = exchange.status == HTTPStatus.UNAUTHORIZED
        if not self._taken:
            self._await_head()
            self._advance()
        self._settle()

    def _linger(self) -> None:
        """Close once the client does, or soon: one that still sends would lose the answer."""
        if not self._transport.can_write_eof() or self._all.ending:
            self.close()
            return
        self._transport.write_eof()
        self._unwanted = _Body(_ENDLESS)
        seconds = _TAKING_SECONDS if self._taken else _HEAD_SECONDS
        self.deadline = self._all.loop.time() + seconds
        self._advance()
        self._settle()

    def _await_head(self) -> None:
        self._unwanted = None if self._unwanted and self._unwanted.ended else self._unwanted
        waiting = self._unparsed or self._unwanted
        self.deadline = self._all.loop.time() + (_HEAD_SECONDS if waiting else _IDLE_SECONDS)

    def _settle(self) -> None:
        """Count what is held, and read only while there is room."""
        if self.lost or self._transport.is_closing():
            return
        there, memory = len(self._unparsed), self._all.memory
        held = there - _LEAST if there > _LEAST else 0
        # What a request sends, it holds itself until it has ended.
        if self._taken and not self._exchange:
            held += self._transport.get_write_buffer_size()
        if held > self._counted:
            memory.hold(self, held - self._counted)
        elif held < self._counted:
            memory.give(self, self._counted - held)
        self._counted = held
        full = there >= _LEAST and (there >= _UNPARSED or not memory.fits(self, _LEAST))
        if full != self._paused:
            self._paused = full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _advance(self) -> None:
        """Begin the next request, if its head is there and the last answer is taken."""
        if self._exchange or self._taken or self._delayed:
            return
        if self.lost or self._transport.is_closing():
            return
        if self._unwanted:
            try:
                self._unwanted.take(self._unparsed)
            except ValueError:
                self.close()
                return
            if not self._unwanted.ended:
                return
            self._await_head()
        data = self._unparsed
        while data[:2] == b"\r\n":
            del data[:2]
        if not data:
            return
        self.deadline = min(self.deadline, self._all.loop.time() + _HEAD_SECONDS)
        end = data.find(b"\r\n\r\n", max(0, self._searched - 3))
        self._searched = len(data) if end < 0 else 0
        if end >= 0:
            head = bytes(data[: end + 4])
            del data[: end + 4]
            self._begin(head)
        elif not data[:1].isalpha():
            self.refuse(HTTPStatus.BAD_REQUEST)
        elif len(data) >= _HEAD_BYTES:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _begin(self, head: bytes) -> None:
        """Answer a request."""
        if head.count(b"\n") > _HEADERS:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return
        try:
            exchange = _Exchange(self, head, self._all.date)
        except (ValueError, httptools.HttpParserError):
            self.refuse(HTTPStatus.BAD_REQUEST)
            return
        if exchange.weight:
            self._all.memory.hold(self, exchange.weight)
        self._all.idle.pop(self, None)
        self.deadline = _NEVER
        peer = self._transport.get_extra_info("peername")
        exchange.scope["client"] = (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None
        exchange.scope["scheme"] = self._all.scheme
        exchange.last |= self._all.ending
        self._exchange = exchange
        exchange.task = self._all.loop.create_task(exchange.run(self._all.application))


class _ParsedHead:
    """What the parser finds in a head."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.messages = 0
        self.complete = False

    def on_message_begin(self) -> None:
        self.messages += 1

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.complete = True


class _Body:
    """Takes the body of a request out of what has come: of a known length, or in chunks."""

    def __init__(self, length: int | None) -> None:
        self.ended = length == 0
        self._left = length or 0
        self._chunked = length is None
        self._after_chunk = self._trailer = False

    def take(self, data: bytearray) -> bytes:
        """Remove what is there of the body, and return it; raise ValueError if it isn't one."""
        parts: list[bytes] = []
        while data and not self.ended:
            if self._left:
                part = bytes(data[: self._left])
                del data[: len(part)]
                self._left -= len(part)
                parts.append(part)
                self.ended = not self._chunked and not self._left
                self._after_chunk = not self._left
                continue
            end = data.find(b"\r\n")
            if end < 0:
                if len(data) > _LONGEST_LINE:
                    raise ValueError("a line of a chunk is too long")
                break
            line = bytes(data[:end])
            del data[: end + 2]
            self._take_line(line)
        return b"".join(parts)

    def _take_line(self, line: bytes) -> None:
        if self._after_chunk:
            if line:
                raise ValueError("a chunk is longer than it says")
            self._after_chunk = False
        elif self._trailer:
            self.ended = not line
        elif found := _CHUNK.fullmatch(line):
            self._left = int(found[1], 16)
            self._trailer = not self._left
        else:
            raise ValueError("a chunk has no size")


class _Exchange:
    """A request and its reply, as ASGI has them."""

    task: asyncio.Task[None]

    def __init__(self, connection: Connection, head: bytes, date: bytes) -> None:
        found = _ParsedHead()
        parser = httptools.HttpRequestParser(found)
        with contextlib.suppress(httptools.HttpParserUpgrade):  # it is answered as HTTP/1.1
            parser.feed_data(head)
        version = parser.get_http_version()
        if not found.complete or found.messages != 1 or version not in {"1.0", "1.1"}:
            raise ValueError("found no head of HTTP/1")
        url = httptools.parse_url(found.url)
        headers = dict(found.headers)
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "method": parser.get_method().decode("ascii"),
            "path": unquote((url.path or b"/").decode("ascii")),
            "raw_path": url.path or b"/",
            "query_string": url.query or b"",
            "root_path": "",
            "headers": found.headers,
            "server": None,
        }
        options = headers.get(b"connection", b"").lower()
        self._old = version == "1.0"
        # Whether the connection ends with it.
        self.last = b"keep-alive" not in options if self._old else b"close" in options
        # Until it is read.
        self.body: _Body | None = _body_of(headers)
        self.complete, self.status = False, 0
        # A usual head is part of what any connection takes.
        self.weight = _HEAD_WEIGHT * len(head) if len(head) > _USUAL_HEAD else 0
        self._connection, self._date = connection, date
        self._expected = headers.get(b"expect", b"").lower() == b"100-continue" and not self._old
        self._came: asyncio.Future[None] | None = None
        self._start: Scope | None = None
        self._begun = self._chunked = False

    async def run(self, application: Asgi) -> None:
        """Let the application answer."""
        try:
            await application(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self.last = True
        except Exception:
            logger.exception("a request couldn't be answered")
            self.last = True
            if not self._begun and not self._connection.lost:
                self._connection.refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
                self.complete = True
        finally:
            self._connection.finish(self)

    def cancel(self) -> None:
        """End the work for a client that is gone."""
        self.wake()
        self.task.cancel()

    def wake(self) -> None:
        """Go on, as more has come, or nothing more will."""
        if self._came and not self._came.done():
            self._came.set_result(None)

    async def receive(self) -> Scope:
        """Return the next part of the body, or that the client is gone or has its answer."""
        while not self._connection.lost and not self.complete:
            if self.body is not None:
                try:
                    part = self._connection.take(self.body)
                except ValueError:
                    self.last = True  # nobody knows where the next request begins
                    break
                more = not self.body.ended
                if part or not more:
                    self.body = self.body if more else None
                    return {"type": "http.request", "body": part, "more_body": more}
                if self._expected:
                    self._expected = False
                    await self._connection.write(_CONTINUE)
            self._came = asyncio.get_running_loop().create_future()
            await self._came
        return {"type": "http.disconnect"}

    async def send(self, message: Scope) -> None:
        """Write a part of the reply; its head is written with the first one."""
        if self.complete or self._connection.lost:
            return
        if message["type"] == "http.response.start":
            self._start, self.status = message, message["status"]
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        parts = [] if self._begun else [self._head()]
        self._begun = True
        if self.scope["method"] != "HEAD":
            if self._chunked and body:
                parts += [b"%x\r\n" % len(body), body, b"\r\n"]
            elif body:
                parts.append(body)
            if self._chunked and not more:
                parts.append(b"0\r\n\r\n")
        await self._connection.write(b"".join(parts))
        self.complete = not more

    def _head(self) -> bytes:
        """Return the head of the reply."""
        start = self._start
        if start is None:
            raise RuntimeError("the application sent a body before the status")
        status, headers = start["status"], start.get("headers", ())
        lines = [_status_line(status), b"date: ", self._date, b"\r\n"]
        sized = status == HTTPStatus.NO_CONTENT
        for name, value in headers:
            sized = sized or name == b"content-length"
            lines += [name, b": ", value, b"\r\n"]
        if not sized:
            self._chunked = not self._old
            self.last |= self._old
            if self._chunked:
                lines.append(b"transfer-encoding: chunked\r\n")
        # A client that waits for "100 Continue" may never send the body.
        self.last |= self._expected
        if self.last:
            lines.append(b"connection: close\r\n")
        elif self._old:
            lines.append(b"connection: keep-alive\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)


def _body_of(headers: dict[bytes, bytes]) -> _Body:
    """Return what takes the body; the parser has refused two lengths, and one beside chunks."""
    if (encoding := headers.get(b"transfer-encoding")) is None:
        return _Body(int(headers.get(b"content-length", b"0")))
    if encoding.lower() != b"chunked":
        raise ValueError("found a transfer coding that isn't chunked alone")
    return _Body(None)


@cache
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\n".encode()
