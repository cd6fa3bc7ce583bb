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
import stat
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shutil import get_terminal_size
from typing import IO, Any

import typer

from fpdb.errors import FpdbError
from fpdb.markup import as_cell
from fpdb.progress import WorkStep

_PLAIN = re.compile(r"[\x20-\x7e]*")
_PARAMETER = re.compile(r"\b(\w+_field|encoding)(?= names (?:another|one))")
_NUMBER = re.compile(r"-?[0-9][0-9,.e-]*(%| [^\W\d]+)?|-|")
# A table is printed from this number of rows on, or after these seconds.
_MANY_ROWS, _LONG = 100, 0.5
# Progress is shown after as many seconds, and then after each pause. The time that is left is
# estimated from a share of a step on.
_QUICK, _PAUSE, _LEAST_SHARE = 1.0, 0.1, 0.02
_UNITS = ((86400, "days"), (3600, "h"), (60, "min"))
# The panel of options that few need.
MORE = "More"
# A title gets the rest of a line, if that is at least this wide.
_LEAST_TITLE = 12
_BOLD, _DIM, _RED, _YELLOW, _CYAN = "1", "2", "1;31", "33", "36"


@dataclass
class _Printing:
    """How the command prints, and the contents of the terminal."""

    json: bool = False  # results and summaries
    quiet: bool = False  # no summaries, no progress
    left: str = ""  # printed if the command is interrupted
    said: Callable[[str], str] = str  # lines in the language of the reader
    table: "_AlignedRows | None" = None
    progress_width: int = 0
    started: float = field(default_factory=time.monotonic)


now = _Printing()


class ExitCode(enum.IntEnum):
    """How a command ends; FINE too where a text is short, a pair different, a result empty."""

    FINE = 0
    NOT_FINE = 1  # a check found problems, a source would lose too much, or a query found nothing
    USAGE = 2
    ERROR = 3
    BAD_RECORDS = 4  # all is done, but some records couldn't be used
    INTERRUPTED = 130


def prepare_streams() -> None:
    """Write UTF-8 in any locale, and escape all other characters."""
    vars(now).update(vars(_Printing()))
    # A closed stream has no object, and the next file that is opened would get its number.
    if sys.stdout is None:  # writing to this one fails
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def choose_language() -> None:
    """Print lines in the language that the environment names, if there are messages in it."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    if next(filter(None, map(os.environ.get, names)), "").startswith("zh"):
        from fpdb.look.translate import Translator  # most readers need none

        now.said = Translator("zh-CN").say


def safe(text: str) -> str:
    """Escape characters that aren't printable, except for spaces of any width."""
    return _escaped(text, lambda character: character.encode("unicode_escape").decode("ascii"))


def as_json(value: object) -> str:
    """Return JSON on one line, of printable characters only."""
    plain = json.dumps(value, ensure_ascii=False)
    return _escaped(plain, lambda character: json.dumps(character)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        sign if sign.isprintable() or unicodedata.category(sign) == "Zs" else escape(sign)
        for sign in text
    )


def columns(*names: str, titled: bool = False) -> None:
    """Set the names of the columns of the rows to come, which only a terminal gets.

    It gets a column of titles beside them if they are `titled`, cut to the width of a line.
    """
    heads = list(map(now.said, names))
    now.table = _AlignedRows(heads, titled=titled) if shows_tables() else None


def shows_tables() -> bool:
    """Return whether rows are shown to a person, aligned and with the names of their columns."""
    return sys.stdout.isatty() and not now.json


def row(*fields: object, title: Callable[[], str] | None = None) -> None:
    """Print one line of fields, separated by tabs, or on a terminal aligned and with a title."""
    cells = [safe(str(field)) for field in fields]
    if now.table is None:
        _write("\t".join(cells))
    else:
        now.table.add([*cells, safe(title())] if title else cells)


def record(value: Mapping[str, Any]) -> None:
    _write(as_json(value))


