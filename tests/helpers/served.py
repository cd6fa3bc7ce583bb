"""Run `fpdb` and `scrapy` in forks of one process, which has imported everything already.

The pages of the documentation run three hundred commands, and importing takes nearly all of their
time. The commands that `served` makes are clients of a few lines: each sends its arguments, its
directory, its environment and its three streams to the server, passes on the signals SIGINT and
SIGTERM, and exits with the code that comes back.
"""

import ast
import atexit
import contextlib
import functools
import importlib
import io
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

COMMANDS = ("fpdb", "scrapy")
# Without the modules `json`, `signal` and `socket`, a client starts in half the time.
CLIENT = """\
#!{python} -IS
import _signal, _socket, os, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
call = repr(([{command!r}, *sys.argv[1:]], os.getcwd(), dict(os.environ))).encode()
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)
server.sendmsg([len(call).to_bytes(4, sys.byteorder)], [rights])
server.sendall(call)
process = int.from_bytes(server.recv(4), sys.byteorder)
def pass_on(number, _):
    try:
        os.kill(process, number)
    except ProcessLookupError:  # it has just ended
        pass
for number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(number, pass_on)
code = server.recv(1)
sys.exit(code[0] if code else 1)
"""
# What a crawl imports late, without the reactor, which each process has to choose by itself.
SCRAPY = (
    "fpdb.integrations.scrapy",
    "scrapy.cmdline",
    "scrapy.commands.runspider",
    "scrapy.core.downloader.handlers.http11",
    "scrapy.crawler",
    "scrapy.extensions.feedexport",
    "scrapy.pipelines",
)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Path]:
    """Start a server, and yield the directory with the commands."""
    address = str(folder / "socket")
    clients = folder / "bin"
    clients.mkdir()
    for command in COMMANDS:
        client = clients / command
        text = CLIENT.format(python=sys.executable, address=address, command=command)
        client.write_text(text, encoding="utf-8")
        client.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        yield clients
        process.kill()


def serve(address: str) -> None:
    """Fork a process for each client."""
    load("fpdb")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.write(1, b"ready\n")
    while True:
        client, _ = listener.accept()
        head, streams, *_ = socket.recv_fds(client, 4, 3)
        message = client.recv(int.from_bytes(head, sys.byteorder), socket.MSG_WAITALL)
        arguments, folder, environment = ast.literal_eval(message.decode())
        main = load(arguments[0])
        if "tagged-title" in arguments:
            load_tagger()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            client.send(os.getpid().to_bytes(4, sys.byteorder))
            take_streams(streams)
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv = arguments
            client.send(bytes([exit_code(main)]))
            os._exit(0)
        for stream in streams:
            os.close(stream)
        client.close()


@functools.cache
def load(command: str) -> Callable[[], object]:
    """Import what a command needs, and return its main function."""
    if command == "scrapy":
        for name in SCRAPY:
            importlib.import_module(name)
        return sys.modules["scrapy.cmdline"].execute

    import fpdb
    from fpdb.cli import main

    fpdb.recipe("web").features("一页网页")  # loads the dictionary
    sys.argv = ["fpdb", "plan", "-k", "3"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()  # loads what typer needs for options
    return main


@functools.cache
def load_tagger() -> None:
    """Load jieba's tagger, which takes two seconds, for the command that is named and all later."""
    import fpdb

    fpdb.recipe("tagged-title").features("一页网页")


def take_streams(streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)


def exit_code(main: Callable[[], object]) -> int:
    """Run a command to the end of its process, and return its exit code."""
    code: object = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code if isinstance(code, int) else 1


if __name__ == "__main__":
    serve(sys.argv[1])
