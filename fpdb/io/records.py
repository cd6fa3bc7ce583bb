"""Read records from files, directories or standard input; a bad one never ends the stream."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Literal

from fpdb.errors import InputError
from fpdb.io import arrow, folders, streams
from fpdb.io.fields import BadRecord, Fields, Pick, Record, UnfitError, picker
from fpdb.io.formats import FORMATS, Format, Source, format_of, marked_format
from fpdb.io.html import LARGEST_HTML, require_html
from fpdb.io.markup import Found, Markup, Page, finished, marked
from fpdb.io.streams import Idle, Progress, StreamError
from fpdb.io.tables import check_columns
from fpdb.io.texts import Text
from fpdb.io.warc import Passing, read_pages
from fpdb.models import LARGEST_TEXT

_DEFAULT = Fields()
_MARKUP = Markup()


@dataclass(frozen=True)
class Reading:
    """How files become records: their format, which fields mean what, what is HTML, and limits.

    - `format`: one of `FORMATS`; if not given, the suffix decides, and standard input is JSON lines
    - `key_field`: if not given, the first of "key", "id" and "url" that is there
    - `text_field`: several are joined by a line feed; if not given, the first of "text", "content"
      and "body" that is there, or none when a fingerprint is given
    - `meta_field`: fields to keep as metadata; "*" keeps all others
    - `fingerprint_field`: a field with a ready fingerprint
    - `base`: how fingerprints in quotes or tables are written, "hex" or "decimal"
    - `header`: whether the first line of a table names its columns; if not given, it does unless
      all fields are numbers. Columns without names are "1", "2" and so on.
    - `keyed`: whether a record must have a key
    - `html`: "auto" takes .html files and what a web archive calls HTML, "html" all texts, "none"
      nothing
    - `html_text`: the "main" content of a page, or all of the "page"
    - `max_html`: the most bytes of HTML that a page may have
    - `max_bytes`: the most bytes that a text may have
    """

    format: str | None = None
    key_field: str | None = None
    text_field: str | Sequence[str] = ()
    meta_field: str | Sequence[str] = ()
    fingerprint_field: str | None = None
    base: Literal["hex", "decimal"] = "hex"
    header: bool | None = None
    keyed: bool = True
    html: Literal["auto", "html", "none"] = "auto"
    html_text: Literal["main", "page"] = "main"
    max_html: int = LARGEST_HTML
    max_bytes: int = LARGEST_TEXT

    @property
    def fields(self) -> Fields:
        """Which fields mean what."""
        return Fields(
            key=self.key_field,
            text=_several(self.text_field),
            meta=_several(self.meta_field),
            fingerprint=self.fingerprint_field,
            fingerprint_base=self.base,
            header=self.header,
            keyed=self.keyed,
        )

    @property
    def markup(self) -> Markup:
        """What is HTML, and what of it is taken."""
        return Markup(self.html, self.html_text, self.max_html)

    def check(self, *paths: str) -> None:
        """Raise InputError if any of the paths can't be read, or not in this way."""
        for path in paths:
            open_path(path, self.format, self.fields, self.max_bytes, self.markup)


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def read_records(
    path: str,
    *,
    format: str | None = None,  # noqa: A002
    fields: Fields = _DEFAULT,
    max_bytes: int = LARGEST_TEXT,
    markup: Markup = _MARKUP,
    progress: Progress | None = None,
) -> Iterator[Record | BadRecord]:
    """Read the records of a file, of all files of a directory, or of standard input ("-").

    The format is told by the suffix, with .gz and .zst read through; standard input is JSONL
    unless `format` says otherwise, and is unpacked if it begins like gzip or zstd. A record of
    more than `max_bytes` is a bad one. `markup` says what is HTML. `progress` is told how many
    bytes were read.

    A path that can't be read, an unknown format, and columns that can't be, are an InputError at
    once. All else is a BadRecord: one for each record, one for the rest of a broken file.
    """
    reader, chosen = open_path(path, format, fields, max_bytes, markup)
    if chosen is None:
        return reader.folder(path, format, progress)
    return reader.file(path, path, chosen, progress)


def read_rows(path: str, max_bytes: int = LARGEST_TEXT) -> Iterator[Text]:
    """Read a text from each row of a table; the key is its source, if there is one."""
    for record in read_records(path, fields=Fields(keyed=False), max_bytes=max_bytes):
        if isinstance(record, BadRecord):
            raise InputError(
                f"{record.source}: {record.reason}",
                hint="fpdb ingest and query skip such rows, and take other columns",
            )
        source = record.source if record.key is None else str(record.key)
        yield Text(source, record.text or "", record.replaced)


