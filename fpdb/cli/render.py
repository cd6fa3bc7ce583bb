"""The only place that prints: data to standard output, everything else to standard error.

Whatever comes from a document is shown safely: control and format characters are escaped, so
that no title can drive a terminal, and nothing is taken for markup.
"""

import json
import os
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import Any

import typer

from fpdb.errors import FpdbError

_PLAIN = re.compile(r"[\x20-\x7e]*")


def prepare_streams() -> None:
    """Write UTF-8 whatever the locale says; what can't be written is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def safe(text: str) -> str:
    """Escape what isn't printable; spaces of any width stay."""
    if _PLAIN.fullmatch(text):
        return text
    return "".join(map(_safe_character, text))


def _safe_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def row(*fields: object) -> None:
    """Print one line of tab-separated fields."""
    _write("\t".join(safe(str(field)) for field in fields))


def record(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line."""
    plain = json.dumps(value, ensure_ascii=False)
    _write(plain if _PLAIN.fullmatch(plain) else "".join(map(_json_character, plain)))


def _json_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return json.dumps(character)[1:-1]


def report(entries: Mapping[str, object]) -> None:
    """Print names and values in two aligned columns."""
    width = max(map(len, entries), default=0)
    for name, value in entries.items():
        _write(f"{name:<{width}}  {safe(str(value))}")


def block(text: str) -> None:
    """Print several lines that fpdb made itself."""
    for line in text.splitlines():
        _write(safe(line))


def _write(line: str) -> None:
    try:
        sys.stdout.write(line + "\n")
    except OSError as error:
        _give_up(error)
        raise typer.Exit(0) from None


def flush() -> None:
    """Bring everything out; a reader that has gone is no error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _give_up(error)


def _give_up(error: OSError) -> None:
    """Stop writing: whoever read has enough, as head does; any other reason is an error."""
    # Python would complain once more at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        raise FpdbError(
            f"standard output can't be written: {error.strerror}", hint="is the disk full?"
        ) from None


def note(message: str) -> None:
    """Tell the user something that is no data."""
    sys.stderr.write(safe(message) + "\n")


def fail(error: FpdbError) -> None:
    """Show an error and its cure."""
    note(f"error: {error}")
    if error.hint:
        note(f"hint: {error.hint}")
