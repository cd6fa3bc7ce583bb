"""Read pages, records and entries for a check, block by block, and note what can't be read."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.catalog import Catalog
from fpdb.documents.text_keys import TextCatalog, key_bytes
from fpdb.errors import DamagedError, InputError
from fpdb.fingerprint.minhash import SIZE
from fpdb.maintenance.agreement import Entries
from fpdb.models import Problem
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Column, Rows, unpack_rows
from fpdb.storage.records import Record, unpack_record
from fpdb.tables.bits import Fingerprints
from fpdb.tables.pages import Pages

# Rows of a table that are held at once, and records or entries.
ROWS = 1 << 16
RECORDS = 1 << 13

_ID_BYTES = 8


class Order:
    """Whether rows come in order, and how many equal the one before."""

    def __init__(self) -> None:
        self.kept = True
        self.repeated = 0
        self._last: Rows = []

    def take(self, rows: Rows) -> NDArray[np.bool_]:
        """Look at the next rows, and say which of them differ from the one before."""
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


class Faults:
    """What is found to be wrong while something is read; `whole` says that all could be read."""

    def __init__(self) -> None:
        self.whole = True
        self._problems: list[Problem] = []

    def __len__(self) -> int:
        return len(self._problems)

    def add(self, where: str, what: str, *, lost: bool) -> None:
        """Note a problem; if something is `lost`, not all could be read."""
        self._problems.append(Problem(where, what))
        self.whole = self.whole and not lost

    def tell(self) -> Iterator[Problem]:
        """Give the problems since the last time."""
        yield from self._problems
        self._problems.clear()


def blocks(txn: ReadTransaction, pages: Pages, faults: Faults | None = None) -> Iterator[Rows]:
    """Read the pages of a table that can be read."""
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
                yield _concatenated(parts)
                parts, size = [pages.empty()], 0
    yield _concatenated(parts)


def as_array(words: Rows) -> Fingerprints:
    """Make an array of fingerprints of their words."""
    return words[0] if len(words) == 1 else np.stack(words, axis=-1)


def _concatenated(parts: list[Rows]) -> Rows:
    return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def entries(txn: ReadTransaction, name: str) -> Iterator[Entries]:
    """Read a sub-database of keys and values."""
    with txn.cursor(name) as cursor:
        stored = iter(cursor)
        while True:
            found = Entries([], [])
            for key, value in islice(stored, RECORDS):
                found.keys.append(bytes(key))
                found.values.append(bytes(value))
            if not found.keys:
                return
            yield found


class Records(NamedTuple):
    """Records as columns; the words of short texts, which have no fingerprint, are 0."""

    ids: Column
    words: Rows
    placed: NDArray[np.bool_]  # those with a fingerprint
    added: Column
    names: Entries  # what `keys` has of them, if keys are texts
    digests: Entries  # what `short` has of them
    sketches: int  # how many have one

    def rows(self) -> Rows:
        """Give what the home table has of them."""
        return [column[self.placed] for column in (*self.words, self.ids)]


def records(
    txn: ReadTransaction,
    catalog: Catalog,
    bits: int,
    faults: Faults | None = None,
    *,
    first: int = 0,
) -> Iterator[Records]:
    """Read the records that can be read, from an id on."""
    named = isinstance(catalog, TextCatalog)
    faults = Faults() if faults is None else faults
    with txn.cursor("documents") as cursor:
        there = cursor.set_range(first.to_bytes(8, "big"))
        stored = cursor.iternext() if there else iter(())
        more = True
        while more:
            more = False
            # Lists of plain values: as many tuples would keep the garbage collector busy.
            ids: list[bytes] = []
            names: list[bytes] = []
            fingerprints: list[bytes] = []
            added: list[int] = []
            short: list[bytes] = []
            sketches = 0
            for name, value in islice(stored, RECORDS):
                more, number = True, bytes(name)
                try:
                    record = unpack_record(value)
                    require_plain(record, number, bits, named=named, sketched=catalog.sketched)
                    if named:
                        names.append(key_bytes(str(record.key)))
                except (DamagedError, InputError) as error:
                    what = f"the document {shown_id(number)}: {error}"
                    faults.add("documents", what, lost=True)
                    continue
                ids.append(number)
                fingerprints.append(record.fingerprint)
                added.append(record.added)
                sketches += bool(record.sketch)
                if not record.fingerprint:
                    short.append(record.digest + number)
            yield Records(
                np.frombuffer(b"".join(ids), ">u8").astype(np.uint64),
                _words(fingerprints, bits),
                np.array([fingerprint != b"" for fingerprint in fingerprints], np.bool_),
                np.array(added, np.uint64),
                Entries(names, ids if named else []),
                Entries(short, [b""] * len(short)),
                sketches,
            )


def shown_id(name: bytes) -> str:
    """Give the number of an id, or its bytes if it can't be one."""
    return str(int.from_bytes(name)) if len(name) == _ID_BYTES else name[:_ID_BYTES].hex() + "…"


def require_plain(record: Record, number: bytes, bits: int, *, named: bool, sketched: bool) -> None:
    """Raise an error if fields of a record aren't of the kind that a document has."""
    key, fingerprint, added, digest, _, _, sketch = record
    if (
        len(number) != _ID_BYTES
        or type(key) is not (str if named else int)
        or type(fingerprint) is not bytes
        or len(fingerprint) not in {0, bits // 8}
        or type(added) is not int
        or not 0 <= added < 1 << 64
        or type(digest) is not bytes
        or (sketch is not None) != sketched
        or (sketched and (type(sketch) is not bytes or len(sketch) not in {0, SIZE}))
    ):
        raise DamagedError("its fields aren't those of a document", hint="run `fpdb check`")


def _words(fingerprints: list[bytes], bits: int) -> Rows:
    wide = 2 if bits == 128 else 1
    data = b"".join([fingerprint.rjust(8 * wide, b"\0") for fingerprint in fingerprints])
    words = np.frombuffer(data, ">u8").astype(np.uint64).reshape(-1, wide)
    return [np.ascontiguousarray(words[:, word]) for word in range(wide)]