def open_path(
    path: str, given: str | None, fields: Fields, max_bytes: int, markup: Markup
) -> tuple["Reader", Format | None]:
    """Check a path, and say how to read it; a directory has no format."""
    if max_bytes < 1:
        raise InputError(f"found max_bytes {max_bytes}, expected 1 or more")
    try:
        streams.check(path)
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint) from None
    folder = path != "-" and os.path.isdir(path)
    chosen = marked_format(format_of(path, given, "text" if folder else None), markup)
    if chosen.packed or (markup.html == "auto" and chosen is FORMATS["html"]):
        require_html()
    if chosen.is_table:
        check_columns(fields)
    if chosen.by_path:
        _check_file(path)
    reader = Reader(fields, min(max_bytes, sys.maxsize // 2), markup)
    if folder:
        return reader, None
    if replace(fields, keyed=True) != _DEFAULT and not chosen.has_fields:
        raise InputError(
            f"{path}: fields are given, but each text is all there is",
            hint="leave the fields out, or give the format of records: jsonl, tsv, csv, parquet",
        )
    return reader, chosen


def _check_file(path: str) -> None:
    """Refuse a stream where a whole file is needed."""
    arrow.require()
    if path == "-" or streams.unpacked_name(path) != path:
        raise InputError(
            f"{path}: Parquet and Arrow are read from files, found a stream",
            hint="save it to a file, unpacked: they are packed inside",
        )


@dataclass(frozen=True)
class Reader:
    """Reads one file after the other in the same way."""

    fields: Fields
    largest: int
    markup: Markup = _MARKUP

    def folder(
        self, path: str, given: str | None, progress: Progress | None
    ) -> Iterator[Record | BadRecord]:
        """Read all files of a directory."""
        for entry in folders.walk(path):
            chosen = self.choose(entry, given)
            if isinstance(chosen, BadRecord):
                yield chosen
            else:
                yield from self.file(entry.path, entry.name, chosen, progress)

    def choose(self, entry: folders.Entry, given: str | None) -> Format | BadRecord:
        """Choose the format of a file in a directory, or say why it can't be read."""
        if entry.problem:
            return BadRecord(entry.path, entry.problem)
        chosen = marked_format(format_of(entry.name, given, "text"), self.markup)
        try:
            if chosen.is_table:
                check_columns(self.fields)
            if chosen.by_path:
                _check_file(entry.path)
        except InputError as error:
            return BadRecord(entry.path, str(error))
        return chosen

    def file(
        self,
        path: str,
        name: str,
        chosen: Format,
        progress: Progress | None = None,
        idle: Idle | None = None,
    ) -> Iterator[Record | BadRecord]:
        """Read one file."""
        found = self.unfinished(path, name, chosen, progress=progress, idle=idle)
        return finished(found, self.markup)

    def unfinished(
        self,
        path: str,
        name: str,
        chosen: Format,
        *,
        progress: Progress | None = None,
        idle: Idle | None = None,
        passing: Passing | None = None,
    ) -> Iterator[Found]:
        """Read one file; its pages are still to be decoded, and their texts to be found."""
        try:
            if chosen.by_path:
                source = Source(io.BytesIO(), name, self.fields, self.largest, path=path)
                yield from self._found(path, chosen, source)
                if progress:
                    progress(os.path.getsize(path))
                return
            if chosen.packed:
                with streams.raw(path, progress, idle) as chunks:
                    yield from read_pages(path, chunks, self.markup, self.largest, passing)
                return
            with streams.opened(path, progress, idle) as stream:
                if chosen.find is None:
                    yield self._page(path, name, stream)
                    return
                source = Source(stream, name, self.fields, self.largest)
                yield from self._found(path, chosen, source)
        except StreamError as error:
            yield BadRecord(path, str(error))

    def found(self, path: str, chosen: Format, source: Source) -> Iterator[Record | BadRecord]:
        """Make records of what a format finds."""
        return finished(self._found(path, chosen, source), self.markup)

    def _found(self, path: str, chosen: Format, source: Source) -> Iterator[Found]:
        pick = picker(self.fields if chosen.has_fields else _DEFAULT)
        for number, found, replaced in chosen.find(source) if chosen.find else ():
            record = _record(pick, f"{path}:{number}" if number else path, found, replaced)
            yield marked(record, self.markup)

    def _page(self, path: str, name: str, stream: IO[bytes]) -> Page | BadRecord:
        """Take a file as a page."""
        data = bytearray()
        while piece := stream.read(min(self.markup.largest + 1 - len(data), 1 << 18)):
            data += piece
        if len(data) > self.markup.largest:
            return BadRecord(path, f"holds more than {self.markup.largest:,} bytes of HTML")
        return Page(path, name, bytes(data))


def _record(
    pick: Pick,
    source: str,
    found: dict[str, Any] | str,
    replaced: bool,  # noqa: FBT001
) -> Record | BadRecord:
    if isinstance(found, str):
        return BadRecord(source, found)
    try:
        return pick(source, found, replaced)
    except UnfitError as error:
        return BadRecord(source, str(error))
    except RecursionError:
        return BadRecord(source, "is nested too deeply")
