"""The only place that prints: data to standard output, everything else to standard error.

Whatever comes from a document is shown safely: control and format characters are escaped, so
that no title can drive a terminal, and nothing is taken for markup.
"""

import contextlib
import enum
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import typer

from fpdb import interrupts
from fpdb.errors import FpdbError

_PLAIN = re.compile(r"[\x20-\x7e]*")
# What may begin a formula; some spreadsheets accept the wide forms as well.
_FORMULA = tuple("=+-@\t\r\n\0＝＋－＠")
# How wide the progress line is that is shown.
_progress_width = 0
# What the command leaves if it is interrupted.
_left = ""


class ExitCode(enum.IntEnum):
    """How a command ends; FINE too where a text is short, a pair different, a result empty."""

    FINE = 0
    NOT_FINE = 1  # a check found problems, or a query nothing where its exit code says that
    USAGE = 2
    ERROR = 3
    BAD_RECORDS = 4  # all is done, but some records couldn't be used
    INTERRUPTED = interrupts.EXIT_CODE


def prepare_streams() -> None:
    """Write UTF-8 in any locale, and escape what can't be written."""
    leave_if_interrupted("")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def safe(text: str) -> str:
    """Escape what isn't printable, except for spaces of any width."""
    return _escaped(text, lambda character: character.encode("unicode_escape").decode("ascii"))


def as_json(value: object) -> str:
    """Return JSON on one line, of printable characters only."""
    plain = json.dumps(value, ensure_ascii=False)
    return _escaped(plain, lambda character: json.dumps(character)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        each if each.isprintable() or unicodedata.category(each) == "Zs" else escape(each)
        for each in text
    )


def row(*fields: object) -> None:
    """Print one line of tab-separated fields."""
    _write("\t".join(safe(str(field)) for field in fields))


def record(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    _write(as_json(value))


def cells(values: Sequence[object]) -> None:
    """Print one line of CSV; escape cells that a spreadsheet would evaluate."""
    import csv  # few commands need it

    texts = ["" if value is None else str(value) for value in values]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(
        f"'{safe(text)}" if text.startswith(_FORMULA) else safe(text) for text in texts
    )
    _write(line.getvalue())


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns, numbers to the right under their names."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for fields in rows:
        _write("  ".join(map(str.rjust, map(safe, fields), widths)).rstrip())


def report(entries: Mapping[str, object]) -> None:
    """Print names and values in two aligned columns."""
    width = max(map(len, entries), default=0)
    for name, value in entries.items():
        _write(f"{name:<{width}}  {safe(str(value))}")


def block(text: str) -> None:
    """Print text of several lines."""
    for line in text.splitlines():
        _write(safe(line))


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open standard output ("-"), or a file that appears, complete, when the block ends."""
    if path == "-":
        flush()
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            discard_output()
            raise typer.Exit from None
        return
    from fpdb.io.streams import whole_file

    with whole_file(path) as file:
        yield file


def _write(line: str) -> None:
    with _to_reader():
        sys.stdout.write(line + "\n")


def deliver() -> None:
    """Pass on what was printed; if its reader has gone, end the command."""
    with _to_reader():
        sys.stdout.flush()


@contextlib.contextmanager
def _to_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has gone, as head does
        discard_output()
        raise typer.Exit from None


def flush() -> None:
    """Flush standard output; a reader that has gone is no error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Write what is still buffered to nowhere, or Python would report the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(message: str) -> None:
    """Print a message to standard error, after all data printed so far."""
    flush()
    if _progress_width:
        progress("")
        sys.stderr.write("\r")
    sys.stderr.write(safe(message) + "\n")


def listed(counts: Mapping[str, int], share: str = "") -> str:
    """Return counts with their names, without those that are zero, except for the first.

    The one named by `share` has its share of the first in percent.
    """
    total = max(next(iter(counts.values())), 1)
    return ", ".join(
        f"{name} {count:,}" + (f" ({count / total:.1%})" if name == share else "")
        for place, (name, count) in enumerate(counts.items())
        if count or not place
    )


def plural(count: int, noun: str) -> str:
    """Return a number of things."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def size(count: float) -> str:
    """Return a number of bytes in the unit of which it has at least one."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of Python as a line, in place of `warnings.showwarning`."""
    note(f"warning: {message}")


def shows_progress() -> bool:
    """Return whether standard error is a terminal."""
    return sys.stderr.isatty()


def progress(message: str) -> None:
    """Show how far the work is, in place of what was shown before."""
    global _progress_width  # noqa: PLW0603 - there is one terminal
    line = safe(message)
    sys.stderr.write("\r" + line.ljust(_progress_width))
    sys.stderr.flush()
    _progress_width = len(line)


def leave_if_interrupted(outcome: str) -> None:
    """Set what the command leaves if it is interrupted from now on."""
    global _left  # noqa: PLW0603 - there is one command
    _left = outcome


def note_interrupt() -> None:
    """Print that the command was interrupted, and what it leaves."""
    note(f"interrupted: {_left}" if _left else "interrupted")


def fail(error: FpdbError) -> None:
    """Print an error and its hint."""
    note(f"error: {error}")
    if error.hint:
        note(f"hint: {error.hint}")
