"""Records as columns, for whoever takes many at once and needs no object for each.

A reader gives the values of some fields as lists. Usual records are picked of these lists together,
others one by one as everywhere, so that both ways give the same.
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple, cast

import numpy as np

from fpdb.io import arrow
from fpdb.io.files import Part, Source, json_rows, line_parts, parts_of, read_columns
from fpdb.io.records import BadRecord, Reading, Record, UnfitError, check_key, json_object, picker
from fpdb.io.streams import StreamError, decoded, line_ends, raw_lines
from fpdb.io.tables import FieldColumns
from fpdb.models import Document, Key

# Types of the fields of usual records; a key may be a whole number, or missing if it isn't needed.
_TEXT, _KEY, _ANY_KEY = {str}, {str, int}, {str, int, type(None)}
_OPEN, _CLOSE, _RETURN = b"{}\r"
# Bytes of lines from which on they are parsed together.
_TOGETHER = 1 << 14


@dataclass
class RecordBatch:
    """Records as columns, by the numbers of their lines or rows.

    A text is empty where there is none: of a bad record, or where there is a ready fingerprint.
    `values` has a column for each field that is kept as metadata. In `replaced` records, bytes that
    aren't UTF-8 were. `damage` says why the rest of the source can't be read.
    """

    numbers: Sequence[int] = ()
    keys: list[Key | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)
    fingerprints: dict[int, int] = field(default_factory=dict)
    bad: dict[int, BadRecord] = field(default_factory=dict)
    replaced: int = 0
    damage: str = ""

    def put(self, place: int, record: Record | BadRecord) -> None:
        """Put a record in a place."""
        if isinstance(record, BadRecord):
            self.refuse(place, record)
            return
        self.keys[place], self.texts[place] = record.key, record.text or ""
        for name, column in self.values.items():
            column[place] = (record.meta or {}).get(name)
        self.replaced += record.replaced
        if record.fingerprint is not None:
            self.fingerprints[place] = record.fingerprint

    def one(self, place: int) -> "RecordBatch":
        fingerprint, bad = self.fingerprints.get(place), self.bad.get(place)
        return RecordBatch(
            self.numbers[place : place + 1],
            self.keys[place : place + 1],
            self.texts[place : place + 1],
            {name: [column[place]] for name, column in self.values.items()},
            {} if fingerprint is None else {0: fingerprint},
            {} if bad is None else {0: bad},
        )

    def refuse(self, place: int, bad: BadRecord) -> None:
        """Take the record in a place for a bad one, which has its key if it is good."""
        self.bad[place] = bad
        try:
            check_key("", self.keys[place])
        except UnfitError:
            self.keys[place] = bad.key
        self.texts[place] = ""
        for column in self.values.values():
            column[place] = None
        self.fingerprints.pop(place, None)


# Returns records when it is called.
BatchPart = Callable[[], RecordBatch]


def read_batches(source: Source) -> Iterator[BatchPart]:
    """Cut a file into parts, of which threads make columns."""
    reading = source.reading
    try:
        if (source.format.is_table or source.format.by_path) and not reading.all_html:
            for block in read_columns(source):
                yield partial(picked, block, reading)
            return
        if source.form == "jsonl" and not reading.all_html:
            for lines in line_parts(source, sys.maxsize):
                yield partial(_json_batch, lines)
            return
    except StreamError as error:
        yield partial(RecordBatch, damage=str(error))
        return
    for part in parts_of([source]):
        yield partial(_batch_of_part, part, source)


def read_table(table: Any, reading: Reading, *, annotated: bool = False) -> Iterator[BatchPart]:
    """Cut a table in memory, of any library with the Arrow interface."""
    blocks = arrow.table_columns(table, reading, annotated=annotated)
    return (partial(picked, block, reading) for block in blocks)


def batch_of(
    items: Sequence[Document | Mapping[str, Any]], first: int, reading: Reading
) -> RecordBatch:
    """Return records in memory, documents or the fields of some, as columns."""
    fields = [{} if isinstance(each, Document) else each for each in items]
    columns = {name: [each.get(name) for each in fields] for name in reading.needed()}
    numbers = range(first, first + len(items))
    documents = {place: each for place, each in enumerate(items) if isinstance(each, Document)}
    found = picked(_Fields(numbers, columns, {}, fields.__getitem__), reading, documents)
    for place, each in documents.items():
        record = Record("", each.key, each.text, each.fingerprint, each.meta)
        found.put(place, record)
    return found


class _Usual(NamedTuple):
    """Columns of the records that are usual; the places of the others, which are picked alone."""

    keys: list[Any]
    texts: list[str]
    values: dict[str, list[Any]]
    others: set[int]

    @classmethod
    def of(cls, found: FieldColumns, reading: Reading) -> "_Usual":
        count, required = len(found.numbers), reading.required()
        keys = _first(reading.keys, found.columns, count)
        texts = [_first(names, found.columns, count) for what, names in required if what == "text"]
        values = {name: list(found.columns.get(name) or [None] * count) for name in reading.kept}
        joined = texts[0] if len(texts) == 1 else list(map(_joined, zip(*texts, strict=True)))
        unusual = set(found.unusual)
        unusual.update(_others(keys, _KEY if required[0][0] == "key" else _ANY_KEY))
        unusual.update(*(_others(column, _TEXT) for column in texts))
        if "" in keys:
            unusual.update(place for place, key in enumerate(keys) if key == "")
        if reading.fingerprint_field or not _are_unicode(keys):
            unusual.update(range(count))
        return cls(keys, joined or [""] * count, values, unusual)


def picked(found: FieldColumns, reading: Reading, apart: Iterable[int] = ()) -> RecordBatch:
    """Return the records that are made of columns, but for some that are put in later."""
    keys, texts, values, others = _Usual.of(found, reading)
    batch, pick = RecordBatch(found.numbers, keys, texts, values), picker(reading)
    for place in others.difference(apart):
        batch.put(place, pick("", *found.row(place)))
    return batch


def records_of(part: Part) -> Iterable[Record | BadRecord]:
    """Return the records of a part of a file; lines of JSON are parsed together."""
    if not isinstance(part, Source) or part.form != "jsonl" or part.cut is None:
        return part()
    reading = part.reading
    # Columns show neither the order of fields nor which ones are null.
    if reading.all_html or reading.kept or sum(map(len, part.cut)) < _TOGETHER:
        return part()
    found = _json_columns(part)
    keys, texts, _, others = _Usual.of(found, reading)
    pick, path = picker(reading), part.path
    return [
        pick(f"{path}:{number}", *found.row(place))
        if place in others
        else Record(f"{path}:{number}", key, text)
        for place, (number, key, text) in enumerate(zip(found.numbers, keys, texts, strict=True))
    ]


@dataclass
class _Fields(FieldColumns):
    """Some fields of records as columns, and what returns all fields of one."""

    every: Callable[[int], Mapping[str, Any] | str]

    def row(self, place: int) -> tuple[Mapping[str, Any] | str, bool]:
        return self.unusual.get(place) or (self.every(place), False)


def _first(names: Sequence[str], columns: Mapping[str, list[Any]], count: int) -> list[Any]:
    """Return for each record the first value that is there, of some columns."""
    first, *others = [columns[name] for name in names if name in columns] or [[None] * count]
    for column in others:
        if None in first:
            pairs = zip(first, column, strict=True)
            first = [other if one is None else one for one, other in pairs]
    return list(first)


def _joined(texts: Iterable[Any]) -> str:
    return "\n".join(map(str, texts))


def _others(column: list[Any], types: set[Any]) -> Iterator[int]:
    """Yield the places of the values that have none of some types."""
    if not set(map(type, column)) <= types:
        yield from (place for place, value in enumerate(column) if type(value) not in types)


def _are_unicode(keys: list[Any]) -> bool:
    try:
        "".join([key for key in keys if type(key) is str]).encode()
    except UnicodeEncodeError:
        return False
    return True


def _batch_of_part(part: Callable[[], Iterable[Record | BadRecord]], source: Source) -> RecordBatch:
    """Return the records of a part of a file as columns; the last may say that it is damaged."""
    records, damage = list(part()), ""
    if records and isinstance(last := records[-1], BadRecord) and last.source == source.path:
        records.pop()
        damage = last.reason
    begin, count = len(source.path) + 1, len(records)
    numbers = [int(each.source[begin:]) for each in records]
    values: dict[str, list[Any]] = {name: [None] * count for name in source.reading.kept}
    batch = RecordBatch(numbers, [None] * count, [""] * count, values, damage=damage)
    for place, record in enumerate(records):
        batch.put(place, record)
    return batch


# JSON lines


class _Parser(NamedTuple):
    """Two decoders of JSON objects: `whole` refuses other fields, `some` skips them."""

    whole: Any
    some: Any


def _json_batch(source: Source) -> RecordBatch:
    return picked(_json_columns(source), source.reading)


def _json_columns(source: Source) -> FieldColumns:
    """Return the fields of some lines of JSON, which were cut from a file, as columns."""
    reading, block, first = source.reading, b"".join(source.cut or ()), source.first
    names = reading.needed()
    parser = _parser(reading.keys, reading.kept, tuple(names))
    lines = cache(lambda: list(raw_lines([block], reading.max_bytes, begun=first > 1)))
    # The first line of a file may be that of a portable database, which is refused elsewhere.
    parsed = _parsed_together(parser, block, reading.max_bytes) if first > 1 else None
    unusual: dict[int, tuple[Mapping[str, Any] | str, bool]] = {}
    numbers: Sequence[int] = range(first, first + len(parsed or ()))
    if parsed is None:
        parsed, kept = [], list[int]()
        for number, line in enumerate(lines(), first):
            alone = None
            if number > 1 and isinstance(line, bytes):
                alone = _parsed_alone(parser, line)
            if alone is None:
                for _, row, replaced in json_rows(decoded([line], number), reading.max_bytes):
                    unusual[len(kept)] = row, replaced
                    alone = [parser.some.decode(b"{}")]
            # Empty lines are no records.
            kept += [number] * len(alone or ())
            parsed += alone or ()
        numbers = kept
    columns = {
        name: list(map(attrgetter(f"field_{place}"), parsed)) for place, name in enumerate(names)
    }

    def fields_of(place: int) -> Mapping[str, Any] | str:
        return json_object(cast("bytes", lines()[numbers[place] - first]))

    return _Fields(numbers, columns, unusual, fields_of)


def _parsed_together(parser: _Parser, block: bytes, largest: int) -> list[Any] | None:
    """Parse lines, or return None if one of them is unusual.

    Lines that begin and end with a brace are as many objects as values are found in them.
    """
    data, ends = np.frombuffer(block, np.uint8), line_ends(block)
    sizes = np.diff(ends, prepend=0)
    if not len(ends) or sizes.min() < len(b"{}\n") or sizes.max() > largest:
        return None
    last = data[ends - 2]
    last = np.where(last == _RETURN, data[ends - 3], last)
    if (data[ends - sizes] != _OPEN).any() or (last != _CLOSE).any():
        return None
    try:
        found: list[Any] = _values_of(parser, block)
    except (ValueError, TypeError, RecursionError):
        return None
    return found if len(found) == len(ends) else None


def _parsed_alone(parser: _Parser, line: bytes) -> list[Any] | None:
    """Parse a line, a tenth as slowly as a block of one, or return None if it is unusual."""
    try:
        if not line.isascii():
            line.decode()
        return [parser.some.decode(line)]
    except (ValueError, TypeError, RecursionError):
        return None


def _values_of(parser: _Parser, block: bytes) -> Any:
    if not block.isascii():
        with contextlib.suppress(ValueError):
            return parser.whole.decode_lines(block)
        block.decode()  # a field that isn't parsed may have bytes that aren't UTF-8
    return parser.some.decode_lines(block)


@cache
def _parser(keys: tuple[str, ...], kept: tuple[str, ...], names: tuple[str, ...]) -> _Parser:
    """Return what parses the usual values of some fields of a JSON object.

    It refuses what json.loads refuses, and more; both make the same of what it takes.
    """
    import msgspec  # which only records of JSON need

    places = {name: f"field_{place}" for place, name in enumerate(names)}
    types = dict.fromkeys(names, str | None) | dict.fromkeys(keys, str | int | None)
    types |= dict.fromkeys(kept, Any)
    fields = [(place, types[name], None) for name, place in places.items()]
    renamed = {place: name for name, place in places.items()}
    whole, some = (
        msgspec.defstruct("Fields", fields, rename=renamed, gc=False, forbid_unknown_fields=strict)
        for strict in (True, False)
    )
    return _Parser(msgspec.json.Decoder(whole), msgspec.json.Decoder(some))
