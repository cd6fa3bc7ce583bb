"""Read tables and records in blocks of bounded size, noting what can't be read; digest rows."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from fpdb.arrays import Column, Rows, joined
from fpdb.documents.catalog import Catalog, TextCatalog, key_bytes
from fpdb.errors import DamagedError, InputError
from fpdb.fingerprint.sketches import SKETCH_BYTES, mix
from fpdb.models import Problem
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import unpack_rows
from fpdb.storage.format import Stored, unpack_record
from fpdb.tables.pages import Pages

# Rows of a table, and records, that are held at once.
ROWS = 1 << 16
RECORDS = 1 << 13

_ID_BYTES = 8
_BUCKET_BITS = 12
_BUCKETS = 1 << _BUCKET_BITS
_MOST_COLUMNS = 4

Buckets = NDArray[np.bool_]  # which of all are chosen


class Faults:
    """The problems met while reading; `complete` is False once something couldn't be read."""

    def __init__(self) -> None:
        self.complete = True
        self._problems: list[Problem] = []

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, where: str, what: str, *, lost: bool) -> None:
        """Note a problem; `lost` means that something couldn't be read."""
        self._problems.append(Problem(where, what))
        self.complete = self.complete and not lost

    def take(self) -> Iterator[Problem]:
        """Yield the problems since the last call."""
        yield from self._problems
        self._problems.clear()


class Order:
    """Checks that rows come in order, and counts those that equal the row before."""

    def __init__(self) -> None:
        self.kept = True
        self.repeated = 0
        self._last: Rows = []

    def take(self, rows: Rows) -> NDArray[np.bool_]:
        """Check the next rows; return which of them differ from the row before."""
        if not len(rows[0]):
            return np.ones(0, np.bool_)
        first = not self._last
        if not first:
            rows = [np.concatenate(pair) for pair in zip(self._last, rows, strict=True)]
        same = np.ones(len(rows[0]) - 1, np.bool_)
        for column in rows:
            before, after = column[:-1], column[1:]
            self.kept = self.kept and not (same & (after < before)).any()
            same &= after == before
            if not same.any():
                break
        self.repeated += int(np.count_nonzero(same))
        self._last = [column[-1:].copy() for column in rows]
        return np.concatenate(([True], ~same)) if first else ~same


def table_rows(txn: ReadTransaction, pages: Pages, faults: Faults | None = None) -> Iterator[Rows]:
    """Yield the rows of a table's readable pages in blocks; at least one block, maybe empty."""
    faults = Faults() if faults is None else faults
    parts, size = [pages.empty()], 0
    with txn.cursor(pages.name) as cursor:
        for key, value in cursor:
            try:
                rows = unpack_rows(value, pages.columns)
            except DamagedError as error:
                faults.add(pages.name, f"page {bytes(key).hex()}: {error}", lost=True)
                rows = pages.empty()
            else:
                first = pages.first_key(rows) if len(rows[0]) else b""
                if key != first:
                    what = f"page {bytes(key).hex()} has the wrong key, expected {first.hex()}"
                    faults.add(pages.name, what, lost=False)
            parts.append(rows)
            size += len(rows[0])
            if size >= ROWS or len(faults) >= RECORDS:
                yield joined(parts)
                parts, size = [pages.empty()], 0
    yield joined(parts)


def in_step(streams: Sequence[Iterator[Rows]], columns: Sequence[int]) -> Iterator[list[Rows]]:
    """Yield the rows of several streams, each sorted by its first column, side by side.

    Rows of different streams with the same first number come in the same step. `columns` are the
    numbers of columns, for streams that have ended.
    """
    nothing = [[np.empty(0, np.uint64)] * count for count in columns]
    held = list(nothing)
    while True:
        for place, stream in enumerate(streams):
            while not len(held[place][0]) and (block := next(stream, None)) is not None:
                held[place] = block
        ends = [rows[0][-1] for rows in held if len(rows[0])]
        if not ends:
            return
        cuts = [int(rows[0].searchsorted(min(ends), "right")) for rows in held]
        yield [[column[:cut] for column in rows] for rows, cut in zip(held, cuts, strict=True)]
        held = [[column[cut:] for column in rows] for rows, cut in zip(held, cuts, strict=True)]


class Records(NamedTuple):
    """Records as columns; the words of short texts, which have no fingerprint, are 0."""

    ids: Column
    words: Rows
    placed: NDArray[np.bool_]  # those with a fingerprint
    added: Column
    keys: list[bytes]  # as in `keys`; empty if keys are integers
    digests: list[bytes]  # of the short texts
    sketches: int  # how many have one

    def rows(self) -> Rows:
        """Return their rows of the home table."""
        return [column[self.placed] for column in (*self.words, self.ids)]


