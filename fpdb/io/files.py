"""Files, directories and standard input as records: the formats, and the parts for threads.

Independent lines are only cut here, and so are the names of text files and pages; threads make
records of them. Other formats must be read from their beginning on, so their parts hold the
records.
"""

import contextlib
import glob
import os
import re
import select
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby
from typing import IO, Any, TypeVar, cast

from fpdb.arrays import Marks
from fpdb.errors import InputError
from fpdb.io import arrow, streams, tables
from fpdb.io.html import Found, Page, finished, require_html
from fpdb.io.office import read_office
from fpdb.io.records import BadRecord, Reading, Record, json_object, picker
from fpdb.io.streams import UNWATCHED, Line, StreamError, TooLong, Watch
from fpdb.io.tables import FieldColumns, Named
from fpdb.io.warc import read_pages
from fpdb.models import LARGEST_TEXT, PORTABLE
from fpdb.progress import Meter, announce
from fpdb.storage.lmdb_file import DATA_FILE

# Returns the records when it is called.
Part = Callable[[], Iterable[Record | BadRecord]]
Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
Each = TypeVar("Each")

# Files that are named when they are left out.
_MOST_NAMED = 10
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
_TOO_LONG = "holds more than {} bytes in one line"
# How an array of objects begins.
_ARRAY = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\{")


@dataclass(frozen=True)
class Format:
    """How the records of a file are found.

    `by_line` if each line can be read by itself, `by_path` if only a file on the disk can be read,
    because its reader seeks in it, `is_document` if a file is one document.
    """

    read: "Callable[[Source], Iterator[Found]]"
    has_fields: bool = False
    is_table: bool = False
    by_line: bool = False
    by_path: bool = False
    is_document: bool = False


@dataclass(frozen=True)
class Source:
    """A file that is read, the name that its texts go by, and how it is read.

    Instead of the file there may be whole lines that were `cut` from it, from line `first` on.
    `problem` says why it can't be read. Of the rows of a Parquet file, some may be `marked`: then
    only these are read.
    """

    path: str
    name: str
    form: str
    reading: Reading
    problem: str = ""
    size: int = 0
    cut: Sequence[bytes] | None = None
    first: int = 1
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
        chunks = self.chunks() if self.cut is None else self.cut
        raw = streams.raw_lines(chunks, self.reading.max_bytes, begun=self.first > 1)
        return streams.decoded(raw, self.first)

    def found(self) -> Iterator[Found]:
        """Yield what the file holds; the texts of pages are still to be found."""
        if self.problem:
            yield BadRecord(self.path, self.problem, is_file=True)
            return
        try:
            yield from self.format.read(self)
        except StreamError as error:
            yield _broken(self.path, error)

    def __call__(self) -> Iterator[Record | BadRecord]:
        return finished(self.found(), self.reading)


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
    return chain.from_iterable(source() for source in sources)


def read_texts(path: str, form: str | None = None, largest: int = LARGEST_TEXT) -> Iterator[str]:
    """Yield the texts of a file, or of standard input ("-"); raise InputError at one that is bad.

    If no format is given, the file is one document of HTML or Word, or else a plain text.
    """
    streams.check_file(path)
    if form is None:
        known = _known(path, "text")
        form = known if FORMATS[known].is_document else "text"
    form = _choose(path, replace(_ANY, format=form))
    for found in Source(path, path, form, replace(_ANY, keyed=False, max_bytes=largest))():
        if isinstance(found, BadRecord):
            raise InputError(f"{found.source} {found.reason}", hint=found.hint)
        yield found.text or ""


def read_rows(path: str, reading: Reading) -> Iterator[tuple[int, Mapping[str, Any]] | BadRecord]:
    """Yield the number and the fields of each row of a table or of JSON lines, as soon as it comes.

    Standard input ("-") is TSV, as is a file whose suffix names no format with fields. Errors are
    those of `read_records`.
    """
    form = _known(path, "tsv")
    form = reading.format or (form if FORMATS[form].has_fields else "tsv")
    for source in sources_of(path, replace(reading, format=form)):
        try:
            rows = _json(source) if form == "jsonl" else _table(source, most=1)
            for number, fields, replaced in rows:
                place = f"{path}:{number}"
                if replaced:
                    yield BadRecord(place, streams.NOT_DECODED)
                elif isinstance(fields, str):
                    yield BadRecord(place, fields)
                else:
                    yield number, fields
        except StreamError as error:
            yield _broken(path, error)


def read_pairs(path: str, largest: int = LARGEST_TEXT) -> Iterator[tuple[str, str, float | bool]]:
    """Yield the rows of a TSV or CSV file of pairs: two keys, and a similarity or a label.

    The first row may name the columns instead. Standard input ("-") is TSV.
    """
    form = "csv" if _known(path, "tsv") == "csv" else "tsv"
    reading = Reading(form, key_field="1", text_field="2", meta_field="3", max_bytes=largest)
    for place, found in enumerate(read_records(path, reading)):
        if isinstance(found, BadRecord):
            raise InputError(f"{found.source}: {found.reason}", hint=found.hint)
        written = str((found.meta or {}).get("3", "")).strip().lower()
        is_share = _SHARE.fullmatch(written) and float(written) <= 1
        if is_share or written in ("0", "1"):
            yield str(found.key), found.text or "", float(written) if is_share else written == "1"
        elif place or not found.meta:
            raise InputError(
                f"{found.source}: found {written[:40]!r}, expected a similarity, or 1 or 0",
                hint="give key, key and a similarity such as 0.85, or 1 and 0",
            )


def read_parts(
    path: str, reading: Reading = _ANY, watch: Watch = UNWATCHED, *, size: int = PART
) -> Iterator[Part]:
    """Cut a file, a directory or standard input into parts of at most `size` records.

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
    given = reading.format
    if given is not None and given not in FORMATS:
        raise InputError(f"found the format {given!r}, expected one of {', '.join(FORMATS)}")
    suffix = streams.suffix_of(path)
    form = given or streams.SUFFIXES.get(suffix, "jsonl" if path == "-" else default)
    if form is None:
        raise InputError(
            f"{path}: found the suffix {suffix!r}, expected one of {', '.join(streams.SUFFIXES)}",
            hint=streams.CURES.get(suffix, f"name its format: {', '.join(FORMATS)}"),
            parameter="" if suffix in streams.CURES else "format",
        )
    if FORMATS[form].is_table:
        tables.check_columns(reading)
    if FORMATS[form].by_path:
        if not FORMATS[form].is_document:
            arrow.require()
        if path == "-" or streams.unpacked_name(path) != path:
            raise InputError(
                f"{path}: {form} is read from files, found a stream",
                hint="save it to a file, unpacked: it is packed inside",
            )
    if form == "text" and reading.all_html:
        form = "html"
    if form in ("html", "warc"):
        require_html()
    return form


def sources_of(path: str, reading: Reading, watch: Watch = UNWATCHED) -> Iterator[Source]:
    """Check a path at once, and return an iterator over its files, of which any may be unusable."""
    form = check_path(path, reading)
    one = Source(path, path, form, reading, watch=watch)
    return iter([one]) if form else _inside(one)


class LeftOut(dict[str, list[str]]):
    """The first files that are left out, by the reasons."""

    def add(self, path: str, reason: str) -> None:
        """Take a file; one more than are named shows that there are more."""
        names = self.setdefault(reason, [])
        if len(names) <= _MOST_NAMED:
            names.append(path)

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield the names of files together, and their reason."""
        for reason, names in self.items():
            yield ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED), reason


