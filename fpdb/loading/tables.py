"""Write a new database from sorted columns: the documents, then one table after the other."""

from collections.abc import Iterable, Iterator
from contextlib import closing

import numpy as np

from fpdb.corpus.agreement import Mixer
from fpdb.corpus.reading import as_array
from fpdb.documents import CATALOGS
from fpdb.documents.catalog import Columns
from fpdb.errors import InputError
from fpdb.io.sorted_columns import Kind, Part, read_columns
from fpdb.loading.documents import Documents
from fpdb.loading.manifest import DOCUMENTS, SortedColumns
from fpdb.loading.order import AGAIN, Ascending, Total, require_width, words_of
from fpdb.storage import Environment
from fpdb.storage.columns import Rows
from fpdb.storage.counters import Counters
from fpdb.tables import Index, Permutation
from fpdb.tables.loading import ahead
from fpdb.tables.pages import Pages


def fill(source: SortedColumns, built: Environment, now: int) -> None:
    """Write everything into an empty database; what has no time of adding is added `now`."""
    index = Index(source.plan)
    catalog = CATALOGS[source.keys](index, sketched=source.sketch is not None)
    tables = _Tables(source, index)
    documents = Documents(source, catalog, now)
    with built.write() as txn:
        with closing(ahead(tables.expected(documents))) as blocks:
            catalog.extend(txn, blocks)
        with closing(ahead(tables.home())) as rows:
            index.home.fill(txn, rows)
        for pages, table in zip(index.further, index.plan.tables[1:], strict=True):
            with closing(ahead(tables.further(pages, table.permutation))) as rows:
                pages.fill(txn, rows)
        next_id = documents.rows if catalog.kind == "text" else 0
        sketches = documents.sketches if catalog.sketched else None
        counters = Counters(next_id, documents.rows, documents.short, 1, sketches)
        txn.put("header", b"counters", counters.pack())


class _Tables:
    """Reads the tables, of which each must hold what the documents have.

    Behind the last row of each, that has been verified.
    """

    def __init__(self, source: SortedColumns, index: Index) -> None:
        self._source = source
        self._index = index
        self._bits = index.plan.bits
        self._words = words_of(self._bits)
        mixer = Mixer()
        self._mixer = mixer
        self._expected = Total(mixer)
        self._distinct = Total(mixer)

    def expected(self, documents: Iterable[Columns]) -> Iterator[Columns]:
        """Remember what the home table must hold."""
        for columns in documents:
            placed = columns.placed
            words = self._index.words(columns.fingerprints[placed])
            self._expected.add([*words, columns.ids[placed]])
            yield columns

    def home(self) -> Iterator[Rows]:
        """Read the home table."""
        pages = self._index.home
        total = Total(self._mixer)
        order = Ascending("fingerprint and id")
        last: Rows = []
        for part in self._parts(pages, (*self._words, "id")):
            rows = [part.numbers[name] for name in (*self._words, "id")]
            order.require(part, rows)
            if self._source.keys == "text":
                beyond = rows[-1] >= self._source.documents
                part.refuse(beyond, f"found an id beyond the {self._source.documents:,} documents")
            total.add(rows)
            words = rows[:-1]
            new = _differs(words, last)
            self._distinct.add([column[new] for column in words])
            last = [column[-1:].copy() for column in words]
            yield rows
        self._require(pages, total, self._expected, "fingerprints and ids")

    def further(self, pages: Pages, permutation: Permutation) -> Iterator[Rows]:
        """Read one of the other tables."""
        total = Total(self._mixer)
        order = Ascending("fingerprint")
        for part in self._parts(pages, self._words):
            rows = [part.numbers[name] for name in self._words]
            order.require(part, rows)
            total.add(self._index.words(permutation.invert(as_array(rows))))
            yield rows
        self._require(pages, total, self._distinct, "distinct fingerprints")

    def _parts(self, pages: Pages, names: tuple[str, ...]) -> Iterator[Part]:
        needed = dict.fromkeys(names, Kind.NUMBER)
        for part in read_columns(self._source.directory / pages.name, needed):
            require_width(part, part.numbers[names[0]], self._bits)
            yield part

    def _require(self, pages: Pages, found: Total, expected: Total, what: str) -> None:
        folder = self._source.directory / pages.name
        if found.rows != expected.rows:
            raise InputError(
                f"{folder} has {found.rows:,} rows, expected {expected.rows:,} {what}", hint=AGAIN
            )
        if found.sum != expected.sum:
            raise InputError(f"{folder} has other {what} than {DOCUMENTS}", hint=AGAIN)


def _differs(words: Rows, last: Rows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Say of each row, in their order, whether it differs from the one before."""
    new = np.zeros(len(words[0]), np.bool_)
    new[0] = not last
    for index, column in enumerate(words):
        new[1:] |= column[1:] != column[:-1]
        new[0] |= bool(last) and column[0] != last[index][0]
    return new
