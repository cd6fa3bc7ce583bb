"""Run the application on granian until a signal ends it: sockets, TLS, descriptors."""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import resource
import signal
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.server.embed import Server
from prometheus_client import disable_created_metrics

import fpdb
from fpdb.integrations.batcher import again_if_moved
from fpdb.integrations.server.access import Access, read_secret
from fpdb.integrations.server.application import Application

logger = logging.getLogger(__name__)
_BACKLOG = 2048
# Beyond these, connections wait in the backlog. A head that doesn't end holds two buffers.
_CONNECTIONS, _BUFFER = 4096, 1 << 14
_HEAD_SECONDS = 10  # for a head, also the next one of the same connection
_SPARE = 256  # descriptors for everything but connections
_WATCH_SECONDS = 2  # until it is noticed that a database was moved or replaced


def serve(
    application: Application,
    *,
    host: str = "127.0.0.1",
    port: int = 7373,
    unix: Path | None = None,
    certificate: Path | None = None,
    private_key: Path | None = None,
    on_start: Callable[[str], object] = lambda _: None,
    on_error: Callable[[fpdb.FpdbError], object] = lambda _: None,
    on_reload: Callable[[], object] | None = None,
) -> None:
    """Serve an application of `app` until SIGTERM or Ctrl-C; what was accepted is answered then.

    It listens on a Unix socket, which those may use that the umask says, or on a host and a port, 0
    for any free one. An address that other hosts reach is refused unless tokens are required.
    `on_start` is called with the URL, `on_reload` for each SIGHUP, which without it ends the
    process, and `on_error` with what it raises, and once with the error of a database that is
    damaged, or isn't at its path any more. MovedError is raised if one with other tables takes its
    place.
    """
    access = application.access
    if unix:
        access.hosts = None  # no web page can call a Unix socket
    if certificate and private_key:
        _require_usable(certificate, private_key)
    # Half of the metrics would be times at which they were created, which no dashboard shows.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    with contextlib.ExitStack() as bound:
        listener = _listening_at(unix, bound) if unix else _listening(access, host, port)
        bound.callback(listener.close)
        server = _Granian(application, listener, ssl_cert=certificate, ssl_key=private_key)

        # It is restored at the end, when Ctrl-C is raised again for the caller.
        interrupt = signal.getsignal(signal.SIGINT)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
                if on_reload:
                    reload = partial(_reported, on_reload, on_error)
                    loop.get_loop().add_signal_handler(signal.SIGHUP, reload)
                ended_by = loop.run(_run(application, server, bound.close, on_start, on_error))
        finally:
            signal.signal(signal.SIGINT, interrupt)
    if ended_by == signal.SIGINT:
        signal.raise_signal(signal.SIGINT)


def _reported(work: Callable[[], object], on_error: Callable[[fpdb.FpdbError], object]) -> None:
    try:
        work()
    except fpdb.FpdbError as error:
        on_error(error)


class _Granian(Server):
    """The server of granian, on a socket that listens already.

    One that it opens itself shares its port with any other process of the same user, and doesn't
    say which port it got.
    """

    def __init__(
        self, application: Application, listener: socket.socket, **tls: Path | None
    ) -> None:
        super().__init__(
            application,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,  # otherwise the first bytes of a connection have no deadline
            http1_settings=HTTP1Settings(
                header_read_timeout=1000 * _HEAD_SECONDS, max_buffer_size=_BUFFER
            ),
            websockets=False,
            backpressure=_room(),
            ssl_protocol_min=SSLProtocols.tls12,
            log_enabled=False,
            # The caller's handlers of the log stay as they are.
            log_dictconfig={"incremental": True, "handlers": {}, "loggers": {}},
            **tls,  # type: ignore[arg-type]
        )
        self._listener = listener
        self.address = _address(listener, "https" if tls.get("ssl_cert") else "http")

    def _init_shared_socket(self) -> None:
        unix = self._listener.family == socket.AF_UNIX
        # It closes the descriptor once it accepts no more. Its stub lacks the arguments.
        holder: Any = SocketHolder
        self._shd = holder(os.dup(self._listener.fileno()), unix, _BACKLOG)


