"""Ctrl-C for a process that runs the command line: exit code 130 and one line, at any moment.

Importing fpdb takes most of a short command's time, and an interrupt of an import is a traceback.
So this module is imported before all others, and needs none but builtin ones. Until the command
begins, Ctrl-C ends the process at once. Then it raises KeyboardInterrupt once, because there may be
something to tidy up; a second Ctrl-C doesn't wait for that. After the command, it is ignored.

A program that merely imports fpdb keeps its own handling of signals.
"""

import _signal  # type: ignore[import-not-found] # not `signal`, which imports others
import atexit
import os
import sys

EXIT_CODE = 130
# All names in the scripts that installers write, and in `fpdb.__main__`.
_SCRIPT_NAMES = {
    *("__doc__", "__name__", "argv", "endswith", "exit", "fpdb.cli"),
    *("main", "re", "removesuffix", "sub", "sys"),
}


def _runs_command_line() -> bool:
    """Return whether this process was started as `fpdb` or as `python -m fpdb`."""
    if sys.argv[:1] == ["-m"]:  # until the module that is to be run has been found
        return sys.orig_argv[-len(sys.argv)].removeprefix("-m") == __package__
    frame = sys._getframe()  # noqa: SLF001 - documented, for CPython
    while frame.f_back:
        frame = frame.f_back
    # The installed script consists of the import of the command line, and its call.
    return "fpdb.cli" in frame.f_code.co_names


def _end(*_: object) -> None:
    """End the process, whatever it is doing."""
    try:
        os.write(2, b"interrupted\n")
    finally:
        os._exit(EXIT_CODE)


def _raise(*_: object) -> None:
    _signal.signal(_signal.SIGINT, _end)
    raise KeyboardInterrupt


def _end_if_lost(unraisable: "sys.UnraisableHookArgs") -> None:
    """End the process by an interrupt that Python would only print, as in a destructor."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        _end()
    sys.__unraisablehook__(unraisable)


def begin() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, in the command that begins."""
    if _OURS:
        sys.unraisablehook = _end_if_lost
        _signal.signal(_signal.SIGINT, _raise)


def finish() -> None:
    """Let Ctrl-C do nothing more: the command has ended, and the process is about to."""
    if _OURS:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)


def exit_at_once() -> None:
    """End the process, whose command was interrupted and has printed all.

    Python itself may end it by SIGINT in place of the exit code, if the interrupt came in `exec`.
    """
    if _OURS:
        os._exit(EXIT_CODE)


def end_fast(code: int) -> None:
    """End the process without freeing all objects, which takes longer than many a command.

    Exit functions run and streams are flushed before. Returns if Python has to end the process:
    where threads still run, a stream can't be flushed, or the program does more than this command.
    """
    program = sys._getframe(2)  # noqa: SLF001 - documented, for CPython
    threads = sys.modules.get("threading")
    if (
        not _OURS
        or program.f_globals.get("__name__") != "__main__"
        or not _SCRIPT_NAMES.issuperset(program.f_code.co_names)
        or (threads and threads.active_count() > 1)
    ):
        return
    atexit._run_exitfuncs()  # noqa: SLF001 - Python itself has no public name for it
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        return
    os._exit(code)


# Where SIGINT is ignored, as in the background of a script, it stays so.
_OURS = _runs_command_line() and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
if _OURS:
    _signal.signal(_signal.SIGINT, _end)
