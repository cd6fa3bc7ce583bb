"""Run the `fpdb` of the examples in forks of one process, which has imported everything already.

A page runs up to thirty commands, and importing takes nearly all of their time. `fpdb` on the PATH
of an example is a client of a few lines: it sends its arguments, its directory, its environment and
its three streams to this server, passes on the signals that it gets, and exits with the code that
comes back.
"""

import ast
import atexit
import contextlib
import io
import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

# Without the modules `json`, `signal` and `socket`, a client starts in half the time.
CLIENT = """\
#!{python} -IS
import _signal, _socket, os, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect({address!r})
call = repr((sys.argv[1:], os.getcwd(), dict(os.environ))).encode()
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in range(3))
rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)
server.sendmsg([len(call).to_bytes(4, sys.byteorder)], [rights])
server.sendall(call)
process = int.from_bytes(server.recv(4), sys.byteorder)
for number in (_signal.SIGINT, _signal.SIGTERM):
    _signal.signal(number, lambda number, _: os.kill(process, number))
code = server.recv(1)
sys.exit(code[0] if code else 1)
"""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Path]:
    """Start a server, and yield the directory with the client."""
    address = str(folder / "socket")
    client = folder / "bin" / "fpdb"
    client.parent.mkdir()
    client.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    client.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        yield client.parent
        process.kill()


def serve(address: str) -> None:
    """Fork a process for each client."""
    import fpdb
    from fpdb.cli import main

    fpdb.recipe("web").features("一页网页")  # loads the dictionary
    sys.argv = ["fpdb", "plan", "-k", "3"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main()  # loads what typer needs for options
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.write(1, b"ready\n")
    while True:
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            client.send(bytes([call(client, main)]))
            os._exit(0)
        client.close()


def call(client: socket.socket, main) -> int:
    """Run the command of a client with its streams, and return the exit code."""
    head, streams, *_ = socket.recv_fds(client, 4, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    [size] = struct.unpack("I", head)
    message = client.recv(size, socket.MSG_WAITALL)
    client.send(struct.pack("I", os.getpid()))
    arguments, folder, environment = ast.literal_eval(message.decode())
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["fpdb", *arguments]
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
