"""Read texts from files or standard input: whole, or one from each line."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from fpdb.errors import InputError
from fpdb.io import streams
from fpdb.models import LARGEST_TEXT


@dataclass(frozen=True)
class Text:
    """A text, where it came from, and whether bytes that are no UTF-8 had to be replaced."""

    source: str
    text: str
    replaced: bool = False


def read_text(path: str, largest: int = LARGEST_TEXT) -> Text:
    """Read one file, or standard input when the path is "-", as one text."""
    with _named(path), streams.opened(path) as stream:
        found = streams.whole(stream, largest)
    if found is None:
        raise _too_long(path, largest)
    return Text(path, *found)


def read_lines(path: str, largest: int = LARGEST_TEXT) -> Iterator[Text]:
    """Read a text from each line of a file, or of standard input when the path is "-"."""
    with _named(path), streams.opened(path) as stream:
        for number, line, replaced in streams.lines(stream, largest, go_on=False):
            source = f"{path}:{number}"
            if isinstance(line, streams.TooLong):
                raise _too_long(source, largest)
            yield Text(source, line.rstrip("\r\n"), replaced)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Name the file when opening or reading it fails."""
    try:
        yield
    except streams.StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint) from None


def _too_long(source: str, largest: int) -> InputError:
    return InputError(
        f"{source} holds more than {largest} bytes in one text",
        hint=f"--max-bytes {4 * largest} allows more; is each text on a line of its own?",
    )
