"""Records as columns: read, checked, fingerprinted and sketched, a block at a time."""

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb.arrays import Marks, Places
from fpdb.documents.prepare import Preparer, as_number
from fpdb.documents.similarity import side_of
from fpdb.errors import InputError
from fpdb.fingerprint.digits import unsigned
from fpdb.io.files import Part
from fpdb.io.records import BadRecord, Record
from fpdb.joins.columns import TextColumns
from fpdb.models import SKETCH_BYTES, Document, Key
from fpdb.tables.bits import to_array

NEWEST = "newest:"
# How the key of a record is packed: it had none, a text, or a whole number.
_TEXT, _NUMBER = "t", "n"
# A key that is shorter is valid wherever it was read.
_USUAL_KEY = 100


class RecordBlock(NamedTuple):
    """Records of one source that are prepared together.

    Their places are numbers of lines or rows after a `prefix`, which is `shown` in another form.
    """

    part: Part
    prefix: str
    shown: str
    number: int = 0
    records: Sequence[Any] = ()


class RecordColumns(NamedTuple):
    """The records of a block as columns: marks of the bad ones, and the others.

    These have the numbers of their lines or rows, packed keys with their sizes, and values by which
    they are preferred. `content` is a digest of them that doesn't depend on their order, and adds
    up. `damage` says why the rest of the file can't be read.
    """

    is_bad: Marks
    bad: list[BadRecord]
    texts: TextColumns
    numbers: Places
    keys: bytes
    key_sizes: Places
    characters: Places
    values: NDArray[np.float64]
    content: int
    invalid_utf8: int
    markup: int
    damage: BadRecord | None


@dataclass(frozen=True)
class Prepare:
    """Reads blocks of records and makes columns of them, in any process or thread.

    Of those for a database, the content is summed up.
    """

    preparer: Preparer
    keep: str
    stored: bool

    def __call__(self, block: RecordBlock) -> RecordColumns:
        """Return the records of a block as columns."""
        found, damage = list(block.part()), None
        match found:
            case [*_, BadRecord(source=source) as last] if source == block.prefix[:-1]:
                damage = dataclasses.replace(last, source=block.shown[:-1])
                found.pop()
        records = [each for each in found if isinstance(each, Record)]
        try:
            self._check(records, block)
            texts = self._texts(records)
        except InputError:
            found = [self._checked(each, block) for each in found]
            records = [each for each in found if isinstance(each, Record)]
            texts = self._texts(records)
        begin = len(block.prefix)
        keys = [_packed(each.key) for each in records]
        characters = [len(each.text or "") for each in records]
        by_field = self.keep.startswith(NEWEST)
        values = [self._time(each) or 0.0 for each in records] if by_field else characters
        return RecordColumns(
            np.array([isinstance(each, BadRecord) for each in found], np.bool_),
            [_shown(each, block) for each in found if isinstance(each, BadRecord)],
            texts,
            np.array([int(each.source[begin:]) for each in records], np.int64),
            b"".join(keys),
            np.array(list(map(len, keys)), np.int64),
            np.array(characters, np.int64),
            np.array(values, np.float64),
            _content(texts, keys) if self.stored else 0,
            sum(each.replaced for each in records),
            sum(_has_tags(each.text) for each in records if each.text and "<" in each.text),
            damage,
        )

    def _checked(self, found: Record | BadRecord, block: RecordBlock) -> Record | BadRecord:
        """Return a record, or why it can't be compared."""
        if isinstance(found, BadRecord):
            return found
        try:
            self._check([found], block)
            self._texts([found])
        except InputError as error:
            return BadRecord(found.source, str(error), error.hint, found.key)
        return found

    def _check(self, records: Sequence[Record], block: RecordBlock) -> None:
        """Raise InputError if a record has a key or a time that can't be used."""
        for each in records:
            if type(each.key) is not str or not 0 < len(each.key) < _USUAL_KEY:
                key = each.key
                if key is None:
                    key = _place(each.source, block)
                self.preparer.catalog.check_key(str(key))
            if self.keep.startswith(NEWEST):
                self._time(each)

    def _time(self, record: Record) -> float:
        name = self.keep.removeprefix(NEWEST)
        given = (record.meta or {}).get(name)
        value = _time_of(given)
        if value is None:
            raise InputError(
                f"{name} is {str(given)[:40]!r}, expected a number, or a date such as 2026-11-23"
            )
        return value

    def _texts(self, records: Sequence[Record]) -> TextColumns:
        """Return what records are compared by."""
        bits, recipe = self.preparer.index.plan.bits, self.preparer.recipe
        count = len(records)
        is_ready = [each.fingerprint is not None for each in records]
        fingerprints = to_array([0] * count, bits)
        sketches = np.zeros((count, SKETCH_BYTES), np.uint8)
        short = np.zeros(count, np.bool_)
        digests = [b""] * count
        for place in np.array(is_ready, np.bool_).nonzero()[0].tolist():
            number = records[place].fingerprint or 0
            number = as_number(unsigned(number, bits) if number < 0 else number, bits)
            fingerprints[place] = to_array([number], bits)[0]
        [places] = np.logical_not(np.array(is_ready, np.bool_)).nonzero()
        texts = [records[place].text or "" for place in places.tolist()]
        if texts:
            batch = recipe.batch(texts, sketches=self.preparer.catalog.sketched)
            fingerprints[places], short[places] = batch.fingerprints, batch.short
            fingerprints[short] = 0
            if batch.sketches is not None:
                sketches[places] = batch.sketches
            marks = batch.short.tolist()
            for place, text, is_short in zip(places.tolist(), texts, marks, strict=True):
                digests[place] = recipe.digest(text, short=is_short)
        return TextColumns(side_of(fingerprints, digests, sketches), short)


def unpack_key(data: bytes) -> Key | None:
    """Return the key of a record, or None if it had none."""
    text = data.decode()
    if not text:
        return None
    return int(text[1:]) if text[0] == _NUMBER else text[1:]


def _packed(key: Key | None) -> bytes:
    if key is None:
        return b""
    return f"{_NUMBER if isinstance(key, int) else _TEXT}{key}".encode()


def _place(source: str, block: RecordBlock) -> str:
    return block.shown + source[len(block.prefix) :]


def _shown(bad: BadRecord, block: RecordBlock) -> BadRecord:
    return dataclasses.replace(bad, source=_place(bad.source, block))


def _has_tags(text: str) -> bool:
    return Document("", text).has_tags


def _content(texts: TextColumns, keys: Sequence[bytes]) -> int:
    """Return a digest of records: of their texts, and of the keys that they have of their own."""
    marks = np.column_stack([texts.side.digests, texts.side.fingerprints]).tobytes()
    size = len(marks) // max(len(keys), 1)
    digest = xxhash.xxh3_128_intdigest
    return sum(digest(marks[n * size : (n + 1) * size] + key) for n, key in enumerate(keys))


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