def _inside(folder: Source) -> Iterator[Source]:
    """Yield the files of a directory that may hold documents, and announce what is left out."""
    left_out: Counter[str] = Counter()
    no_texts = LeftOut()
    for file in walk(folder, left_out):
        form, problem = "text", file.problem
        try:
            form = _choose(file.path, file.reading, "text")
        except InputError as error:
            problem = problem or str(error)
        reason = "" if form != "text" or problem else _reason_of_no_text(file)
        if reason:
            left_out["files that aren't text"] += 1
            no_texts.add(file.path, reason)
            file.watch.leave_out(file.path, reason)
            file.watch.progress(file.size)
        else:
            yield replace(file, form=form, problem=problem)
    if left_out := +left_out:
        counts = ", ".join(f"{what} {count:,}" for what, count in sorted(left_out.items()))
        announce(f"{folder.path}: left out: {counts}")
    for names, reason in no_texts.named():
        announce(f"{names}: {reason}")


def _reason_of_no_text(source: Source) -> str:
    """Return why a file in a directory is no text, and what makes one of it; empty if it is one."""
    if streams.unpacked_name(source.path) != source.path:
        return ""
    cure = streams.CURES.get(streams.suffix_of(source.path))
    if cure and source.reading.format is None:
        return f"isn't text: {cure}"
    try:
        with streams.opened(source.path) as file:
            return streams.reason_of_binary(file.read(streams.BEGINNING))
    except (OSError, StreamError):  # which is reported when it is read
        return ""


