"""The formats as data: how each finds the records of a stream, and which suffixes tell it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import IO, Any

from fpdb.errors import InputError
from fpdb.io import arrow, streams
from fpdb.io.fields import Fields
from fpdb.io.markup import Markup
from fpdb.io.portable import PORTABLE
from fpdb.io.streams import TooLong
from fpdb.io.tables import Line, Row, csv_rows, named, tsv_rows

# The line, or 0 for all of the stream; the fields, or the reason why there are none; whether
# bytes were replaced.
Found = tuple[int, dict[str, Any] | str, bool]


@dataclass(frozen=True)
class Source:
    """What a format reads: a stream, the name that its texts go by, and how they are to be read.

    Instead of the stream there may be some lines that were read from it, from line `first` on, or
    the path of a file that is read by itself.
    """

    stream: IO[bytes]
    name: str
    fields: Fields
    largest: int
    taken: Sequence[bytes | TooLong] | None = None
    first: int = 1
    path: str = ""

    def lines(self) -> Iterator[Line]:
        """Read the stream line by line."""
        if self.taken is not None:
            return streams.decoded(self.taken, self.first)
        return streams.lines(self.stream, self.largest)


@dataclass(frozen=True)
class Format:
    """How the records of a stream are found.

    `by_line` if each line can be read by itself, `whole` if a file is one document, `packed` if
    the format knows itself how its files are compressed, `by_path` if only a file on the disk will
    do, because it is read from its end.
    """

    find: Callable[[Source], Iterator[Found]] | None = None
    has_fields: bool = False
    is_table: bool = False
    by_line: bool = False
    by_path: bool = False
    whole: bool = False
    packed: bool = False


def _jsonl(source: Source) -> Iterator[Found]:
    loads = json.loads
    for number, line, replaced in source.lines():
        if isinstance(line, TooLong):
            yield number, f"holds more than {source.largest} bytes in one line", replaced
            continue
        if line.isspace():
            continue
        found: dict[str, Any] | str
        try:
            found = loads(line)
        except RecursionError:
            found = "is nested too deeply"
        except json.JSONDecodeError as error:
            found = f"is no JSON: {error.msg} at column {error.colno}"
        except ValueError:
            found = "holds a number with too many digits"
        else:
            if type(found) is not dict:
                found = "is JSON, but no object"
            elif number == 1 and PORTABLE in found:
                found = "is the portable form of a database, expected a document: use fpdb load"
        yield number, found, replaced


def _table(rows: Callable[[Iterator[Line], int], Iterator[Row]], source: Source) -> Iterator[Found]:
    yield from named(rows(source.lines(), source.largest), source.fields)


def _lines(source: Source) -> Iterator[Found]:
    for number, line, replaced in source.lines():
        if isinstance(line, TooLong):
            yield number, f"holds more than {source.largest} bytes in one line", replaced
        elif text := line.rstrip("\r\n"):
            yield number, {"key": f"{source.name}:{number}", "text": text}, replaced


def _text(source: Source) -> Iterator[Found]:
    found = streams.whole(source.stream, source.largest)
    if found is None:
        yield 0, f"holds more than {source.largest} bytes in one text", False
    else:
        yield 0, {"key": source.name, "text": found[0]}, found[1]


def _parquet(source: Source) -> Iterator[Found]:
    return arrow.parquet_rows(source.path, source.fields, source.largest)


def _arrow(source: Source) -> Iterator[Found]:
    return arrow.arrow_rows(source.path, source.fields, source.largest)


FORMATS = {
    "jsonl": Format(_jsonl, has_fields=True, by_line=True),
    "tsv": Format(partial(_table, tsv_rows), has_fields=True, is_table=True),
    "csv": Format(partial(_table, csv_rows), has_fields=True, is_table=True),
    "parquet": Format(_parquet, has_fields=True, by_path=True),
    "arrow": Format(_arrow, has_fields=True, by_path=True),
    "lines": Format(_lines, by_line=True),
    "text": Format(_text, whole=True),
    "html": Format(whole=True),
    "warc": Format(packed=True),
}
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".tsv": "tsv",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".warc": "warc",
}


def is_table_file(path: str) -> bool:
    """Tell by its name whether a file holds a table of Parquet or Arrow."""
    name = SUFFIXES.get(PurePath(path).suffix.lower())
    return name is not None and FORMATS[name].by_path


def format_of(path: str, given: str | None, default: str | None = None) -> Format:
    """Choose the format that is given, or the one that the suffix tells, or the default."""
    if given is not None and given not in FORMATS:
        raise InputError(f"found the format {given!r}, expected one of {', '.join(FORMATS)}")
    suffix = PurePath(streams.unpacked_name(path)).suffix.lower()
    name = given or SUFFIXES.get(suffix, "jsonl" if path == "-" else default)
    if name is None:
        raise InputError(
            f"{path}: found the suffix {suffix!r}, expected one of {', '.join(SUFFIXES)}",
            hint=f"say which format it has: {', '.join(FORMATS)}",
        )
    return FORMATS[name]


def marked_format(chosen: Format, markup: Markup) -> Format:
    """Take files of texts as HTML, or files of HTML as texts, if all are to be taken so."""
    if markup.html == "html" and chosen is FORMATS["text"]:
        return FORMATS["html"]
    if markup.html == "none" and chosen is FORMATS["html"]:
        return FORMATS["text"]
    return chosen