def records(
    txn: ReadTransaction,
    catalog: Catalog,
    bits: int,
    faults: Faults | None = None,
    *,
    first: int = 0,
) -> Iterator[Records]:
    """Yield the readable records in blocks, in the order of their ids, from one on."""
    named = isinstance(catalog, TextCatalog)
    faults = Faults() if faults is None else faults
    with txn.cursor("documents") as cursor:
        stored = cursor.iternext() if cursor.set_range(first.to_bytes(8)) else iter(())
        more = True
        while more:
            more = False
            # Lists of plain values: as many tuples would keep the garbage collector busy.
            ids: list[bytes] = []
            keys: list[bytes] = []
            fingerprints: list[int | None] = []
            added: list[int] = []
            digests: list[bytes] = []
            sketches = 0
            for name, value in islice(stored, RECORDS):
                more, number = True, bytes(name)
                try:
                    record = unpack_record(value, int.from_bytes(number), bits)
                    require_document(record, number, named=named, sketched=catalog.sketched)
                    if named:
                        keys.append(key_bytes(str(record.key)))
                except (DamagedError, InputError) as error:
                    what = f"the document {shown_id(number)}: {error}"
                    faults.add("documents", what, lost=True)
                    continue
                ids.append(number)
                fingerprints.append(record.fingerprint)
                added.append(record.added)
                sketches += bool(record.sketch)
                if record.fingerprint is None:
                    digests.append(record.digest)
            yield Records(
                ids_of(ids),
                _words(fingerprints, bits),
                np.array([number is not None for number in fingerprints], np.bool_),
                np.array(added, np.uint64),
                keys,
                digests,
                sketches,
            )


def entries(
    txn: ReadTransaction, name: str, faults: Faults | None = None
) -> Iterator[tuple[list[bytes], Column]]:
    """Yield the texts and the ids of `keys` or `short` in blocks."""
    faults = Faults() if faults is None else faults
    texts: list[bytes] = []
    ids: list[bytes] = []
    with txn.cursor(name) as cursor:
        for key, value in cursor:
            text, number = (key, value) if name == "keys" else (key[:-_ID_BYTES], key[-_ID_BYTES:])
            if len(number) != _ID_BYTES or (name == "short" and len(value)):
                what = f"the entry {bytes(key).hex()} isn't a text with an id"
                faults.add(name, what, lost=False)
                continue
            texts.append(bytes(text))
            ids.append(bytes(number))
            if len(texts) == ROWS:
                yield texts, ids_of(ids)
                texts, ids = [], []
    yield texts, ids_of(ids)


def ids_of(names: Sequence[bytes]) -> Column:
    """Return ids, given their eight bytes each."""
    return np.frombuffer(b"".join(names), ">u8").astype(np.uint64)


def shown_id(name: bytes) -> str:
    """Return the number of an id, or its bytes if it can't be one."""
    return str(int.from_bytes(name)) if len(name) == _ID_BYTES else name[:_ID_BYTES].hex() + "…"


def require_document(record: Stored, name: bytes, *, named: bool, sketched: bool) -> None:
    """Raise DamagedError unless a record is one of this kind of database, under a valid id."""
    sketch = record.sketch
    if (
        len(name) != _ID_BYTES
        or type(record.key) is not (str if named else int)
        or (sketch is not None) != sketched
        or (sketch and len(sketch) != SKETCH_BYTES)
    ):
        raise DamagedError("its fields aren't those of a document", hint="run `fpdb check`")


def _words(fingerprints: list[int | None], bits: int) -> Rows:
    wide = 2 if bits == 128 else 1
    data = b"".join([(number or 0).to_bytes(8 * wide, "big") for number in fingerprints])
    words = np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, wide)
    return [np.ascontiguousarray(words[:, word]) for word in range(wide)]


class Mixer:
    """Turns rows into 64 bits that look random, by seeds that are new in each check.

    Two sets of rows that differ in whatever way have the same sum of mixes with a chance of one in
    2**64. Nobody can choose rows so that they do, because nobody can predict the seeds.
    """

    def __init__(self) -> None:
        self._seeds = [int.from_bytes(os.urandom(8), "big") for _ in range(_MOST_COLUMNS)]

    def rows(self, rows: Rows) -> Column:
        """Return a mix of each row."""
        mixed = np.zeros(len(rows[0]), np.uint64)
        for column, seed in zip(rows, self._seeds, strict=False):
            mixed = mix((mixed ^ column) + np.uint64(seed))
        return mixed

    def texts(self, texts: list[bytes]) -> Column:
        """Return a number for each of some byte strings, to stand for it in rows."""
        seed, digest = self._seeds[0], xxhash.xxh3_64_intdigest
        return np.array([digest(text, seed) for text in texts], np.uint64)


class Digest:
    """A digest of a set of rows: in each bucket their number and the sum of their mixes."""

    def __init__(self) -> None:
        self.counts = np.zeros(_BUCKETS, np.int64)
        self.sums = np.zeros(_BUCKETS, np.uint64)

    def add(self, mixed: Column) -> None:
        """Add the mixes of rows, in any order."""
        buckets = buckets_of(mixed)
        self.counts += np.bincount(buckets, minlength=_BUCKETS)
        np.add.at(self.sums, buckets, mixed)

    def differs(self, other: "Digest") -> Buckets:
        """Return the buckets with other rows."""
        differs: Buckets = (self.counts != other.counts) | (self.sums != other.sums)
        return differs


def buckets_of(mixed: Column) -> NDArray[np.int64]:
    """Return the bucket of each mix: its highest bits."""
    return (mixed >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