def _address(listener: socket.socket, scheme: str) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    name, number = listener.getsockname()[:2]
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{number}"


async def _run(
    application: Application,
    server: _Granian,
    close: Callable[[], object],
    on_start: Callable[[str], object],
    on_error: Callable[[fpdb.FpdbError], object],
) -> int:
    """Serve until the end, and answer what was accepted; return the signal that ended it."""
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not ending.done():
            ending.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    serving = asyncio.create_task(server.serve())
    watching = asyncio.create_task(_watch(application, ending, on_error))
    try:
        on_start(server.address)
        tasks = ending, serving, watching
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return await next(task for task in tasks if task.done())
    finally:
        watching.cancel()
        close()  # before another server can take the address
        application.stop()
        server.stop()  # type: ignore[no-untyped-call]
        # Whoever doesn't take an answer, or doesn't end a request, isn't waited for.
        await asyncio.wait([serving], timeout=application.limits.seconds + 1)
        await application.close()


async def _watch(
    application: Application,
    ending: "asyncio.Future[int]",
    on_error: Callable[[fpdb.FpdbError], object],
) -> int:
    """End the server if another database is in the place of its own, which has other tables.

    What else is wrong with the database is reported once, and may pass.
    """
    database, loop, reported = application.database, asyncio.get_running_loop(), ""
    while not ending.done():
        await asyncio.sleep(_WATCH_SECONDS)
        problem = await loop.run_in_executor(application.watcher, _problem, database)
        if isinstance(problem, fpdb.MovedError) and os.path.exists(database.path):
            raise problem
        # One that is away may come back; the server, started again, would make an empty one.
        if problem and str(problem) != reported:
            if isinstance(problem, fpdb.FpdbError):
                on_error(problem)
            else:
                logger.error("the database can't be watched", exc_info=problem)
        reported = str(problem or "")
    return await ending


def _problem(database: fpdb.Database) -> Exception | None:
    """Return what is wrong with a database; open it again if a copy has taken its place."""
    try:
        again_if_moved(database, database.__len__)
    except Exception as error:
        return error
    return fpdb.DamagedError(database.damage) if database.damage else None


def _room() -> int:
    """Let this process open as many files as it may; return how many connections that allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, min(_CONNECTIONS, hard - _SPARE))


def _require_usable(certificate: Path, private_key: Path) -> None:
    """Raise InputError unless they make a context of TLS; the key is as secret as tokens are."""
    read_secret(private_key, "the key")
    try:
        # Without a password, it would be read from the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, private_key, "")
    except OSError as error:  # also those of TLS
        raise fpdb.InputError(
            f"the certificate or its key can't be read: {error}",
            hint="both are files in PEM format; the key without a password",
        ) from None


def _listening(access: Access, host: str, port: int) -> socket.socket:
    """Listen; raise InputError if that is impossible, or would let anybody in."""
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        if not access.required and not ipaddress.ip_address(address[0]).is_loopback:
            raise fpdb.InputError(
                f"other hosts reach {host}, expected a loopback address unless tokens are required",
                hint="require tokens, or listen on 127.0.0.1 or a Unix socket",
            )
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise fpdb.InputError(
            f"can't listen on {host}, port {port}: {error.strerror or error}",
            hint="is another server running? Take another port, or 0 for any that is free",
            parameter="port",
        ) from None
    if access.hosts is not None:
        access.hosts |= {host, str(address[0])}
    # The connections inherit it: short answers don't wait for longer ones.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _listening_at(path: Path, bound: contextlib.ExitStack) -> socket.socket:
    """Listen on a Unix socket, in place of one that a killed server left, until `bound` ends."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as other:
                if other.connect_ex(str(path)) == errno.ECONNREFUSED:
                    path.unlink()
        listener.bind(str(path))
        inode = path.lstat()
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise fpdb.InputError(
            f"can't listen on {path}: {error.strerror or error}",
            hint="name a new path of up to 107 bytes, in a directory that you may write to",
        ) from None

    def unlink() -> None:
        # While this socket is open, no other can have the number of its inode.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(path.lstat(), inode):
                path.unlink()

    bound.callback(unlink)
    return listener
