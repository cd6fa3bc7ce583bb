"""Check a database: order and checksums of pages, every document in every table and back."""

from collections.abc import Generator, Iterator, Sequence
from typing import Any

import numpy as np

from fpdb.documents import Catalog, Stored
from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.documents.text_keys import TextCatalog, key_bytes
from fpdb.errors import DamagedError
from fpdb.models import Problem
from fpdb.storage import ReadTransaction
from fpdb.storage.columns import Rows, unpack_rows
from fpdb.storage.counters import Counters
from fpdb.tables import Index
from fpdb.tables.bits import distinct, to_array
from fpdb.tables.pages import Pages

Row = tuple[Any, ...]
Found = set[Row] | None  # None if some of it can't be read, so that nothing can be said to miss


def check(txn: ReadTransaction, index: Index, catalog: Catalog) -> Iterator[Problem]:
    """Yield everything that is wrong in one snapshot of a database.

    What can't be read is reported, and what depends on it isn't compared.
    """
    found: dict[str, Found] = {}
    for pages in (index.home, *index.further):
        found[pages.name] = yield from _read_pages(txn, pages)
    documents = yield from _read_records(txn, catalog)
    if isinstance(catalog, IntegerCatalog):
        ids = yield from _read_pages(txn, catalog.ids)
        documents = yield from _with_bare(index, documents, ids, found[index.home.name])
    if documents is None:
        return
    if isinstance(catalog, TextCatalog):
        keys = {(key_bytes(str(stored.key)), stored.id.to_bytes(8, "big")) for stored in documents}
        yield from _compare("keys", _entries(txn, "keys"), keys)
    short = [stored for stored in documents if stored.fingerprint is None]
    digests = {(stored.digest + stored.id.to_bytes(8, "big"), b"") for stored in short}
    yield from _compare("short", _entries(txn, "short"), digests)
    yield from _check_counters(txn, documents, len(short))
    for name, rows in _expected(index, documents).items():
        yield from _compare(name, found[name], rows)


def _entries(txn: ReadTransaction, name: str) -> set[Row]:
    with txn.cursor(name) as cursor:
        return {(bytes(key), bytes(value)) for key, value in cursor}


def _row_set(columns: Rows) -> set[Row]:
    return set(zip(*(column.tolist() for column in columns), strict=True))


def _expected(index: Index, documents: Sequence[Stored]) -> dict[str, set[Row]]:
    """Find what each table should hold."""
    placed = [
        (stored.fingerprint, stored.id) for stored in documents if stored.fingerprint is not None
    ]
    fingerprints = to_array([fingerprint for fingerprint, _ in placed], index.plan.bits)
    ids = np.array([number for _, number in placed], np.uint64)
    expected = {index.home.name: _row_set([*index.words(fingerprints), ids])}
    for table, pages in zip(index.plan.tables[1:], index.further, strict=True):
        permuted = distinct(table.permutation.apply(fingerprints))
        expected[pages.name] = _row_set(index.words(permuted))
    return expected


def _compare(where: str, found: Found, expected: set[Row]) -> Iterator[Problem]:
    if found is None:
        return
    for row in sorted(expected - found):
        yield Problem(where, f"the row {_shown(row)} of a document is missing")
    for row in sorted(found - expected):
        yield Problem(where, f"the row {_shown(row)} belongs to no document")


def _shown(row: Row) -> str:
    return ", ".join(part.hex() if isinstance(part, bytes) else str(part) for part in row)


def _read_pages(txn: ReadTransaction, pages: Pages) -> Generator[Problem, None, Found]:
    """Read all rows of a table, and report what is wrong with its pages."""
    parts, sound = [pages.empty()], True
    with txn.cursor(pages.name) as cursor:
        for key, value in cursor:
            try:
                rows = [np.array(column) for column in unpack_rows(value, pages.columns)]
            except DamagedError as error:
                yield Problem(pages.name, f"page {bytes(key).hex()}: {error}")
                sound = False
                continue
            first = pages.first_key(rows) if len(rows[0]) else b""
            if bytes(key) != first:
                what = f"page {bytes(key).hex()} has the wrong key, expected {first.hex()}"
                yield Problem(pages.name, what)
            parts.append(rows)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    in_order = np.lexsort(columns[::-1])
    if not np.array_equal(in_order, np.arange(len(in_order))):
        yield Problem(pages.name, "rows aren't in order")
    found = _row_set(columns)
    if len(found) != len(columns[0]):
        yield Problem(pages.name, f"{len(columns[0]) - len(found)} rows stand twice")
    return found if sound else None


def _read_records(
    txn: ReadTransaction, catalog: Catalog
) -> Generator[Problem, None, list[Stored] | None]:
    documents: list[Stored] | None = []
    with txn.cursor("documents") as cursor:
        for name in cursor.iternext(keys=True, values=False):
            number = int.from_bytes(name, "big")
            try:
                stored = catalog.record(txn, number)
            except DamagedError as error:
                yield Problem("documents", f"the document {number}: {error}")
                documents = None
                continue
            if stored is not None and documents is not None:
                documents.append(stored)
    return documents


def _with_bare(
    index: Index, documents: list[Stored] | None, ids: Found, home: Found
) -> Generator[Problem, None, list[Stored] | None]:
    """Compare records with ids, and add the documents whose fingerprint only the home table has."""
    if documents is None or ids is None or home is None:
        return None
    below = index.plan.bits - 32
    places: dict[int, list[int]] = {}
    for *words, number in home:
        fingerprint = words[0] if len(words) == 1 else words[0] << 64 | words[1]
        places.setdefault(number, []).append(fingerprint)
    records = {stored.id: stored for stored in documents}
    found = []
    for number, high, added in sorted(ids):
        stored = records.pop(number, None)
        if stored is None:
            own = [place for place in places.get(number, []) if place >> below == high]
            if own:
                found.append(Stored(number, number, own[0], added))
            else:
                yield Problem(index.home.name, f"the document {number} is in no table")
        else:
            found.append(stored)
            if ((stored.fingerprint or 0) >> below, stored.added) != (high, added):
                yield Problem("ids", f"the row of the document {number} isn't that of its record")
    for stored in records.values():
        yield Problem("ids", f"the row of the document {stored.id} is missing")
    return found + list(records.values())


def _check_counters(
    txn: ReadTransaction, documents: Sequence[Stored], short: int
) -> Iterator[Problem]:
    try:
        counters = Counters.unpack(txn.get("header", b"counters"))
    except DamagedError as error:
        yield Problem("counters", str(error))
        return
    if counters.documents != len(documents):
        what = f"{len(documents)} documents, expected {counters.documents}"
        yield Problem("counters", what)
    if counters.short != short:
        yield Problem("counters", f"{short} short documents, expected {counters.short}")
    texts = [stored.id for stored in documents if isinstance(stored.key, str)]
    if texts and max(texts) >= counters.next_id:
        yield Problem("counters", f"the id {max(texts)} is taken, the next is {counters.next_id}")
