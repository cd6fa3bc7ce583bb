"""Records as columns, as which every file, table and list of documents is read.

A reader gives the fields of some rows together. Usual records are made of their columns, others one
by one.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Self, TypeVar

import numpy as np

from fpdb.errors import InputError
from fpdb.io import arrow
from fpdb.io.records import (
    BadRecord,
    Reading,
    Record,
    UnfitError,
    check_key,
    json_object,
    meta_keeper,
    picker,
)
from fpdb.io.streams import Line, TooLong, decoded, line_ends, raw_lines
from fpdb.io.tables import FieldColumns, Named
from fpdb.models import PORTABLE, Document, Key

Made = TypeVar("Made")

# Types of the fields of usual records; a key may be a whole number, or missing if it isn't needed.
_TEXT, _KEY, _ANY_KEY = {str}, {str, int}, {str, int, type(None)}
_OPEN, _CLOSE, _RETURN = b"{}\r"
TOO_LONG = "holds more than {} bytes in one line"


@dataclass
class RecordBatch:
    """Records as columns, by the numbers of their lines or rows; that of a whole file is its path.

    `shown` is how their places begin. There is no text of a bad record, nor where there is only a
    ready fingerprint. In `replaced` records, bytes that don't fit were replaced.
    """

    shown: str = ""
    numbers: Sequence[int | str] = ()
    keys: list[Key | None] = field(default_factory=list)
    texts: list[str | None] = field(default_factory=list)
    metas: list[Any] = field(default_factory=list)
    fingerprints: dict[int, int] = field(default_factory=dict)
    bad: dict[int, BadRecord] = field(default_factory=dict)
    replaced: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, records: Iterable[Record | BadRecord]) -> Self:
        rows = list(records)
        keys: list[Key | None] = [None] * len(rows)
        texts: list[str | None] = [None] * len(rows)
        batch = cls("", [row.source for row in rows], keys, texts, [None] * len(rows))
        for place, row in enumerate(rows):
            batch.put(place, row)
        return batch

    def __len__(self) -> int:
        return len(self.keys)

    def put(self, place: int, record: Record | BadRecord) -> None:
        """Put a record in a place."""
        self.fingerprints.pop(place, None)
        self.replaced.discard(place)
        if isinstance(record, BadRecord):
            self.refuse(place, record)
            return
        self.keys[place], self.texts[place] = record.key, record.text
        self.metas[place] = record.meta
        if record.replaced:
            self.replaced.add(place)
        if record.fingerprint is not None:
            self.fingerprints[place] = record.fingerprint

    def refuse(self, place: int, bad: BadRecord) -> None:
        """Take the record in a place for a bad one, which has its key if it is good."""
        self.bad[place] = bad
        try:
            check_key("", self.keys[place])
        except UnfitError:
            self.keys[place] = bad.key
        self.texts[place] = self.metas[place] = None
        self.fingerprints.pop(place, None)

    def sifted(self, make: Callable[["RecordBatch"], Made]) -> Made:
        """Make something of all records; those for which that is an InputError become bad ones."""
        try:
            return make(self)
        except InputError:
            for place, record in enumerate(self):
                try:
                    make(self.of([record]))
                except InputError as error:
                    self.refuse(place, BadRecord("", str(error), error.hint, self.keys[place]))
            return make(self)

    @property
    def good(self) -> list[int]:
        """The places of the records that can be used."""
        return [place for place in range(len(self)) if place not in self.bad]

    @property
    def damage(self) -> BadRecord | None:
        """The rest of a file that can't be read, if it is all there is."""
        first = self.bad.get(0)
        return first if first and first.is_file else None

    def source(self, place: int) -> str:
        """Return where a record was read."""
        return f"{self.shown}{self.numbers[place]}"

    def values(self, name: str) -> list[Any]:
        """Return a field of the metadata, which is None where there is none."""
        return [meta.get(name) if isinstance(meta, dict) else None for meta in self.metas]

    def refused(self) -> list[BadRecord]:
        """Return the bad records."""
        return [
            dataclasses.replace(bad, source=self.source(place))
            for place, bad in sorted(self.bad.items())
        ]

    def __iter__(self) -> Iterator[Record | BadRecord]:
        """Yield the records one by one."""
        for place, row in enumerate(zip(self.keys, self.texts, self.metas, strict=True)):
            source = self.source(place)
            if place in self.bad:
                yield dataclasses.replace(self.bad[place], source=source)
            else:
                key, text, meta = row
                fingerprint, replaced = self.fingerprints.get(place), place in self.replaced
                yield Record(source, key, text, fingerprint, meta, replaced)


