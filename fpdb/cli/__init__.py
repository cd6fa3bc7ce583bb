"""The command line: each command opens a database, calls the library, and prints."""

import os
import signal
import sys


def main() -> None:
    """Run the command line in a process of its own, and exit with one of `render.ExitCode`."""
    # Imports take most of a short command's time. Until the command begins, Ctrl-C ends the
    # process by the signal; where it is ignored, as in the background of a script, it stays so.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    from fpdb.cli.app import run
    from fpdb.cli.render import ExitCode

    code = run(_raise_interrupts if ours else None)
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # too late to interrupt
    if code == ExitCode.INTERRUPTED:
        os._exit(code)  # Python itself may end it by the signal if that came in `exec`
    sys.exit(code)


def _raise_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def end_by_sigterm(like: type[BaseException]) -> None:
    """Let SIGTERM end the command by an exception, so that temporary files are removed."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice
        raise like

    signal.signal(signal.SIGTERM, end)