def parts_of(sources: Iterable[Source], size: int = PART) -> Iterator[Part]:
    """Cut files into parts of at most `size` records."""
    for together, some in groupby(sources, lambda one: bool(one.problem) or one.format.is_document):
        if together:
            for group in _groups(some, size, _weight):
                plain = [replace(each, watch=Watch(tell=each.watch.tell)) for each in group]
                yield partial(read_sources, plain)
                group[0].watch.progress(sum(each.size for each in group))
            continue
        for source in some:
            if not source.format.by_line:
                for found in _groups(source.found(), size, _length):
                    yield partial(finished, found, source.reading)
                continue
            try:
                yield from line_parts(source, size)
            except StreamError as error:
                yield partial(tuple, [_broken(source.path, error)])


def line_parts(source: Source, size: int) -> Iterator[Source]:
    """Cut a file whose lines are independent into parts, as `LineParts` does.

    If it can't be read to its end, StreamError is raised after the lines before.
    """
    lines = LineParts(source, size)
    waited, started = 0.0, time.monotonic()
    try:
        for chunk in source.chunks():
            waited += time.monotonic() - started
            yield from lines.feed(chunk)
            if waited > _PART_SECONDS:
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
        # Whole lines, and the beginning of one that hasn't ended, in pieces.
        self._whole, self._lines, self._bytes = list[bytes](), 0, 0
        self._open, self._open_bytes = list[bytes](), 0

    def feed(self, data: bytes) -> Iterator[Source]:
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

    def ended(self) -> Iterator[Source]:
        """Yield the lines that ended so far."""
        if self._lines:
            part = replace(self._source, cut=self._whole)
            self._source = replace(part, first=part.first + self._lines)
            self._whole, self._lines, self._bytes = [], 0, 0
            yield part

    def finish(self) -> Iterator[Source]:
        """Yield the last lines, of which one may have no end."""
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


def _length(item: Found) -> int:
    if isinstance(item, Page):
        return len(item.data)
    return len(item.text or "") + len(str(item.meta)) if isinstance(item, Record) else 0


def _groups(
    items: Iterable[Each], size: int, weight: Callable[[Each], int]
) -> Iterator[list[Each]]:
    group: list[Each] = []
    room = PART_BYTES
    for item in items:
        group.append(item)
        room -= weight(item)
        if len(group) == size or room <= 0:
            yield group
            group, room = [], PART_BYTES
    if group:
        yield group


def _picked(rows: Callable[[Source], Iterator[Named]], source: Source) -> Iterator[Found]:
    reading = source.reading
    pick = picker(reading if source.format.has_fields else replace(_ANY, meta_field=reading.kept))
    for number, fields, replaced in rows(source):
        place = f"{source.path}:{number}" if number else source.path
        found = pick(place, fields, replaced)
        if reading.all_html and isinstance(found, Record) and found.text is not None:
            yield Page(place, found.key, found.text, found.meta, replaced=replaced)
        else:
            yield found


def json_rows(lines: Iterable[Line], largest: int) -> Iterator[Named]:
    """Yield the fields of each line of JSON that isn't empty, or why there are none."""
    for number, line, replaced in lines:
        if isinstance(line, TooLong):
            yield number, _TOO_LONG.format(largest), replaced
            continue
        if not line or line.isspace():
            continue
        found = json_object(line)
        if number == 1 and PORTABLE in found and not isinstance(found, str):
            found = "is the portable form of a database, expected a document: use fpdb load"
        yield number, found, replaced


def _json(source: Source) -> Iterator[Named]:
    return json_rows(source.lines(), source.reading.max_bytes)


def read_columns(source: Source, **most: int) -> Iterator[FieldColumns]:
    """Yield the rows of a table as columns, some at a time."""
    reading = source.reading
    if source.format.by_path:
        return arrow.blocks_of_columns(source.path, reading, source.watch, source.marked)
    rows = tables.rows_of(source.form, source.lines(), reading)
    return tables.named_columns(rows, reading, **most)


def _table(source: Source, **most: int) -> Iterator[Named]:
    return chain.from_iterable(block.rows() for block in read_columns(source, **most))


def _lines(source: Source) -> Iterator[Named]:
    for number, line, replaced in source.lines():
        if isinstance(line, TooLong):
            yield number, _TOO_LONG.format(source.reading.max_bytes), replaced
        elif text := line.rstrip("\r"):
            yield number, {"key": f"{source.name}:{number}", "text": text}, replaced


def _text(source: Source) -> Iterator[Named]:
    text, replaced = streams.one_text(source.path, source.chunks(), source.reading.max_bytes)
    yield 0, {"key": source.name, "text": text}, replaced


