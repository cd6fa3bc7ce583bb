"""Read records and pages of rows out of a damaged file, and tell whose its stray pages are."""

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fpdb.documents import Catalog
from fpdb.documents.text_keys import key_bytes
from fpdb.errors import DamagedError, InputError
from fpdb.maintenance.scan import require_document, shown_id
from fpdb.models import Problem
from fpdb.storage.columns import Rows, page_length, unpack_rows
from fpdb.storage.records import Record, record_length, unpack_record
from fpdb.storage.salvage import Entry, Salvage, Stray
from fpdb.tables import Index
from fpdb.tables.pages import Pages

_ID_BYTES = 8
_SHOWN = 24
_HIGH_BITS = 32
# Behind every id.
END = 1 << 64

Span = tuple[int, int]  # the lowest id that may be in it, and the first behind


class Found(NamedTuple):
    """A record that can be read: the id that leads to it, if any does, its bytes and fields."""

    number: int | None
    value: bytes
    record: Record


class Source:
    """The records and rows of a damaged database."""

    def __init__(self, salvage: Salvage, index: Index, catalog: Catalog) -> None:
        self._salvage = salvage
        self._bits = index.plan.bits
        self._named = catalog.kind == "text"
        self._sketched = catalog.sketched
        self._rows = [] if self._named else [index.home, *catalog.pages]
        self._values: dict[str, list[tuple[int, int]]] = {}
        self.problems: list[Problem] = []
        self.lost_records: set[int] = set()
        self._spans: list[Span] = []
        self._told: set[str] = set()
        for stray in salvage.strays():
            self._adopt(stray)

    def records(self) -> Iterator[Found]:
        """Give all records that can be read, mostly in the order of their ids."""
        for _, leaf in groupby(self._salvage.entries("documents"), attrgetter("page")):
            entries = list(leaf)
            for place, entry in enumerate(entries):
                try:
                    record = self._record(entry)
                except (DamagedError, InputError) as error:
                    what = f"page {entry.page}, document {shown_id(entry.key)}: {error}"
                    self._tell("documents", what)
                    self._lose(entries, place)
                else:
                    yield Found(int.from_bytes(entry.key), entry.value or b"", record)
        for page, length in self._values.get("documents", ()):
            value = self._salvage.value(page, length) or b""
            yield Found(None, value, unpack_record(value))

    def pages(self, pages: Pages) -> Iterator[Rows]:
        """Give all rows of a table that can be read, page by page, as often as is asked for."""
        for entry in self._salvage.entries(pages.name):
            try:
                yield _rows(entry.value, pages)
            except DamagedError as error:
                if pages.name not in self._told:
                    self._tell(
                        pages.name, f"page {entry.page}, {entry.key[:_SHOWN].hex()}: {error}"
                    )
        self._told.add(pages.name)
        for page, length in self._values.get(pages.name, ()):
            yield _rows(self._salvage.value(page, length), pages)

    def lost_spans(self, name: str) -> list[Span]:
        """Say where keys of a tree of ids are missing, or may be."""
        if name not in self._salvage.trees:
            return [(0, END)]
        spans = [
            (_number(fault.low, 0), _number(fault.high, END))
            for fault in self._salvage.trees[name].faults
        ]
        if name == "documents":
            return [*spans, *self._spans]
        before: int | None = None
        for entry in self._salvage.entries(name):
            number = _number(entry.key, 0)
            if before is not None:
                spans.append((before, number))
            before = None
            try:
                _rows(entry.value, self._rows[-1])
            except DamagedError:
                before = number
        return spans if before is None else [*spans, (before, END)]

    def _lose(self, entries: list[Entry], place: int) -> None:
        """Note which document lost its record, or between which others, if its id is lost too."""
        before = _number(entries[place - 1].key, 0) if place else -1
        behind = _number(entries[place + 1].key, END) if place + 1 < len(entries) else END
        own = entries[place].key
        number = int.from_bytes(own) if len(own) == _ID_BYTES else -1
        if before < number < behind:
            self.lost_records.add(number)
        elif before < behind:
            self._spans.append((before + 1, behind))
        else:
            self._spans.append((0, END))

    def _record(self, entry: Entry) -> Record:
        if entry.value is None:
            raise DamagedError("the pages of its record can't be read")
        record = unpack_record(entry.value)
        require_document(record, entry.key, self._bits, named=self._named, sketched=self._sketched)
        if self._named and not key_bytes(str(record.key)):
            raise DamagedError("its key is empty")
        return record

    def _adopt(self, stray: Stray) -> None:
        if not stray.entries:
            self._adopt_value(stray)
            return
        for entry in stray.entries:
            name = self._name(entry)
            if name:
                self._salvage.adopt(name, stray.page)
                return

    def _name(self, entry: Entry) -> str | None:
        """Say which tree an entry belongs to, if it is one of those that are read."""
        for pages in self._rows:
            if len(entry.key) == pages.key_width and _is_page(entry.value, pages):
                return pages.name
        try:
            self._record(entry)
        except (DamagedError, InputError):
            return None
        return "documents"

    def _adopt_value(self, stray: Stray) -> None:
        names = [pages.name for pages in self._rows if _is_page(_cut(stray.value, pages), pages)]
        if len(names) > 1:  # both have three columns, and only their contents tell
            names = names[1:] if _is_of_ids(stray.value) else names[:1]
        length = record_length(stray.value)
        if not names and length and self._is_record(stray.value[:length]):
            self._values.setdefault("documents", []).append((stray.page, length))
        for name in names:
            columns = next(pages.columns for pages in self._rows if pages.name == name)
            length = page_length(stray.value, columns)
            self._values.setdefault(name, []).append((stray.page, length))

    def _is_record(self, value: bytes) -> bool:
        try:
            self._record(Entry(0, bytes(_ID_BYTES), value))
        except (DamagedError, InputError):
            return False
        return True

    def _tell(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))


def _number(key: bytes | None, otherwise: int) -> int:
    return otherwise if key is None else int.from_bytes(key[:_ID_BYTES].ljust(_ID_BYTES, b"\0"))


def _rows(value: bytes | None, pages: Pages) -> Rows:
    if value is None:
        raise DamagedError("it can't be read")
    rows = unpack_rows(value, pages.columns)
    if page_length(value, pages.columns) != len(value):
        raise DamagedError("it has another number of columns")
    return rows


def _cut(value: bytes, pages: Pages) -> bytes:
    return value[: page_length(value, pages.columns)]


def _is_page(value: bytes | None, pages: Pages) -> bool:
    try:
        return len(_rows(value, pages)[0]) > 0
    except DamagedError:
        return False


def _is_of_ids(value: bytes) -> bool:
    """Say whether three columns may be id, the upper bits of a fingerprint, and a time."""
    numbers, high, _ = unpack_rows(value[: page_length(value, 3)], 3)
    return bool((np.diff(numbers) > 0).all() and (high >> np.uint64(_HIGH_BITS) == 0).all())