def result(
    plain: Mapping[str, Any], *fields: object, title: Callable[[], str] | None = None
) -> None:
    """Print one result: an object where JSON is wanted, else a line of fields."""
    if now.json:
        record(plain)
    else:
        row(*fields, title=title)


def summarise(plain: Mapping[str, Any] | None, *lines: str) -> None:
    """Print a summary: an object where JSON is wanted, else the lines that aren't empty.

    A command whose results are objects gives None, and prints lines in both cases.
    """
    if now.json and plain is not None:
        record(plain)
    elif not now.quiet:
        for line in filter(None, lines):
            note(line)


def cells(values: Sequence[object]) -> None:
    """Print one line of CSV; escape cells that a spreadsheet would evaluate."""
    import csv  # few commands need it

    texts = ["" if value is None else str(value) for value in values]
    line = io.StringIO()
    # The sign is looked for before what isn't printable is replaced.
    csv.writer(line, lineterminator="").writerow(
        safe(text) if as_cell(text) == text else f"'{safe(text)}" for text in texts
    )
    _write(line.getvalue())


def shortened(text: str, room: int) -> str:
    """Cut a text to some columns of a terminal."""
    if _width(text) <= room:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, room - 1).rstrip() + "…" if room else ""


def _width(text: str) -> int:
    """Return the columns of a terminal that a text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # it takes long to import

    return cell_len(text)


def _styled(text: str, style: str, stream: IO[str]) -> str:
    """Return a text in a colour or weight, where a person sees it who wants that."""
    if not style or not text or not stream.isatty():
        return text
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\x1b[{style}m{text}\x1b[0m"


class _AlignedRows:
    """Rows in aligned columns under a header, as wide as the first rows need."""

    def __init__(self, names: Sequence[str], *, titled: bool = False) -> None:
        self._titled = titled
        self._names = [*names, "title"] if titled else names
        self._waiting: list[Sequence[str]] = []
        self._since = 0.0
        self._widths: list[int] = []
        self._right: list[bool] = []

    def add(self, cells: Sequence[str]) -> None:
        """Hold a row until there are many, or the first one has waited for long."""
        moment = time.monotonic()
        self._since = self._since if self._waiting else moment
        self._waiting.append(cells)
        if len(self._waiting) >= _MANY_ROWS or moment - self._since >= _LONG:
            self.print()

    def print(self) -> None:
        """Print the rows that wait, the first ones under the header."""
        if self._waiting and not self._widths:
            self._measure()
            _write(_styled(self._line(self._names), _BOLD, sys.stdout))
        for cells in self._waiting:
            _write(self._line(cells, _DIM))
        self._waiting.clear()

    def _measure(self) -> None:
        """Find the width and the side of each column; a title gets the rest of the line."""
        by_column = list(zip(*self._waiting, strict=True))
        self._right = [all(map(_NUMBER.fullmatch, column)) for column in by_column]
        named = zip(self._names, by_column, strict=True)
        self._widths = [max(map(_width, (name, *column))) for name, column in named]
        if self._titled:
            room = get_terminal_size().columns - sum(self._widths[:-1]) - 2 * len(self._widths) + 2
            self._widths[-1] = min(self._widths[-1], room) if room >= _LEAST_TITLE else 0
            self._right[-1] = False

    def _line(self, cells: Sequence[str], title_style: str = "") -> str:
        """Return aligned cells as a line: numbers to the right, texts to the left."""
        title = ""
        if self._titled:
            title = _styled(shortened(cells[-1].strip(), self._widths[-1]), title_style, sys.stdout)
            cells = cells[:-1]
        padded = (
            " " * (wide - _width(cell)) + cell if right else cell + " " * (wide - _width(cell))
            for cell, wide, right in zip(cells, self._widths, self._right, strict=False)
        )
        return ("  ".join(padded) + "  " + title).rstrip()


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print some rows in aligned columns under their names, not on a terminal only."""
    aligned = _AlignedRows(names)
    for cells in rows:
        aligned.add(cells)
    aligned.print()


