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
    """The records of a block as columns, where a bad one is a text that resembles nothing.

    They have the numbers of their lines or rows, packed keys with their sizes, and values by which
    they are preferred. `content` is a digest of the good ones that doesn't depend on their order,
    and adds up. `damage` says why the rest of the file can't be read.
    """

    texts: TextColumns
    is_bad: Marks
    bad: list[BadRecord]
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
        begin = len(block.prefix)
        numbers = [int(each.source[begin:]) for each in found]
        try:
            texts, values = self._compared(found, numbers, block.shown)
        except InputError:
            for place, each in enumerate(found):
                try:
                    self._compared([each], numbers[place:], block.shown)
                except InputError as error:
                    found[place] = BadRecord(each.source, str(error), error.hint, each.key)
            texts, values = self._compared(found, numbers, block.shown)
        good = [each for each in found if isinstance(each, Record)]
        is_bad = np.array([isinstance(each, BadRecord) for each in found], np.bool_)
        characters = [len(_text_of(each)) for each in found]
        keys = [_packed(each.key) for each in found]
        return RecordColumns(
            texts,
            is_bad,
            [
                dataclasses.replace(each, source=f"{block.shown}{number}")
                for each, number in zip(found, numbers, strict=True)
                if isinstance(each, BadRecord)
            ],
            np.array(numbers, np.int64),
            b"".join(keys),
            np.array(list(map(len, keys)), np.int64),
            np.array(characters, np.int64),
            np.array(values if self.keep.startswith(NEWEST) else characters, np.float64),
            _content(texts, keys, ~is_bad) if self.stored else 0,
            sum(each.replaced for each in good),
            sum(Document("", each.text).has_tags for each in good if "<" in (each.text or "")),
            damage,
        )

    def _compared(
        self, found: Sequence[Record | BadRecord], numbers: Sequence[int], shown: str
    ) -> tuple[TextColumns, list[float]]:
        """Return what records are compared by, and their times if these are wanted.

        Raise InputError if a key, a time, a text or a fingerprint can't be used.
        """
        bits, recipe, check = self._bits, self.preparer.recipe, self.preparer.catalog.check_key
        name = self.keep.removeprefix(NEWEST) if self.keep.startswith(NEWEST) else ""
        fingerprints = to_array([0] * len(found), bits)
        sketches = np.zeros((len(found), SKETCH_BYTES), np.uint8)
        short = np.ones(len(found), np.bool_)
        digests, values = [b""] * len(found), [0.0] * len(found)
        places, texts = list[int](), list[str]()
        for place, each in enumerate(found):
            if isinstance(each, BadRecord):
                continue
            if type(each.key) is not str or not 0 < len(each.key) < _USUAL_KEY:
                check(str(f"{shown}{numbers[place]}" if each.key is None else each.key))
            if name:
                values[place] = _time_of(name, (each.meta or {}).get(name))
            if each.fingerprint is None:
                places.append(place)
                texts.append(each.text or "")
            else:
                fingerprints[place] = self._ready(each.fingerprint)
                short[place] = False
        if texts:
            batch = recipe.batch(texts, sketches=self.preparer.catalog.sketched)
            fingerprints[places], short[places] = batch.fingerprints, batch.short
            fingerprints[short] = 0
            if batch.sketches is not None:
                sketches[places] = batch.sketches
            for place, text, is_short in zip(places, texts, batch.short.tolist(), strict=True):
                digests[place] = recipe.digest(text, short=is_short)
        return TextColumns(side_of(fingerprints, digests, sketches), short), values

    @property
    def _bits(self) -> int:
        return self.preparer.index.plan.bits

    def _ready(self, number: int) -> NDArray[np.uint64]:
        """Return a ready fingerprint as a row of columns."""
        number = unsigned(number, self._bits) if number < 0 else as_number(number, self._bits)
        [row] = to_array([number], self._bits)
        return np.asarray(row, np.uint64)


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


def _text_of(found: Record | BadRecord) -> str:
    return found.text or "" if isinstance(found, Record) else ""


def _content(texts: TextColumns, keys: Sequence[bytes], good: Marks) -> int:
    """Return a digest of records: of their texts, and of the keys that they have of their own."""
    marks = np.column_stack([texts.side.digests, texts.side.fingerprints])
    digest = xxhash.xxh3_128_intdigest
    return sum(digest(marks[place].tobytes() + keys[place]) for place in good.nonzero()[0].tolist())


def _time_of(name: str, value: object) -> float:
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
    raise InputError(
        f"{name} is {str(value)[:40]!r}, expected a number, or a date such as 2026-11-23"
    )
