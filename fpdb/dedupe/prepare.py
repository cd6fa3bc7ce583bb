"""Records as they are compared: read, checked and turned into columns, in any process."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb.arrays import Marks
from fpdb.ingest import Take
from fpdb.io.files import Part
from fpdb.io.records import BadRecord, Record
from fpdb.joins.selection import TextColumns
from fpdb.models import Key
from fpdb.storage.format import Stored, pack_record
from fpdb.storage.origin import pack_origin

NEWEST = "newest:"


class RecordBlock(NamedTuple):
    """Some records that are prepared together, of the input with a number."""

    part: Part
    number: int = 0
    path: str = ""
    shown: str = ""
    records: Sequence[Any] = ()


class PreparedRecords(NamedTuple):
    """What became of the records of a block: marks of the bad ones, and the others as columns.

    Each of these has a value by which it is preferred; packed, they are as a database stores them.
    `content` is a digest of them that doesn't depend on their order, and adds up. `damage` says why
    the rest of the file can't be read.
    """

    is_bad: Marks
    bad: list[BadRecord]
    texts: TextColumns
    values: NDArray[np.float64]
    packed: list[bytes]
    content: int
    characters: int
    invalid_utf8: int
    markup: int
    damage: BadRecord | None


@dataclass(frozen=True)
class Prepare:
    """Reads a block and prepares its records, in any process."""

    take: Take
    keep: str
    noted: bool

    def __call__(self, block: RecordBlock) -> PreparedRecords:
        """Return the records of a block as columns."""
        records: list[Record | BadRecord] = []
        values: list[float] = []
        keys: list[Key | None] = []
        damage = None
        for found in block.part():
            place = block.shown + found.source.removeprefix(block.path)
            if isinstance(found, Record):
                each, value = self._adapted(found, place)
            elif found.source == block.path and block.path:
                damage = dataclasses.replace(found, source=place)
                continue
            else:
                each, value = dataclasses.replace(found, source=place), 0.0
            records.append(each)
            values.append(value)
            keys.append(found.key)
        taken = self.take(partial(iter, records))
        is_bad = np.array([isinstance(each, BadRecord) for each in taken.found], np.bool_)
        if self.keep == "longest":
            preferred = np.array([each.characters for each in taken.prepared], np.float64)
        else:
            preferred = np.array(values, np.float64)[~is_bad]
        good = [each for each in taken.found if not isinstance(each, BadRecord)]
        bits = self.take.preparer.index.plan.bits
        packed, content = [], 0
        if self.noted:
            own = compress(keys, ~is_bad)
            for record, key, stored in zip(good, own, taken.prepared, strict=True):
                # For the database it is a text.
                origin = pack_origin(record.source, key if isinstance(key, int) else None)
                packed.append(pack_record(stored._replace(meta=origin), bits))
                content += _content(stored, key)
        return PreparedRecords(
            is_bad,
            [each for each in taken.found if isinstance(each, BadRecord)],
            TextColumns.of(taken.prepared, bits),
            preferred,
            packed,
            content,
            sum(each.characters for each in taken.prepared),
            sum(each.replaced for each in good),
            sum(each.markup for each in good),
            damage,
        )

    def _adapted(self, found: Record, place: str) -> tuple[Record | BadRecord, float]:
        """Return a record as it is prepared, and the value by which it is preferred."""
        key = place if found.key is None else str(found.key)
        value = 0.0
        if self.keep.startswith(NEWEST):
            given = (found.meta or {}).get(self.keep.removeprefix(NEWEST))
            read = _time_of(given)
            if read is None:
                name, shown = self.keep.removeprefix(NEWEST), str(given)[:40]
                reason = f"{name} is {shown!r}, expected a number, or a date such as 2026-11-23"
                return BadRecord(place, reason, key=key), 0.0
            value = read
        return Record(place, key, found.text, found.fingerprint, None, found.replaced), value


def _content(stored: Stored, key: Key | None) -> int:
    """Return a digest of a record: of its text, and of its key if it has one of its own."""
    number = -1 if stored.fingerprint is None else stored.fingerprint
    data = f"{number} {stored.digest.hex()} {'' if key is None else key}"
    return xxhash.xxh3_128_intdigest(data.encode())


def _time_of(value: object) -> float | None:
    """Return a date or a number as a number; one that is missing is before all others."""
    if value in (None, ""):
        return -np.inf
    if isinstance(value, int | float):
        return float(value)
    with contextlib.suppress(ValueError, OverflowError):
        return float(str(value))
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(str(value).strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return None
