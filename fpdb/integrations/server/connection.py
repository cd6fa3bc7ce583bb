"""Connections of HTTP/1: one parsed request each, and what comes meanwhile waits unparsed.

Everything that a connection holds is on one account with what requests hold. The parser reads heads
and bodies in chunks only, since it would parse all requests of a pipeline at once.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import httptools

from fpdb.integrations.server.application import Scope
from fpdb.integrations.server.shares import Account

# A connection without a request is kept for as long.
_IDLE_SECONDS = 75
# What the head of a request may take, and a client that still sends after its answer.
_HEAD_SECONDS = 10.0
_HEAD_BYTES, _HEADERS = 1 << 16, 256
# A client that takes nothing of an answer is cut off after as long.
_TAKING_SECONDS = 30.0
# What is kept unparsed, the part of it for which there is always room, and with that part what any
# connection takes.
_UNPARSED, _LEAST, _OWN = 1 << 16, 1 << 12, 1 << 13
# Of the memory, a share that connections without requests can't fill.
_EACH = 1 << 14
# What is written at a time, and what isn't joined with a head: it would be held twice meanwhile.
_PIECE, _LARGE = 1 << 16, 1 << 20
# A parsed head takes this multiple of its size.
_HEAD_WEIGHT, _USUAL_HEAD = 4, 1 << 9
_SWEEP_SECONDS = 0.25
# As many connections are accepted before others are answered.
_ACCEPTED = 128
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NEVER = float("inf")
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

    def leave(self, connection: "Connection") -> None:
        """Count that a connection has ended."""
        self.open.discard(connection)
        self.idle.pop(connection, None)
        self.memory.give_all(connection)

    async def accept(self, listener: socket.socket, secure: ssl.SSLContext | None = None) -> None:
        """Accept connections, which count before they have shaken hands for TLS."""
        listener.setblocking(False)  # noqa: FBT003 - it takes no name
        while True:
            try:
                opened, _ = await self.loop.sock_accept(listener)
                self._begin(opened, secure)
                # Others that have come don't wait for the answers of one turn of the loop each.
                for _ in range(_ACCEPTED):
                    opened, _ = listener.accept()
                    self._begin(opened, secure)
            except BlockingIOError:
                pass
            except OSError:  # it is gone already, or there are no descriptors for a moment
                await asyncio.sleep(_SWEEP_SECONDS)

    def _begin(self, opened: socket.socket, secure: ssl.SSLContext | None) -> None:
        """Count a connection, and connect to it."""
        connection = Connection(self)
        self.open.add(connection)
        self.idle[connection] = None
        self.memory.hold(connection, _OWN)
        connection.begin(opened, secure)
        if len(self.open) > self.most:
            next(iter(self.idle)).abort()

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
        for connection in [each for each in self.idle if not each.closing]:
            connection.abort()
        until = self.loop.time() + seconds
        while self.open and self.loop.time() < until:
            await asyncio.sleep(_SWEEP_SECONDS / 10)
        for connection in list(self.open):
            connection.abort()


class Connection(asyncio.BufferedProtocol):
    """A connection: what has come of the next requests, and the one that is being answered."""

    _transport: asyncio.Transport

    def __init__(self, connections: Connections) -> None:
        self._all = connections
        self._unparsed = bytearray()
        self._counted = self._searched = 0
        self._exchange: _Exchange | None = None
        self._taken: asyncio.Future[None] | None = None
        self._paused = self.closing = self.lost = False
        self.deadline = connections.loop.time() + _HEAD_SECONDS

    def begin(self, opened: socket.socket, secure: ssl.SSLContext | None) -> None:
        """Connect to a socket that was accepted."""
        connecting = self._all.loop.connect_accepted_socket(lambda: self, opened, ssl=secure)
        self._connecting = asyncio.ensure_future(connecting)

        def end(connected: asyncio.Future[Any]) -> None:
            if connected.cancelled() or connected.exception():
                opened.close()
                self._all.leave(self)

        self._connecting.add_done_callback(end)

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        self._transport = transport
        transport.set_write_buffer_limits(high=1, low=0)  # 0 would pause TLS for ever

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of the base class
        """End what is under way: no work is done for a client that is gone."""
        self.lost = self.closing = True
        self._all.leave(self)
        if self._taken and not self._taken.done():
            self._taken.set_result(None)
        if self._exchange:
            self._exchange.wake()
            self._exchange.task.cancel()

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
        if self.closing:
            return
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
        self._settle()

    def look(self, now: float) -> None:
        """End a connection whose time is over; let one that waited for memory read on."""
        if now > self.deadline:
            self.abort()
        elif self._paused:
            self._settle()

    def close(self) -> None:
        """Close once the client does, or soon: one that still sends would lose the answer."""
        self.closing = True
        self._unparsed.clear()
        self._settle()
        seconds = _TAKING_SECONDS if self._taken else _HEAD_SECONDS
        self.deadline = self._all.loop.time() + seconds
        if self._transport.can_write_eof():
            self._transport.write_eof()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self.closing = True
        self._all.leave(self)
        if self._connecting.done():
            self._transport.abort()
        else:
            self._connecting.cancel()

    def take(self, exchange: "_Exchange") -> bytes:
        """Return what is there of a body, and read on."""
        part = exchange.take(self._unparsed)
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
        self.close()

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
        elif exchange.last or not exchange.ended or self._all.ending:
            self.close()
        elif not self._taken:
            self._await_head()
        self._settle()

    def _await_head(self) -> None:
        self.deadline = self._all.loop.time() + _IDLE_SECONDS
        self._advance()

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
        if self._exchange or self._taken or self.closing:
            return
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
        peer = self._transport.get_extra_info("peername")
        try:
            self._exchange = exchange = _Exchange(self, self._all, head, peer)
        except (ValueError, httptools.HttpParserError):
            self.refuse(HTTPStatus.BAD_REQUEST)
            return
        if exchange.weight:
            self._all.memory.hold(self, exchange.weight)
        self._all.idle.pop(self, None)
        self.deadline = _NEVER
        exchange.task = self._all.loop.create_task(exchange.run())


class _Exchange:
    """A request and its reply, as ASGI has them."""

    task: asyncio.Task[None]

    def __init__(self, connection: Connection, everything: Connections, head: bytes, peer: Any):
        self._connection, self._all = connection, everything
        self._url, self._headers, self._head_complete = b"", list[tuple[bytes, bytes]](), False
        # Whether all of the body has come, and whether the application has it.
        self.ended = self._read = False
        self._parts: list[bytes] = []
        parser = httptools.HttpRequestParser(self)
        with contextlib.suppress(httptools.HttpParserUpgrade):  # it is answered as HTTP/1.1
            parser.feed_data(head)
        version = parser.get_http_version()
        if not self._head_complete or version not in {"1.0", "1.1"}:
            raise ValueError("found no head of HTTP/1")
        url = httptools.parse_url(self._url)
        self.scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "scheme": everything.scheme,
            "method": parser.get_method().decode("ascii"),
            "path": unquote((url.path or b"/").decode("ascii")),
            "raw_path": url.path or b"/",
            "query_string": url.query or b"",
            "root_path": "",
            "headers": self._headers,
            "server": None,
            "client": (str(peer[0]), int(peer[1])) if isinstance(peer, tuple) else None,
        }
        headers = dict(self._headers)
        # The parser has refused two lengths, and one beside chunks.
        coding = headers.get(b"transfer-encoding", b"").lower()
        if coding not in {b"", b"chunked"}:
            raise ValueError("found a transfer coding that isn't chunked alone")
        # Of a body that has a length, the bytes that are to come.
        self._left = int(headers.get(b"content-length", 0))
        self.ended = not coding and not self._left
        # It refers to this, so that it is kept only as long as it must.
        self._parser = parser if coding else None
        self._old = version == "1.0"
        # Whether the connection ends with it.
        self.last = self._old or b"close" in headers.get(b"connection", b"").lower()
        self.complete, self.status = False, 0
        # A usual head is part of what any connection takes.
        self.weight = _HEAD_WEIGHT * len(head) if len(head) > _USUAL_HEAD else 0
        self._expected = headers.get(b"expect", b"").lower() == b"100-continue" and not self._old
        self._came: asyncio.Future[None] | None = None
        self._start: Scope | None = None
        self._begun = self._chunked = False

    # The parser calls these; the last two for a body in chunks.

    def on_message_begin(self) -> None:
        if self._url:
            raise ValueError("found a second request")

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_complete = True

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        self.ended = True

    def take(self, data: bytearray) -> bytes:
        """Remove and return what has come of the body; raise ValueError if it is no body."""
        if self._parser is None:
            part = bytes(data[: self._left])
            del data[: len(part)]
            self._left -= len(part)
            self.ended = not self._left
            return part
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            if not self.ended:
                raise ValueError("found no body in chunks") from None
            self.last = True  # what comes after it isn't read
        data.clear()
        part = b"".join(self._parts)
        self._parts.clear()
        return part

    async def run(self) -> None:
        """Let the application answer."""
        try:
            await self._all.application(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            self.last = True
        except Exception:
            logger.exception("a request couldn't be answered")
            self.last = True
            if not self._begun and not self._connection.lost:
                self._connection.refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
                self.complete = True
        finally:
            self._parser = None
            self._connection.finish(self)

    def wake(self) -> None:
        """Go on, as more has come, or nothing more will."""
        if self._came and not self._came.done():
            self._came.set_result(None)

    async def receive(self) -> Scope:
        """Return the next part of the body, or that the client is gone or has its answer."""
        while not self._connection.lost and not self.complete:
            if not self._read:
                try:
                    part = self._connection.take(self)
                except ValueError:
                    self.last = True  # nobody knows where the next request begins
                    break
                if part or self.ended:
                    self._read = self.ended
                    return {"type": "http.request", "body": part, "more_body": not self.ended}
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
        for data in parts if len(body) > _LARGE else [b"".join(parts)]:
            await self._connection.write(data)
        self.complete = not more

    def _head(self) -> bytes:
        """Return the head of the reply."""
        if self._start is None:
            raise RuntimeError("the application sent a body before the status")
        headers = self._start.get("headers", ())
        lines = [_status_line(self.status), b"date: ", self._all.date, b"\r\n"]
        for name, value in headers:
            lines += [name, b": ", value, b"\r\n"]
        sized = self.status == HTTPStatus.NO_CONTENT or b"content-length" in dict(headers)
        self._chunked = not sized and not self._old
        if self._chunked:
            lines.append(b"transfer-encoding: chunked\r\n")
        elif not self.ended:  # what is still to come of the body is dropped with the connection
            with contextlib.suppress(ValueError):
                self._connection.take(self)
            self.last |= not self.ended
        # A client that waits for "100 Continue" may never send the body; who is refused can't
        # keep the server busy with what it sends next.
        self.last |= self._expected or self.status == HTTPStatus.UNAUTHORIZED or self._all.ending
        if self.last:
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        return b"".join(lines)


@cache
def _status_line(status: int) -> bytes:
    return f"HTTP/1.1 {int(status)} {HTTPStatus(status).phrase}\r\n".encode()