def _office(source: Source) -> Iterator[Named]:
    fields = read_office(source.path, source.reading.max_bytes)
    source.watch.progress(os.path.getsize(source.path))
    yield 0, {"key": source.name, **fields}, False


def _html(source: Source) -> Iterator[Found]:
    data = streams.join_chunks(source.chunks(), source.reading.max_bytes)
    label = source.reading.encoding
    kind = f"text/html; charset={label}" if label else ""
    yield Page(source.path, source.name, data, content_type=kind)


def _warc(source: Source) -> Iterator[Found]:
    with streams.opened(source.path) as file:
        yield from read_pages(source.path, file, source.reading, source.watch)


def _format(rows: Callable[[Source], Iterator[Named]], **traits: bool) -> Format:
    return Format(partial(_picked, rows), **traits)


FORMATS = {
    "jsonl": _format(_json, has_fields=True, by_line=True),
    "tsv": _format(_table, has_fields=True, is_table=True),
    "csv": _format(_table, has_fields=True, is_table=True),
    "parquet": _format(_table, has_fields=True, by_path=True),
    "lines": _format(_lines, by_line=True),
    "text": _format(_text, is_document=True),
    "html": Format(_html, is_document=True),
    "docx": _format(_office, is_document=True, by_path=True),
    "odt": _format(_office, is_document=True, by_path=True),
    "warc": Format(_warc),
}


# So begin the names of files that programs write for themselves; the last are of an open Word.
_HIDDEN = (".", "_", "~$")


def walk(root: Source, left_out: Counter[str]) -> Iterator[Source]:
    """Yield all regular files, sorted; leave out databases, and links that lead out.

    Files whose names begin with a dot, _ or ~$, which programs write for themselves, are left out
    too. Files that are left out are counted. A link that leads to a file of the same directory
    counts as a file, one to a folder doesn't: its files are found where they are.
    """
    real = os.path.join(os.path.realpath(root.path), "")
    # A stack of its own, because a tree may be deeper than Python's.
    pending = [replace(root, name="")]
    while pending:
        entry = pending.pop()
        try:
            linked = entry.name and os.path.islink(entry.path)
            if linked and not os.path.join(os.path.realpath(entry.path), "").startswith(real):
                yield replace(entry, problem="is a link that leads out of the directory")
                continue
            status = os.stat(entry.path)
            if stat.S_ISREG(status.st_mode):
                yield replace(entry, size=status.st_size)
            elif stat.S_ISDIR(status.st_mode) and not linked:
                names = sorted(os.listdir(entry.path), reverse=True)
                if DATA_FILE in names:
                    left_out["databases"] += 1
                    continue
                shown = [name for name in names if not name.startswith(_HIDDEN)]
                left_out["hidden files, or with _"] += len(names) - len(shown)
                prefix = f"{entry.name}/" if entry.name else ""
                pending += [
                    replace(entry, path=os.path.join(entry.path, name), name=f"{prefix}{name}")
                    for name in shown
                ]
        except OSError as error:
            yield replace(entry, problem=f"can't be read: {error.strerror}")


def path_names(paths: Paths) -> list[str]:
    """Return the names of some paths, of which one may be given alone, and what patterns match.

    As in directories, names that begin with a dot or _ match none.
    """
    names: list[str] = []
    several = isinstance(paths, Iterable) and not isinstance(paths, str)
    for given in cast("Iterable[Any]", paths) if several else [paths]:
        if not isinstance(given, str | os.PathLike):
            raise InputError(f"found {given!r:.40}, expected a path", hint="name files or folders")
        path, found = os.fspath(given), []
        if glob.has_magic(path) and not os.path.lexists(path):
            matching = sorted(glob.glob(path, recursive=True))
            found = [each for each in matching if not os.path.basename(each).startswith(_HIDDEN)]
        names += found or [path]
    return names


def files_of(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths of files, and of the files in directories that would be read."""
    for path in paths:
        if path != "-" and os.path.isdir(path):
            yield from (file.path for file in walk(Source(path, "", "text", _ANY), Counter()))
        else:
            yield path


def size_of(*paths: str) -> int | None:
    """Return the bytes of files and directories; None if only reading would show how many."""
    total = 0
    for path in paths:
        try:
            if os.path.isdir(path):
                total += sum(file.size for file in walk(Source(path, "", "text", _ANY), Counter()))
                continue
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        if path == "-" or not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def meter_of(name: str, paths: Sequence[str]) -> Meter:
    """Return a step that counts the bytes that are read of files and directories."""
    return Meter(name, "byte", size_of(*paths) or 0)
