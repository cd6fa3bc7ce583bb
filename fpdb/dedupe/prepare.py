"""Records as columns: read, checked, fingerprinted and sketched, a block at a time."""

import dataclasses
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places
from fpdb.documents.prepare import Preparer
from fpdb.errors import InputError
from fpdb.fingerprint.digits import unsigned
from fpdb.io.batches import BatchPart, RecordBatch
from fpdb.io.records import BadRecord
from fpdb.joins.preference import Preference, json_of
from fpdb.models import PASSAGES, Key, has_tags
from fpdb.storage.block import Block, TextColumns

# How the key of a record is packed: it had none, a text, or a whole number.
_TEXT, NUMBER = "t", "n"
# A key that is shorter is valid wherever it was read.
_USUAL_KEY = 100


def no_source(name: str) -> str:
    """Return the source of records that have no value in the field that names it."""
    return f"no {name}"


def _run_hash() -> Callable[[bytes], bytes]:
    return partial(xxhash.xxh3_128_digest, seed=secrets.randbits(64))


class RecordBlock(NamedTuple):
    """Records of one input that are prepared together; `shown` is how their places begin.

    They are numbered from the `first` one on, once they are among those of a run.
    """

    read: BatchPart
    shown: str
    source: str
    number: int = 0
    records: Sequence[Any] = ()
    first: int = 0


class RecordColumns(NamedTuple):
    """The records of a block as columns, where a bad one is a text that resembles nothing.

    They have the numbers of their lines or rows, packed keys and passages with their sizes if these
    are wanted, values by which they are preferred, counts of their distinct shingles, and numbers
    of the groups within which they are compared: 0 where the field of these is missing. Their
    sources are numbers of the `named` ones. `content` is a digest of the good ones that doesn't
    depend on their order, and adds up. `damage` says why the rest of the file can't be read.
    """

    texts: TextColumns
    is_bad: Marks
    bad: list[BadRecord]
    numbers: Places
    keys: bytes
    key_sizes: Places
    passages: bytes
    passage_sizes: Places
    shingles: Sequence[Column]
    counts: Places
    groups: Column
    characters: Places
    values: NDArray[np.float64]
    sources: Places
    named: Sequence[str]
    content: int
    invalid_utf8: int
    markup: int
    damage: str


@dataclass(frozen=True)
class Prepare:
    """Reads blocks of records and makes columns of them, in any thread.

    With `keyed` and `shingled`, keys and shingles are kept; of records for a database (`stored`),
    the content is summed up. Others have digests that only this run compares, by a fast hash whose
    seed nobody can know. The source of a record is in the `source_field`, or else that of its
    block.
    """

    preparer: Preparer
    preference: Preference
    keyed: bool
    stored: bool
    shingled: bool = False
    within: str | None = None
    source_field: str | None = None
    hashed: Callable[[bytes], bytes] = dataclasses.field(default_factory=_run_hash)

    def __call__(self, block: RecordBlock) -> RecordColumns:
        batch = block.read()
        try:
            texts, values, counts = self._compared(batch, block.shown)
        except InputError:
            for place in range(len(batch.texts)):
                try:
                    self._compared(batch.one(place), block.shown)
                except InputError as error:
                    key = batch.keys[place]
                    batch.refuse(place, BadRecord("", str(error), error.hint, key))
            texts, values, counts = self._compared(batch, block.shown)
        is_bad = np.zeros(len(batch.texts), np.bool_)
        is_bad[list(batch.bad)] = True
        characters = np.fromiter(map(len, batch.texts), np.int64, len(batch.texts))
        keys = list(map(_packed, batch.keys)) if self.keyed else []
        passages = texts.further.get(PASSAGES, [])
        named: dict[str, int] = {}
        sources = [
            named.setdefault(source, len(named)) for source in self._sources(batch, block.source)
        ]
        return RecordColumns(
            texts,
            is_bad,
            [
                dataclasses.replace(each, source=f"{block.shown}{batch.numbers[place]}")
                for place, each in sorted(batch.bad.items())
            ],
            np.array(batch.numbers, np.int64),
            b"".join(keys),
            np.array(list(map(len, keys)), np.int64),
            b"".join(passages),
            np.array(list(map(len, passages)), np.int64),
            self.preparer.recipe.shingles_many(batch.texts) if self.shingled else (),
            counts,
            self._groups(batch),
            characters,
            values if self.preference.field else characters.astype(np.float64),
            np.array(sources, np.int64),
            list(named),
            _content(texts, keys, ~is_bad) if self.stored else 0,
            batch.replaced,
            sum(map(has_tags, batch.texts)),
            batch.damage,
        )

    def _sources(self, batch: RecordBatch, source: str) -> Iterable[str]:
        name = self.source_field
        if name is None:
            return repeat(source, len(batch.texts))
        values = batch.values[name]
        return (no_source(name) if value in (None, "") else str(value) for value in values)

    def _compared(
        self, batch: RecordBatch, shown: str
    ) -> tuple[Block, NDArray[np.float64], Places]:
        """Return what records are compared by, values if these are wanted, and counts of shingles.

        Raise InputError if a key, a time, a text or a fingerprint can't be used.
        """
        check, bits = self.preparer.catalog.check_key, self.preparer.index.plan.bits
        for place, key in enumerate(batch.keys):
            if (type(key) is not str or len(key) >= _USUAL_KEY) and place not in batch.bad:
                check(str(f"{shown}{batch.numbers[place]}" if key is None else key))
        values = np.zeros(len(batch.texts))
        if name := self.preference.field:
            values[:] = list(map(self.preference.value, batch.values[name]))
        ready = {
            place: unsigned(number, bits) if number < 0 else number
            for place, number in batch.fingerprints.items()
        }
        texts = [None if at in batch.bad else text for at, text in enumerate(batch.texts)]
        block = Block.bare([""] * len(texts), bits)
        hashed = None if self.stored else self.hashed
        counts = self.preparer.fill(block, texts, ready, hashed=hashed)
        return block, values, counts

    def _groups(self, batch: RecordBatch) -> Column:
        """Return a hash of the value of each record in the field that must be equal."""
        values = [] if self.within is None else batch.values[self.within]
        hashes = (
            b"" if value in (None, "") else self.hashed(json_of(value).encode())[:8]
            for value in values
        )
        return np.array([int.from_bytes(each) for each in hashes], np.uint64)


def unpack_key(data: bytes) -> Key | None:
    """Return the key of a record, or None if it had none."""
    text = data.decode()
    if not text:
        return None
    return int(text[1:]) if text[0] == NUMBER else text[1:]


def _packed(key: Key | None) -> bytes:
    if key is None:
        return b""
    return f"{NUMBER if isinstance(key, int) else _TEXT}{key}".encode()


def _content(texts: TextColumns, keys: Sequence[bytes], good: Marks) -> int:
    """Return a digest of records: of their texts, and of the keys that they have of their own."""
    marks = np.column_stack([texts.digests, texts.fingerprints])
    digest = xxhash.xxh3_128_intdigest
    return sum(digest(marks[place].tobytes() + keys[place]) for place in good.nonzero()[0].tolist())
