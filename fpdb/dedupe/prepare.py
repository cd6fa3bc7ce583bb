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
from fpdb.flow import filled
from fpdb.io.batches import Part, RecordBatch
from fpdb.io.records import BadRecord
from fpdb.joins.preference import Preference, json_of
from fpdb.models import Key, has_tags
from fpdb.storage.block import Block

# How the key of a record is packed: it had none, a text, or a whole number.
_TEXT, NUMBER = "t", "n"
# A key that is shorter is valid wherever it was read.
_USUAL_KEY = 100


def no_source(name: str) -> str:
    """Return the source of records that have no value in the field that names it."""
    return f"no {name}"


def run_hash() -> Callable[[bytes], bytes]:
    return partial(xxhash.xxh3_128_digest, seed=secrets.randbits(64))


class RecordBlock(NamedTuple):
    """Records of one input that are prepared together; `shown` is how their places begin.

    They are numbered from the `first` one on, once they are among those of a run.
    """

    read: Part
    shown: str
    source: str
    number: int = 0
    records: Sequence[Any] = ()
    first: int = 0


class RecordColumns(NamedTuple):
    """The records of a block as columns, where a bad one is a text that resembles nothing.

    Beside those of documents, there are the numbers of their lines or rows, packed keys if these
    are wanted, values by which they are preferred, counts of their distinct shingles, and numbers
    of the groups within which they are compared: 0 where the field of these is missing. Their
    sources are numbers of the `named` ones. `content` is a digest of the good ones that doesn't
    depend on their order, and adds up. A bad one that is no record says why the rest of the file
    can't be read.
    """

    documents: Block
    bad: list[BadRecord]
    is_bad: Marks
    numbers: Places
    keys: Sequence[bytes]
    shingles: Sequence[Column]
    counts: Places
    groups: Column
    values: NDArray[np.float64]
    sources: Places
    named: Sequence[str]
    content: int
    invalid_utf8: int
    markup: int


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
    hashed: Callable[[bytes], bytes] = dataclasses.field(default_factory=run_hash)

    def __call__(self, block: RecordBlock) -> RecordColumns:
        batch, damage = block.read(), list[BadRecord]()
        if batch.damage:
            source, reason = block.shown.removesuffix(":"), batch.damage.reason
            batch, damage = RecordBatch(), [BadRecord(source, reason, is_file=True)]
        batch.shown = block.shown
        documents, counts, values = batch.sifted(self._compared)
        is_bad = np.zeros(len(batch), np.bool_)
        is_bad[list(batch.bad)] = True
        texts = [text or "" for text in batch.texts]
        keys = list(map(_packed, batch.keys)) if self.keyed else []
        named: dict[str, int] = {}
        sources = [
            named.setdefault(source, len(named)) for source in self._sources(batch, block.source)
        ]
        return RecordColumns(
            documents,
            batch.refused() or damage,
            is_bad,
            np.array(batch.numbers, np.int64),
            keys,
            self.preparer.recipe.shingles_many(texts) if self.shingled else (),
            counts,
            np.empty(0, np.uint64)
            if self.within is None
            else group_hashes(batch, self.within, self.hashed),
            values,
            np.array(sources, np.int64),
            list(named),
            _content(documents, keys, ~is_bad) if self.stored else 0,
            len(batch.replaced),
            sum(map(has_tags, texts)),
        )

    def _sources(self, batch: RecordBatch, source: str) -> Iterable[str]:
        name = self.source_field
        if name is None:
            return repeat(source, len(batch))
        return (
            no_source(name) if value in (None, "") else str(value) for value in batch.values(name)
        )

    def _compared(self, batch: RecordBatch) -> tuple[Block, Places, NDArray[np.float64]]:
        """Return records as documents, counts of shingles, and values of preference.

        Raise InputError if a key, a time, a text or a fingerprint can't be used.
        """
        check = self.preparer.catalog.check_key
        for place, key in enumerate(batch.keys):
            if (type(key) is not str or len(key) >= _USUAL_KEY) and place not in batch.bad:
                check(str(batch.source(place) if key is None else key))
        values = np.zeros(len(batch))
        if name := self.preference.field:
            values[:] = list(map(self.preference.value, batch.values(name)))
        unnamed, bare = [""] * len(batch), [None] * len(batch)
        hashed = None if self.stored else self.hashed
        documents, counts = filled(self.preparer, batch, unnamed, bare, hashed=hashed)
        lengths = documents.characters.astype(np.float64)
        return documents, counts, values if self.preference.field else lengths


def group_hashes(batch: RecordBatch, name: str, hashed: Callable[[bytes], bytes]) -> Column:
    """Return a hash of the value of each record in the field that must be equal; 0 without one."""
    hashes = (
        b"" if value in (None, "") else hashed(json_of(value).encode())[:8]
        for value in batch.values(name)
    )
    return np.array([int.from_bytes(number) for number in hashes], np.uint64)


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


def _content(texts: Block, keys: Sequence[bytes], good: Marks) -> int:
    """Return a digest of records: of their texts, and of the keys that they have of their own."""
    marks = np.column_stack([texts.digests, texts.fingerprints])
    digest = xxhash.xxh3_128_intdigest
    return sum(digest(marks[place].tobytes() + keys[place]) for place in good.nonzero()[0].tolist())
