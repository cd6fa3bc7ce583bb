"""Run the application until a signal ends it: sockets, TLS, and connections that send nothing."""

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

import fpdb
from fpdb.integrations.server.access import Access
from fpdb.integrations.server.application import Application
from fpdb.integrations.server.server import Server

PORT = 7373
# A connection without a request is kept for as long.
_IDLE_SECONDS = 75
# What the head of a request may take.
_HEAD_SECONDS = 10.0
_HEAD_BYTES = 1 << 16
_BACKLOG = 2048
# A database that was moved or replaced is noticed after about as long.
_WATCH_SECONDS = 2
# Of the thread that stores and that of the event loop, one waits for as long when both can run:
# with the usual five milliseconds, up to a third fewer checks a second were answered.
_SWITCH_SECONDS = 0.001


def serve(
    application: Application,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    unix: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    on_start: Callable[[str], object] = lambda _: None,
    on_error: Callable[[fpdb.FpdbError], object] = lambda _: None,
) -> None:
    """Serve an application of `app` until SIGTERM or Ctrl-C; what was accepted is answered then.

    It listens on a Unix socket, which those may use that the umask says, or on a host and a port, 0
    for any free one. An address that other hosts reach is refused unless tokens are required.
    `on_start` is called with the URL, and `on_error` once with the error of a database that isn't
    at its path any more. MovedError is raised if one with other tables takes its place.
    """
    server = application.server
    if unix:
        server.access.hosts = None  # no web page can call a Unix socket
    with _listening_at(unix) if unix else _listening(server.access, host, port) as listener:
        config = uvicorn.Config(
            application,
            http=_Connection,
            ws="none",
            loop="uvloop",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=int(server.limits.seconds) + 1,
            timeout_notify=_WATCH_SECONDS,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
        )
        try:
            config.load()
        except OSError as error:  # also those of TLS
            raise fpdb.InputError(
                f"the certificate or its key can't be read: {error}",
                hint="both are files in PEM format; the key without a password",
            ) from None
        address = f"unix:{unix}"
        if not unix:
            name, number = listener.getsockname()[:2]
            name = f"[{name}]" if ":" in name else name
            address = f"{'https' if certificate else 'http'}://{name}:{number}"
        on_start(address)
        sys.setswitchinterval(_SWITCH_SECONDS)
        runner = _Runner(config, server, on_error)
        # One that comes before the server takes signals ends it too; at the end it is raised again.
        before = signal.signal(signal.SIGTERM, runner.end)
        try:
            runner.run([listener])
        finally:
            signal.signal(signal.SIGTERM, before)
        if runner.failure:
            raise runner.failure


class _Runner(uvicorn.Server):
    """Has requests of many lines end when the server does, and ends it without its database."""

    failure: fpdb.MovedError | None = None
    _away = False

    def __init__(
        self, config: uvicorn.Config, server: Server, on_error: Callable[[fpdb.FpdbError], object]
    ) -> None:
        super().__init__(config)
        self._server = server
        self._on_error = on_error
        config.callback_notify = self._watch

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def end(self, _: int, __: FrameType | None) -> None:
        """End the server, once it has started."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._loop.call_soon_threadsafe(self._server.stopping.set)

    async def _watch(self) -> None:
        """End the server if another database is in the place of its own, which has other tables."""
        database = self._server.database
        try:
            await asyncio.to_thread(len, database)
            self._away = False
        except fpdb.MovedError as error:
            if database.path.exists():
                self.failure, self.should_exit = error, True
                self._server.stopping.set()
            elif not self._away:  # started again, it would be an empty one
                self._on_error(error)
                self._away = True
        except fpdb.FpdbError:
            pass  # each request is answered with it, and it may pass


class _JoinedWrites:
    """A transport that sends the head of a response and its body by one call of the system."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()


class _Connection(HttpToolsProtocol):
    """A connection that ends if the head of a request is too long, or doesn't come in time."""

    _deadline: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.transport: Any = _JoinedWrites(transport, self.loop)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            return
        # Of a request that was refused early, the rest is read and dropped for a while.
        if self.cycle is None or not self.cycle.more_body:
            self._head += len(data)
        if self._head > _HEAD_BYTES:
            self.transport.close()
        elif not self.transport.is_closing():
            self._await_head()

    def on_headers_complete(self) -> None:
        self._end_wait()
        super().on_headers_complete()

    def _await_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(_HEAD_SECONDS, self.transport.close)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._head = None, 0


def _listening(access: Access, host: str, port: int) -> socket.socket:
    """Listen; raise InputError if that is impossible, or would let anybody in."""
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        if not access.required and not ipaddress.ip_address(address[0]).is_loopback:
            raise fpdb.InputError(
                f"other hosts reach {host}, expected a loopback address unless tokens are required",
                hint="give a --token-file, or listen on 127.0.0.1 or a Unix socket",
            )
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise fpdb.InputError(
            f"can't listen on {host}, port {port}: {error.strerror or error}",
            hint="is another server running? --port takes another one, 0 any that is free",
        ) from None
    if access.hosts is not None:
        access.hosts |= {host, str(address[0])}
    # A host that has vanished doesn't keep its connections.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return listener


@contextlib.contextmanager
def _listening_at(path: Path) -> Iterator[socket.socket]:
    """Listen on a Unix socket; one that a killed server left is replaced."""
    listener = socket.socket(socket.AF_UNIX)
    with listener:
        try:
            if path.is_socket():
                with socket.socket(socket.AF_UNIX) as other:
                    if other.connect_ex(str(path)) == errno.ECONNREFUSED:
                        path.unlink()
            listener.bind(str(path))
            listener.listen(_BACKLOG)
        except OSError as error:
            raise fpdb.InputError(
                f"can't listen on {path}: {error.strerror or error}",
                hint="name a new path of up to 107 bytes, in a directory that you may write to",
            ) from None
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