# Makes the records of a part of a file, in any thread.
Part = Callable[[], RecordBatch]


def read_table(
    table: Any, shown: str, reading: Reading, *, annotated: bool = False
) -> Iterator[Part]:
    """Cut a table in memory, of any library with the Arrow interface."""
    blocks = arrow.table_columns(table, reading, annotated=annotated)
    return (partial(picked, block, shown, reading) for block in blocks)


def batch_of(
    items: Sequence[Document | Mapping[str, Any]], first: int, reading: Reading
) -> RecordBatch:
    """Return records in memory, documents or the fields of some, as columns."""
    fields = [{} if isinstance(item, Document) else item for item in items]
    columns = FieldColumns(range(first, first + len(items)), {}, {}, fields)
    documents = {place: item for place, item in enumerate(items) if isinstance(item, Document)}
    batch = picked(columns, "record ", reading, documents)
    for place, item in documents.items():
        text = (item.text or "") if item.fingerprint is None else item.text
        batch.put(place, Record("", item.key, text, item.fingerprint, item.meta))
    return batch


def picked(
    fields: FieldColumns, shown: str, reading: Reading, apart: Iterable[int] = ()
) -> RecordBatch:
    """Return the records that are made of rows, but for some that are put in later."""
    count, required = len(fields.numbers), reading.required()
    keys = fields.first_of(reading.keys)
    texts = [fields.first_of(names) for what, names in required if what == "text"]
    unusual = set(fields.unusual)
    unusual.update(_unlike(keys, _KEY if required[0][0] == "key" else _ANY_KEY))
    unusual.update(*(_unlike(column, _TEXT) for column in texts))
    if "" in keys:
        unusual.update(place for place, key in enumerate(keys) if key == "")
    if reading.fingerprint_field or not _are_unicode(keys):
        unusual.update(range(count))
    joined = texts[0] if len(texts) == 1 else list(map(_joined, zip(*texts, strict=True)))
    batch = RecordBatch(shown, fields.numbers, keys, joined or [None] * count, [None] * count)
    if reading.kept:
        meta_of = meta_keeper(reading)
        usual = set(range(count)).difference(unusual, apart)
        for place in usual:
            batch.metas[place] = meta_of(fields.usual(place))
    pick = picker(reading)
    for place in unusual.difference(apart):
        batch.put(place, pick("", *fields.row(place)))
    return batch


def _joined(texts: Iterable[Any]) -> str:
    return "\n".join(map(str, texts))


def _unlike(column: list[Any], types: set[Any]) -> Iterator[int]:
    """Yield the places of the values that have none of some types."""
    if not set(map(type, column)) <= types:
        yield from (place for place, value in enumerate(column) if type(value) not in types)


def _are_unicode(keys: list[Any]) -> bool:
    try:
        "".join([key for key in keys if type(key) is str]).encode()
    except UnicodeEncodeError:
        return False
    return True


# JSON lines


def json_fields(lines: Sequence[bytes], first: int, largest: int) -> FieldColumns:
    """Return the fields of whole lines of JSON, which are numbered from the first one on."""
    block = b"".join(lines)
    objects = _parsed_together(block, largest)
    # The first line of a file may be that of a portable database.
    if objects and not (first == 1 and PORTABLE in objects[0]):
        return FieldColumns(range(first, first + len(objects)), {}, {}, objects)
    raw = raw_lines([block], largest, begun=first > 1)
    return FieldColumns.of_rows(json_rows(decoded(raw, first), largest))


def json_rows(lines: Iterable[Line], largest: int) -> Iterator[Named]:
    """Yield the fields of each line of JSON that isn't empty, or why there are none."""
    for number, line, replaced in lines:
        if isinstance(line, TooLong):
            yield number, TOO_LONG.format(largest), replaced
            continue
        if not line or line.isspace():
            continue
        fields = json_object(line)
        if number == 1 and PORTABLE in fields and not isinstance(fields, str):
            fields = "is the portable form of a database, expected a document: use fpdb load"
        yield number, fields, replaced


def _parsed_together(block: bytes, largest: int) -> list[dict[str, Any]] | None:
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
        objects: list[dict[str, Any]] = _parser().decode_lines(block)
    except (ValueError, TypeError, RecursionError):
        return None
    return objects if len(objects) == len(ends) else None


@cache
def _parser() -> Any:
    """Return the parser of objects.

    It refuses all that json.loads refuses, and more; both make the same of a line that it takes.
    """
    import msgspec  # which only records of JSON need

    return msgspec.json.Decoder(dict[str, Any])