def report(entries: Mapping[str, object], plain: Mapping[str, Any] | None = None) -> None:
    """Print names and values in two aligned columns, or an object where JSON is wanted."""
    if now.json and plain is not None:
        record(plain)
        return
    width = max(map(len, entries))
    for name, value in entries.items():
        _write(f"{name:<{width}}  {safe(str(value))}")


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open standard output ("-"), or a file that appears, complete, when the block ends."""
    if path == "-":
        flush()
        with _to_reader():
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        return
    from fpdb.scratch import draft_file

    with draft_file(path) as file:
        yield file


def _write(line: str) -> None:
    if now.progress_width and sys.stdout.isatty():
        _end_progress()
    with _to_reader():
        sys.stdout.write(line + "\n")


@contextlib.contextmanager
def _to_reader() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader has gone, as head does
        _discard_output()
        raise typer.Exit from None
    except OSError as error:
        if isinstance(error, FpdbError) or error.filename:  # of a file that is read meanwhile
            raise
        _discard_output()
        raise FpdbError(
            f"standard output can't be written: {error.strerror}", hint="is the disk full?"
        ) from None


def flush() -> None:
    """Flush standard output, and end a progress line; a reader that has gone is no error."""
    with contextlib.suppress(typer.Exit):
        deliver()
    _end_progress()


def deliver() -> None:
    """Flush standard output; if its reader has gone, end the command."""
    with _to_reader():
        if now.table:
            now.table.print()
        sys.stdout.flush()


def _discard_output() -> None:
    """Let the buffered output go nowhere, or Python would report the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(message: str, label: str = "", style: str = "") -> None:
    """Print a message to standard error, after all data printed so far."""
    flush()
    label, message = now.said(label), now.said(message)
    with contextlib.suppress(OSError):  # there is no other place to say that it can't be written
        sys.stderr.write(_styled(label, style, sys.stderr) + safe(message) + "\n")


def rare_ones(command: Any) -> str:
    """Return a line that names the commands and options which only --help-all shows."""
    hidden = [name for name, part in getattr(command, "commands", {}).items() if part.hidden]
    rare = (part for part in command.params if part.rich_help_panel == MORE)
    hidden += [min(part.opts, key=len) for part in rare if part.name != "_all"]
    return f"{MORE} (--help-all): {', '.join(hidden)}" if hidden else ""


def hide_types(command: Any, context: typer.Context) -> None:
    """Leave types of Python out of the help, where a word or nothing says what a value is."""
    for parameter in command.get_params(context):
        if parameter.param_type_name == "argument" or parameter.metavar is None:
            parameter.display_type_rich = lambda ctx: None  # noqa: ARG005 - as typer names it


def with_options(message: str) -> str:
    """Return a message of the library with a parameter that it names as an option."""
    return _PARAMETER.sub(lambda match: "--" + match[0].replace("_", "-"), message)


def unfold(command: Any) -> None:
    """Show the commands and options that few need too."""
    for part in (*command.params, *getattr(command, "commands", {}).values()):
        part.hidden = False
    command.epilog = None


def show_all_help(context: typer.Context, wanted: bool) -> None:
    """Print the help with what few need too, and end the command."""
    if wanted:
        unfold(context.command)
        context.get_help()  # it prints
        raise typer.Exit


def show_log(name: str) -> None:
    """Print the records of a logger from now on."""
    import logging  # it takes long to import

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            label = f"{record.levelname.lower()}: "
            for line in self.format(record).splitlines() or [""]:
                note(line, label, _YELLOW)
                label = ""

    logging.getLogger(name).addHandler(Shown(logging.WARNING))


def print_log(name: str) -> None:
    """Print the records of a logger, as they are, from now on."""
    import logging

    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    logger.addHandler(logging.StreamHandler(sys.stdout))


