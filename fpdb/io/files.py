"""Files, directories and standard input as records: the formats, and the parts for threads.

Independent lines are only cut here, and so are the names of text files and pages; threads make
records of them. Other formats must be read from their beginning on, so their parts hold the
records.
"""

import contextlib
import os
import re
import select
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, takewhile
from typing import IO, Any, TypeVar

from fpdb.arrays import Marks
from fpdb.errors import InputError, MissingExtraError
from fpdb.io import arrow, streams, tables
from fpdb.io.batches import TOO_LONG, Part, RecordBatch, json_fields, json_rows, picked
from fpdb.io.html import Page, as_html, record_of_page, require_html
from fpdb.io.office import read_office, require_pdf
from fpdb.io.paths import walk
from fpdb.io.records import BadRecord, LeftOut, Reading, Record, picker
from fpdb.io.streams import UNWATCHED, Line, StreamError, TooLong, Watch
from fpdb.io.tables import FieldColumns, Named
from fpdb.io.wacz import ARCHIVES
from fpdb.models import LARGEST_TEXT
from fpdb.progress import announce
from fpdb.storage.lmdb_file import DATA_FILE

Item = TypeVar("Item")

PART = 1000
PART_BYTES = 1 << 22
# Bytes that are cut into lines together.
_LINES_BYTES = 1 << 20
# After this time of waiting for a slow source, the records that are there become a part.
_PART_SECONDS = 1.0
# Bytes that are read of a pipe at once.
_PIPE_BYTES = 1 << 18
_ANY = Reading()
# The similarity of two documents in a table of pairs.
_SHARE = re.compile(r"[01]?\.[0-9]{1,20}|[0-9](?:\.[0-9]{1,20})?e-?[0-9]{1,3}")
# How an array of objects begins.
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\{")


@dataclass(frozen=True)
class Format:
    """How the records of a file are found.

    If `by_line`, each line can be read by itself; a file may be one `document`. What is read
    `by_path` must be on the disk, because its reader seeks in it.
    """

    document: "Callable[[Source], Record | BadRecord] | None" = None
    has_fields: bool = False
    is_table: bool = False
    by_line: bool = False
    by_path: bool = False


@dataclass(frozen=True)
class Source:
    """A file that is read, the name that its texts go by, and how it is read.

    `problem` says why it can't be read. Of the rows of a Parquet file, some may be `marked`: then
    only these are read.
    """

    path: str
    name: str
    form: str
    reading: Reading
    problem: str = ""
    size: int = 0
    watch: Watch = UNWATCHED
    marked: Marks | None = None

    @property
    def format(self) -> Format:
        """How its records are found."""
        return FORMATS[self.form]

    def chunks(self) -> Iterator[bytes]:
        """Read the file, decompressed, text as UTF-8; raise StreamError if it is in no format."""
        if self.form == "html":  # which has clues of its own
            return streams.chunks(self.path, self.watch)
        chunks = streams.text_chunks(self.path, self.reading.encoding, self.watch)
        first = next(chunks, b"")
        if self.form == "jsonl" and _ARRAY.match(first):
            raise StreamError(
                "is a JSON array, expected JSON lines: jq -c '.[]' a.json > a.jsonl makes them"
            )
        return chain([first], chunks)

    def lines(self) -> Iterator[Line]:
        return streams.decoded(streams.raw_lines(self.chunks(), self.reading.max_bytes))


def read_records(
    path: str, reading: Reading = _ANY, watch: Watch = UNWATCHED
) -> Iterator[Record | BadRecord]:
    """Read the records of a file, of all files of a directory, or of standard input ("-").

    A path that can't be read, an unknown format, and columns that can't be there, are an InputError
    at once. All else is a BadRecord: one for each record, one for the rest of a damaged file.
    """
    return read_sources(sources_of(path, reading, watch))


def _broken(path: str, error: StreamError) -> BadRecord:
    return BadRecord(path, str(error), error.hint, is_file=True)


def read_sources(sources: Iterable[Source]) -> Iterator[Record | BadRecord]:
    return chain.from_iterable(part() for part in parts_of(sources, prompt=True))


def read_texts(path: str, form: str | None = None, largest: int = LARGEST_TEXT) -> Iterator[str]:
    """Yield the texts of a file, or of standard input ("-"); raise InputError at one that is bad.

    If no format is given, the file is one document of HTML or Word, or else a plain text.
    """
    streams.check_file(path)
    if form is None:
        usual = _known(path, "text")
        form = usual if FORMATS[usual].document else "text"
    form = _choose(path, replace(_ANY, format=form))
    source = Source(path, path, form, replace(_ANY, keyed=False, max_bytes=largest))
    for record in read_sources([source]):
        if isinstance(record, BadRecord):
            raise InputError(f"{record.source} {record.reason}", hint=record.hint)
        yield record.text or ""


def read_rows(path: str, reading: Reading) -> Iterator[tuple[int, Mapping[str, Any]] | BadRecord]:
    """Yield the number and the fields of each row of a table or of JSON lines, as soon as it comes.

    Standard input ("-") is TSV, as is a file whose suffix names no format with fields. Errors are
    those of `read_records`.
    """
    form = _known(path, "tsv")
    form = reading.format or (form if FORMATS[form].has_fields else "tsv")
    for source in sources_of(path, replace(reading, format=form)):
        try:
            rows = (
                json_rows(source.lines(), reading.max_bytes)
                if form == "jsonl"
                else chain.from_iterable(block.rows() for block in read_columns(source, most=1))
            )
            for number, fields, replaced in rows:
                row = streams.NOT_DECODED if replaced else fields
                yield BadRecord(f"{path}:{number}", row) if isinstance(row, str) else (number, row)
        except StreamError as error:
            yield _broken(path, error)


def read_pairs(path: str, largest: int = LARGEST_TEXT) -> Iterator[tuple[str, str, float | bool]]:
    """Yield the rows of a TSV or CSV file of pairs: two keys, and a similarity or a label.

    The first row may name the columns instead. Standard input ("-") is TSV.
    """
    form = "csv" if _known(path, "tsv") == "csv" else "tsv"
    reading = Reading(form, key_field="1", text_field="2", meta_field="3", max_bytes=largest)
    for place, pair in enumerate(read_records(path, reading)):
        if isinstance(pair, BadRecord):
            raise InputError(f"{pair.source}: {pair.reason}", hint=pair.hint)
        written = str((pair.meta or {}).get("3", "")).strip().lower()
        is_share = _SHARE.fullmatch(written) and float(written) <= 1
        if is_share or written in ("0", "1"):
            yield str(pair.key), pair.text or "", float(written) if is_share else written == "1"
        elif place or not pair.meta:
            raise InputError(
                f"{pair.source}: found {written[:40]!r}, expected a similarity, or 1 or 0",
                hint="give key, key and a similarity such as 0.85, or 1 and 0",
            )


def read_parts(
    path: str, reading: Reading = _ANY, watch: Watch = UNWATCHED, *, size: int = PART
) -> Iterator[Part]:
    """Cut a file, a directory or standard input into parts, as `parts_of` does.

    The parts, one after the other, hold the records of `read_records`, and errors are the same.
    """
    return parts_of(sources_of(path, reading, watch), size)


def check_path(path: str, reading: Reading) -> str:
    """Return the format of a file, empty for a directory; raise InputError if none fits."""
    streams.check_file(path)
    if reading.all_html:
        require_html()
    folder = path != "-" and os.path.isdir(path)
    if folder and os.path.exists(os.path.join(path, DATA_FILE)):
        raise InputError(
            f"{path} is a database, expected files with texts",
            hint="a database keeps no texts: name the files that its documents came from",
        )
    form = _choose(path, reading, "text" if folder else None)
    if reading.given and not folder and not FORMATS[form].has_fields:
        raise InputError(
            f"{path}: fields are given, but each text is all there is",
            hint="leave the fields out, or give the format of records: jsonl, tsv, csv, parquet",
        )
    return "" if folder else form


def _known(path: str, default: str) -> str:
    """Return the format of the suffix, or the default; raise InputError if none can be read."""
    suffix = streams.suffix_of(path)
    return _choose(path, _ANY) if suffix in streams.CURES else streams.SUFFIXES.get(suffix, default)


def _choose(path: str, reading: Reading, default: str | None = None) -> str:
    """Choose the format that is given, or the one of the suffix, or the default."""
    form = reading.format
    if form is not None and form not in FORMATS:
        raise InputError(f"found the format {form!r}, expected one of {', '.join(FORMATS)}")
    suffix = streams.suffix_of(path)
    form = form or streams.SUFFIXES.get(suffix, "jsonl" if path == "-" else default)
    if form is None:
        raise InputError(
            f"{path}: found the suffix {suffix!r}, expected one of {', '.join(streams.SUFFIXES)}",
            hint=streams.CURES.get(suffix, f"name its format: {', '.join(FORMATS)}"),
            parameter="" if suffix in streams.CURES else "format",
        )
    if FORMATS[form].is_table:
        tables.check_columns(reading)
    if FORMATS[form].by_path:
        if FORMATS[form].has_fields:
            arrow.require()
        if path == "-" or streams.unpacked_name(path) != path:
            raise InputError(
                f"{path}: {form} is read from files, found a stream",
                hint="save it to a file, unpacked: it is packed inside",
            )
    if form == "text" and reading.all_html:
        form = "html"
    if form in ("html", *ARCHIVES):
        require_html()
    if form == "pdf":
        require_pdf()
    return form


def sources_of(path: str, reading: Reading, watch: Watch = UNWATCHED) -> Iterator[Source]:
    """Check a path at once, and return an iterator over its files, usable or not."""
    form = check_path(path, reading)
    if form:
        return iter([Source(path, path, form, reading, watch=watch)])
    return _inside(path, reading, watch)


def _inside(folder: str, reading: Reading, watch: Watch) -> Iterator[Source]:
    """Yield the files of a directory that may hold documents, and announce the others."""
    left_out: Counter[str] = Counter()
    no_texts = LeftOut()
    for file in walk(folder, left_out):
        form, problem, reason = "text", file.problem, ""
        try:
            form = _choose(file.path, reading, "text")
        except InputError as error:
            problem = problem or str(error)
        except MissingExtraError as error:
            if streams.SUFFIXES.get(streams.suffix_of(file.path)) != "pdf":
                raise
            reason = f"isn't text: {error.hint}"
        if form == "text" and not problem:
            reason = reason or _reason_of_no_text(file.path, reading.format)
        if reason:
            left_out["files that aren't text"] += 1
            no_texts.add(file.path, reason)
            watch.leave_out(file.path, reason)
            watch.progress(file.size)
        else:
            yield Source(file.path, file.name, form, reading, problem, file.size, watch)
    if left_out := +left_out:
        counts = ", ".join(f"{what} {count:,}" for what, count in sorted(left_out.items()))
        announce(f"{folder}: left out: {counts}")
    for names, reason in no_texts.named():
        announce(f"{names}: {reason}")


def _reason_of_no_text(path: str, form: str | None) -> str:
    """Return why a file in a directory is no text, and how to make one; empty if it is one."""
    if streams.unpacked_name(path) != path:
        return ""
    cure = streams.CURES.get(streams.suffix_of(path))
    if cure and form is None:
        return f"isn't text: {cure}"
    try:
        with streams.opened(path) as file:
            return streams.reason_of_binary(file.read(streams.BEGINNING))
    except (OSError, StreamError):  # which is reported when it is read
        return ""


def parts_of(
    sources: Iterable[Source], size: int = PART, *, prompt: bool = False
) -> Iterator[Part]:
    """Cut files into parts of at most `size` lines, pages or files; if wanted, as lines come."""
    for are_documents, files in groupby(sources, _is_document):
        if are_documents:
            for group in _groups(files, size, _weight):
                watch = group[0].watch
                plain = Watch(tell=watch.tell, stopped=watch.stopped)
                documents = [replace(source, watch=plain) for source in group]
                yield partial(_records, _document, documents, watch)
                watch.progress(sum(source.size for source in group))
            continue
        for source in files:
            try:
                if source.format.by_line:
                    yield from line_parts(source, size, prompt=prompt)
                elif source.format.has_fields:
                    for columns in read_columns(source):
                        yield partial(_batch, columns, source)
                else:
                    for pages in _groups(_pages(source), size, _length):
                        finish = partial(record_of_page, reading=source.reading)
                        yield partial(_records, finish, pages, source.watch)
            except StreamError as error:
                yield partial(RecordBatch.of, [_broken(source.path, error)])


def _is_document(source: Source) -> bool:
    return bool(source.problem or source.format.document)


def line_parts(source: Source, size: int, *, prompt: bool = False) -> Iterator[Part]:
    """Cut a file whose lines are independent into parts, as `LineParts` does.

    If it can't be read to its end, StreamError is raised after the lines before.
    """
    lines = LineParts(source, size)
    prompt &= not os.path.isfile(source.path)  # which doesn't let anybody wait
    waited, started = 0.0, time.monotonic()
    try:
        for chunk in source.chunks():
            waited += time.monotonic() - started
            yield from lines.feed(chunk)
            if prompt or waited > _PART_SECONDS:
                yield from lines.ended()
                waited = 0.0
            # The time that storing takes between two chunks doesn't count.
            started = time.monotonic()
    except StreamError:
        yield from lines.ended()
        raise
    yield from lines.finish()


class LineParts:
    """Cuts bytes into parts of at most `size` lines, a megabyte at a time."""

    def __init__(self, source: Source, size: int) -> None:
        self._source, self._size = source, size
        self._first = 1
        # Whole lines, and the beginning of one that hasn't ended, in pieces.
        self._whole, self._lines, self._bytes = list[bytes](), 0, 0
        self._open, self._open_bytes = list[bytes](), 0

    def feed(self, data: bytes) -> Iterator[Part]:
        """Take bytes, and yield the parts that are full."""
        ends, done, start = streams.line_ends(data), 0, 0
        while done < len(ends):
            lines = min(self._size - self._lines, len(ends) - done)
            done += lines
            stop = int(ends[done - 1])
            self._whole += [*self._open, data[start:stop]]
            self._lines += lines
            self._bytes += self._open_bytes + stop - start
            self._open, self._open_bytes, start = [], 0, stop
            if self._lines == self._size or self._bytes >= _LINES_BYTES:
                yield from self.ended()
        # A line that is too long stays so without its end.
        if self._open_bytes <= self._source.reading.max_bytes + streams.UNCOUNTED:
            self._open.append(data[start:])
            self._open_bytes += len(data) - start

    def ended(self) -> Iterator[Part]:
        """Yield the lines that ended so far."""
        if self._lines:
            part = partial(_line_batch, self._whole, self._first, self._source)
            self._first += self._lines
            self._whole, self._lines, self._bytes = [], 0, 0
            yield part

    def finish(self) -> Iterator[Part]:
        """Yield the last lines, one of which may have no end."""
        if self._open_bytes:
            yield from self.feed(b"\n")
        yield from self.ended()


def stream_parts(file: IO[bytes] | None, reading: Reading) -> Iterator[Part]:
    """Yield the JSON lines that come through a pipe, by default standard input.

    Parts are never kept back to become larger.
    """
    lines = LineParts(Source("-", "-", "jsonl", reading), PART)
    with (
        streams.named("-"),
        streams.explained(),
        streams.opened("-") if file is None else contextlib.nullcontext(file) as pipe,
    ):
        # Not through the buffer, whose content select wouldn't see.
        number = pipe.fileno()
        while data := os.read(number, _PIPE_BYTES):
            yield from lines.feed(data)
            if b"\n" in data and not select.select([number], [], [], 0)[0]:
                yield from lines.ended()
    yield from lines.finish()


def _weight(source: Source) -> int:
    # What is compressed may have any size, so it is a part of its own.
    return source.size if streams.unpacked_name(source.path) == source.path else PART_BYTES


def _length(page: Page | BadRecord) -> int:
    return len(page.data) if isinstance(page, Page) else 0


def _groups(
    items: Iterable[Item], size: int, weight: Callable[[Item], int]
) -> Iterator[list[Item]]:
    group: list[Item] = []
    room = PART_BYTES
    for item in items:
        group.append(item)
        room -= weight(item)
        if len(group) == size or room <= 0:
            yield group
            group, room = [], PART_BYTES
    if group:
        yield group


def _batch(fields: FieldColumns, source: Source) -> RecordBatch:
    """Make records of some rows of a file."""
    batch = picked(fields, f"{source.path}:", _reading_of(source))
    if source.reading.all_html:
        for place, record in enumerate(batch):
            if source.watch.stopped():
                break
            batch.put(place, as_html(record, source.reading))
    return batch


def _line_batch(lines: Sequence[bytes], first: int, source: Source) -> RecordBatch:
    """Make records of whole lines, which are numbered from the first one on."""
    largest = source.reading.max_bytes
    if source.form == "jsonl":
        return _batch(json_fields(lines, first, largest), source)
    raw = streams.raw_lines(lines, largest, begun=first > 1)
    rows: Iterator[Named] = (
        (number, TOO_LONG.format(largest), replaced)
        if isinstance(line, TooLong)
        else (number, {"key": f"{source.name}:{number}", "text": line.rstrip("\r")}, replaced)
        for number, line, replaced in streams.decoded(raw, first)
        if isinstance(line, TooLong) or line.strip("\r")
    )
    return _batch(FieldColumns.of_rows(rows), source)


def _reading_of(source: Source) -> Reading:
    """Return how records are made of fields, whose names are usual where a format gives them."""
    reading = source.reading
    return reading if source.format.has_fields else replace(_ANY, meta_field=reading.kept)


def _document(source: Source) -> Record | BadRecord:
    read = source.format.document
    if source.problem or not read:
        return BadRecord(source.path, source.problem, is_file=True)
    try:
        return read(source)
    except StreamError as error:
        return _broken(source.path, error)


def _pages(source: Source) -> Iterator[Page | BadRecord]:
    """Yield the pages of a web archive, whose texts are still to be found."""
    try:
        with streams.opened(source.path) as file:
            yield from ARCHIVES[source.form](source.path, file, source.reading, source.watch)
    except StreamError as error:
        yield _broken(source.path, error)


def _records(
    make: Callable[[Item], Record | BadRecord], items: Iterable[Item], watch: Watch
) -> RecordBatch:
    """Make a record of each item, as long as somebody waits for them."""
    return RecordBatch.of(map(make, takewhile(lambda _: not watch.stopped(), items)))


def read_columns(source: Source, **most: int) -> Iterator[FieldColumns]:
    """Yield the rows of a table as columns, some at a time."""
    reading = source.reading
    if source.format.by_path:
        return arrow.blocks_of_columns(source.path, reading, source.watch, source.marked)
    rows = tables.rows_of(source.form, source.lines(), reading)
    return tables.named_columns(rows, reading, **most)


def _whole(source: Source, fields: Mapping[str, Any], *, replaced: bool) -> Record | BadRecord:
    record = picker(_reading_of(source))(source.path, {"key": source.name, **fields}, replaced)
    return as_html(record, source.reading) if source.reading.all_html else record


def _text(source: Source) -> Record | BadRecord:
    text, replaced = streams.one_text(source.path, source.chunks(), source.reading.max_bytes)
    return _whole(source, {"text": text}, replaced=replaced)


def _office(source: Source) -> Record | BadRecord:
    fields = read_office(source.path, source.reading.max_bytes)
    source.watch.progress(os.path.getsize(source.path))
    return _whole(source, fields, replaced=False)


def _html(source: Source) -> Record | BadRecord:
    data = streams.join_chunks(source.chunks(), source.reading.max_bytes)
    label = source.reading.encoding
    kind = f"text/html; charset={label}" if label else ""
    return record_of_page(Page(source.path, source.name, data, content_type=kind), source.reading)


FORMATS = {
    "jsonl": Format(has_fields=True, by_line=True),
    "tsv": Format(has_fields=True, is_table=True),
    "csv": Format(has_fields=True, is_table=True),
    "parquet": Format(has_fields=True, by_path=True),
    "lines": Format(by_line=True),
    "text": Format(_text),
    "html": Format(_html),
    "docx": Format(_office, by_path=True),
    "odt": Format(_office, by_path=True),
    "pdf": Format(_office, by_path=True),
    "warc": Format(),
    "wacz": Format(by_path=True),
}
