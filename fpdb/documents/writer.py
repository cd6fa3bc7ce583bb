"""One write transaction: look, then insert, replace or remove; each page is written once."""

import contextlib
import gc
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress, count, islice

import numpy as np

from fpdb.arrays import Column
from fpdb.documents.batch_lookup import BatchLookup
from fpdb.documents.catalog import (
    Catalog,
    KeyedRows,
    Keys,
    NumberedRows,
    View,
    find_key,
    key_bytes,
    key_pages,
    numbers_of,
    put_entries,
    short_keys,
)
from fpdb.documents.lookup import Search, answer, to_matches
from fpdb.documents.new_documents import NewDocuments, NewRows
from fpdb.documents.prepare import BATCH
from fpdb.models import Added, Key, Matches
from fpdb.storage import WriteTransaction
from fpdb.storage.block import Block, entries_of
from fpdb.storage.format import Stored
from fpdb.storage.origin import renamed
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, as_words, of_words
from fpdb.tables.bulk_load import load_tables
from fpdb.tables.sorter import RowFile

# New documents whose keys and rows are written together.
ADDED_TOGETHER = 1 << 20
# Documents that are replaced or removed at a time, which bounds the memory of a transaction.
_TOGETHER = 50_000
# Parts of the memory of a load: as much is held of new rows, of others, and of those being sorted;
# changed pages that aren't in the file yet take the last part.
_SHARES = 4


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Turn the collector of cycles off for a block that makes many objects and no cycles.

    Else it takes a fifth of the time, to look through all of them again and again.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class Writer:
    """Collects the changes of one transaction, and applies them together."""

    def __init__(self, txn: WriteTransaction, index: Index, catalog: Catalog) -> None:
        self._txn, self._index, self._catalog = txn, index, catalog
        self._view = View(txn, index, catalog)
        self._counters = self._view.counters
        self._next_id = self._counters.next_id
        # Documents by the keys that are added or removed one by one.
        self._known: dict[Key, Stored | None] = {}
        # Those that are being added, and by their places those whose keys are known or come twice.
        self._documents = Block.bare([], index.plan.bits)
        self._rows: dict[int, Stored] = {}
        # What isn't written yet: places with ids, and documents.
        self._saved: dict[Key, tuple[int, int]] = {}
        self._removed: dict[Key, Stored] = {}

    @property
    def documents(self) -> int:
        """How many documents are stored."""
        return self._counters.documents

    def add_rows(self, rows: Iterable[KeyedRows], added: int, memory: int) -> int:
        """Add documents that are a key and a fingerprint, or replace those with their keys.

        Return how many are new or changed.
        """
        folder, columns = self._txn.shared.directory, 3 if self._index.plan.bits == 128 else 2
        first, share, read = self._next_id, memory // _SHARES, 0

        def counted() -> Iterator[KeyedRows]:
            nonlocal read
            for block in rows:
                read += len(block[0])
                yield block

        with RowFile(folder, columns, share) as new, RowFile(folder, columns, share) as other:
            parts = self._new_rows(self._catalog.in_turn(counted(), folder, share), new, other)
            for part in parts:  # all numbers are read before the first comes
                self._catalog.fill(self._txn, chain([part], parts), added, read)
            changed = len(new)
            if changed > BATCH:
                load_tables(self._txn, self._index, partial(_prints, new), changed, 2 * share)
            elif changed:
                for prints, ids in _prints(new):
                    self._index.update(self._txn, (prints, ids))
            if changed:
                self._count(changed)
            return changed + self._replace_rows(other, added, first)

    def _new_rows(
        self, rows: Iterable[KeyedRows], new: RowFile, other: RowFile
    ) -> Iterator[NumberedRows]:
        """Yield those rows whose keys aren't stored, and keep both kinds under their ids."""
        for keys, fingerprints in rows:
            stored, ids = self._catalog.ids_of(self._txn, keys)
            if len(ids):
                other.append([ids, *as_words(fingerprints[stored])])
            if len(ids) < len(keys):
                fresh = ~stored if len(ids) else slice(None)
                names, prints = keys[fresh], fingerprints[fresh]
                ids = self._number(names)
                new.append([ids, *as_words(prints)])
                yield names, ids, prints

    def _replace_rows(self, rows: RowFile, added: int, first: int) -> int:
        """Give documents by their ids other fingerprints; count the changed ones that are old."""
        bits = self._index.plan.bits
        changed, numbered = 0, self._catalog.kind == "integer"
        for prints, ids in _prints(rows):
            for start in range(0, len(ids), _TOGETHER):
                part = slice(start, start + _TOGETHER)
                names, values = self._catalog.keys_of(self._txn, ids[part]), prints[part]
                if numbered and not self._txn.entries("documents"):
                    other = ~self._index.holds(self._txn, values, ids[part])
                    names, values = list(compress(names, other)), values[other]
                documents = Block.bare([key for key in names if key is not None], bits)
                documents.fingerprints[:] = values
                documents.added[:] = added
                for result in self.add(documents):
                    was_there = numbered or (result.id or 0) < first
                    changed += was_there and result.status != "unchanged"
        return changed

    def _number(self, keys: Keys) -> Column:
        """Return the ids of new keys."""
        if self._catalog.kind == "integer":
            return keys
        first = self._next_id
        self._next_id += len(keys)
        return np.arange(first, self._next_id, dtype=np.uint64)

    def add_new(self, parts: Iterable[NewDocuments]) -> int:
        """Add documents with text keys, some at a time; one whose key is taken gets another.

        Their keys and rows are spread over all pages of the tables, so those of very many are
        written together.
        """
        before, numbers = self._next_id, count(self._next_id)
        keys: list[bytes] = []  # of the last ids
        added: list[NewRows] = []
        for part in parts:
            first = self._next_id
            self._next_id += len(part.keys)
            ids = np.arange(first, self._next_id, dtype=np.uint64)
            short = replace(part.short, ids=part.short.ids + np.uint64(first))
            put_entries(self._txn, entries_of(part.records, ids), short_keys(short))
            keys += part.keys
            added.append(part.rows.numbered(first))
            self._count(*part.counts.tolist())
            if len(keys) >= ADDED_TOGETHER:
                self._add_rows(keys, added, numbers)
        self._add_rows(keys, added, numbers)
        return self._next_id - before

    def _add_rows(self, keys: list[bytes], added: list[NewRows], numbers: Iterator[int]) -> None:
        """Write the keys and the rows of new documents, and forget them."""
        if not keys:
            return
        key_pages.splice(self._txn, self._named(keys, numbers), [])
        keys.clear()
        prints, ids, of_texts = zip(*added, strict=True)
        added.clear()
        new = np.concatenate(prints), np.concatenate(ids)
        self._index.update(self._txn, new)
        for table, rows in zip(self._index.of_texts, zip(*of_texts, strict=True), strict=True):
            table.insert(self._txn, rows)

    def _named(self, keys: Sequence[bytes], numbers: Iterator[int]) -> list[tuple[bytes, int]]:
        """Return the keys of the last documents with their ids, sorted.

        A document whose key is taken gets another one, with the next number that makes it free.
        """
        taken = numbers_of(self._txn, keys)
        named: dict[bytes, int] = {}
        for number, key in enumerate(keys, self._next_id - len(keys)):
            data = key
            if data in taken or data in named:
                document = free = self._catalog.named(self._txn, number)
                while data in named or find_key(self._txn, data) is not None:
                    free = renamed(document, next(numbers))
                    data = key_bytes(str(free.key))
                self._catalog.put_records(self._txn, Block.of([free], self._index.plan.bits))
            named[data] = number
        return [(data, named[data]) for data in sorted(named)]

    def add(
        self, documents: Block, duplicates: Search | None = None, *, newer: bool = False
    ) -> list[Added]:
        """Add documents, or replace those with their keys, if only by `newer` ones.

        With `duplicates`, a new one for which that search finds others isn't added; it finds the
        documents before it too.
        """
        self._known = self._catalog.find_many(self._txn, documents.keys)
        rows = self._rows_of_known_keys(documents)
        if rows and not newer:  # less of a text costs nothing that is stored of it
            latest = dict(self._known)
            for place, document in rows.items():
                old = latest[document.key]
                latest[document.key] = rows[place] = document.completed(old) if old else document
            documents = documents.with_rows(rows, self._index.plan.bits)
        self._documents, self._rows = documents, rows
        added: list[Added] = []
        together = len(documents)  # fewer after a lookup that was cut short
        while len(added) < len(documents):
            start, lookup = len(added), None
            end = min(start + together, len(documents))
            if duplicates and end - start > 1:
                asking = self._asking(start, end, newer=newer)
                lookup = BatchLookup(
                    self._view, documents[:end], duplicates, asking, replacing=bool(rows)
                )
                end = lookup.end
                together = 2 * (end - start)
            added += [
                self._add(place, duplicates, lookup, newer=newer) for place in range(start, end)
            ]
            self._apply()
        return added

    def _asking(self, start: int, end: int, *, newer: bool) -> list[int]:
        """Return the places of the documents that are looked up, from one place to another.

        An unchanged one isn't, unless its key comes twice.
        """
        rows, known = self._rows, self._known
        often = Counter(document.key for document in rows.values())
        return [
            place
            for place in range(start, end)
            if (document := rows.get(place)) is None
            or often[document.key] > 1
            or not _stays(known[document.key], document, newer=newer)
        ]

    def _rows_of_known_keys(self, documents: Block) -> dict[int, Stored]:
        """Return by their places the documents whose keys are stored, or come twice."""
        keys = documents.keys
        often: Container[Key] = ()
        if len(self._known) < len(keys):
            often = {key for key, times in Counter(keys).items() if times > 1}
        places = [place for place, key in enumerate(keys) if self._known[key] or key in often]
        return {place: documents.row(place) for place in places}

    def _add(
        self, place: int, search: Search | None, lookup: BatchLookup | None, *, newer: bool
    ) -> Added:
        """Decide what becomes of a document, as if everything collected was written already."""
        documents, row = self._documents, self._rows.get(place)
        key = documents.keys[place]
        old = self._known[key]
        if row and old and _stays(old, row, newer=newer):
            return Added(key, old.id, "unchanged", Matches())
        matches = self._resembling(place, search, lookup) if search else Matches()
        if matches and not old:
            return Added(key, None, "duplicate", matches)
        if old:
            number = old.id
            self._remove(key)
        elif isinstance(key, int):
            number = key
        else:
            number, self._next_id = self._next_id, self._next_id + 1
        if row:
            self._known[key] = row._replace(id=number)
        self._saved[key] = place, number
        if lookup:
            lookup.save(place, number, old)
        status = "replaced" if old else "added"
        status = "short" if documents.short[place] else status
        lost = bool(old and old.meta and not documents.metas[place])
        return Added(key, number, status, matches, lost)

    def _resembling(self, place: int, search: Search, lookup: BatchLookup | None) -> Matches:
        """Find what a document resembles, but itself."""
        matches = lookup.matches(place) if lookup else None
        if matches is None:
            self._apply()
            matches = answer(self._view, self._documents.row(place), search)
        if not matches:
            return matches
        key = self._documents.keys[place]
        others = [match for match in matches if match.key != key]
        return to_matches(others, complete=matches.complete)

    def remove(self, keys: Iterable[Key]) -> int:
        """Remove documents by their keys; return how many were there."""
        remaining, removed = iter(keys), 0
        while batch := list(islice(remaining, _TOGETHER)):
            self._known = self._catalog.find_many(self._txn, batch)
            removed += sum(map(self._remove, batch))
            self._apply()
        return removed

    def _remove(self, key: Key) -> bool:
        old = self._known[key]
        if old is None:
            return False
        if self._saved.pop(key, None) is None:
            self._removed[key] = old
        self._known[key] = None
        return True

    def _apply(self) -> None:
        """Write everything that was collected."""
        if not (self._saved or self._removed):
            return
        places, ids = zip(*self._saved.values(), strict=True) if self._saved else ((), ())
        saved = self._documents
        saved = saved if len(places) == len(saved) else saved[places]
        saved = replace(saved, ids=np.array(ids, np.uint64))
        removed = gone = None
        if self._removed:
            removed = Block.of(list(self._removed.values()), self._index.plan.bits)
            gone = removed.printed.fingerprints, removed.printed.ids
        printed = saved.printed
        self._index.update(self._txn, (printed.fingerprints, printed.ids), gone)
        for table in self._index.of_texts:
            table.update(self._txn, saved, removed)
        self._catalog.write(self._txn, saved, removed)
        counts = saved.counts - removed.counts if removed else saved.counts
        self._count(*counts.tolist())
        self._saved, self._removed = {}, {}

    def _count(self, documents: int, short: int = 0, sketches: int = 0) -> None:
        old = self._counters
        self._counters = old._replace(
            next_id=self._next_id,
            documents=old.documents + documents,
            short=old.short + short,
            writes=old.writes + 1,
            sketches=None if old.sketches is None else old.sketches + sketches,
        )
        self._txn.put("counters", b"counters", self._counters.pack())


def _prints(rows: RowFile) -> Iterator[tuple[Fingerprints, Column]]:
    """Yield fingerprints with the ids that stand before them, in blocks."""
    for ids, *words in rows:
        yield of_words(words), ids


def _stays(old: Stored | None, document: Stored, *, newer: bool) -> bool:
    """Return whether a stored document stays as it is, rather than one with its key.

    A newer one with equal content replaces it too: its time decides about a third one.
    """
    if old is None:
        return False
    return old.added >= document.added if newer else old.holds_what(document)