def listed(counts: Mapping[str, int], share: str = "") -> str:
    """Return counts with their names, the first one and all that aren't zero.

    The one named by `share` has its share of the first in percent.
    """
    total = max(next(iter(counts.values())), 1)
    return ", ".join(
        f"{name} {count:,}" + (f" ({count / total:.1%})" if name == share else "")
        for place, (name, count) in enumerate(counts.items())
        if count or not place
    )


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun if count == 1 else _many(noun)}"


def _many(noun: str) -> str:
    return re.sub("(?<=[^aeiou])y$", "ie", noun) + "s"


def counted(what: str, count: int) -> str:
    """Return a line with a count, or nothing if it is zero."""
    return f"{what}: {count:,}" if count else ""


def elapsed() -> str:
    return f"{time.monotonic() - now.started:.2f} s"


def pace(count: int, noun: str, seconds: float | None = None) -> str:
    """Return a time, by default that of the command, and how many things a second it is."""
    seconds = time.monotonic() - now.started if seconds is None else seconds
    return f"{seconds:.2f} s, {count / max(seconds, 1e-9):,.0f} {_many(noun)}/s"


def size(count: float) -> str:
    """Return a number of bytes in the unit of which it has at least one."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} PB"


def number(value: float) -> str:
    """Return a number with three digits or more."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """Return a time; from two minutes on, in the largest unit of which it has two."""
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{number(seconds / length)} {unit}"
    if seconds >= 1 or not seconds:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e6:.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:.3g} ms"


def warn(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning of Python as a line, in place of `warnings.showwarning`."""
    note(str(message), "warning: ", _YELLOW)


class StepLine:
    """Shows on a terminal how far each step is, with its rate and the time that is left."""

    def __init__(self) -> None:
        self._shown = 0.0
        # Where and when each step began; several may take turns.
        self._steps: dict[str, tuple[int, float]] = {}

    def show(self, step: WorkStep, share: float | None = None, more: str = "") -> None:
        """Show a step from the command's second second on, a few times a second."""
        name, done, total, unit = step
        moment = time.monotonic()
        due = name not in self._steps or moment - self._shown >= _PAUSE
        first, began = self._steps.setdefault(name, (done, moment))
        if now.quiet or moment - now.started < _QUICK or not due or not _shows_progress():
            return
        self._shown, lasted = moment, max(moment - began, 1e-9)
        rate = (done - first) / lasted
        amount, pace = plural(done, unit), f"{rate:,.0f}/s"
        if unit == "byte":
            amount, pace = size(done), f"{size(rate)}/s"
        parts = [f"{name + ': ' if name else ''}{amount}{more}"]
        share = done / total if total else share
        if share is not None:
            parts.append(f"{min(share, 1):.0%}")
        if rate >= 1:
            parts.append(pace)
        if share is not None and share >= _LEAST_SHARE:
            parts.append(f"{duration(max(round(lasted * (1 / share - 1)), 0))} left")
        _show_progress(", ".join(parts))


def _shows_progress() -> bool:
    """Return whether a progress line reaches a terminal that shows no output of a pipe.

    Standard output that is a pipe mostly ends at the same terminal.
    """
    with contextlib.suppress(OSError, ValueError):
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            return False
    return sys.stderr.isatty()


def _show_progress(message: str) -> None:
    line = shortened(safe(now.said(message)), get_terminal_size().columns - 1)
    sys.stderr.write("\r" + line + " " * (now.progress_width - _width(line)))
    sys.stderr.flush()
    now.progress_width = _width(line)


def _end_progress() -> None:
    if now.progress_width:
        _show_progress("")
        sys.stderr.write("\r")
        sys.stderr.flush()


def fail(error: FpdbError) -> None:
    with contextlib.suppress(FpdbError):  # the command fails in any case
        flush()
    note(with_options(str(error)), "error: ", _RED)
    if error.hint:
        option = f" (--{error.parameter.replace('_', '-')})" if error.parameter else ""
        note(error.hint + option, "hint: ", _CYAN)
