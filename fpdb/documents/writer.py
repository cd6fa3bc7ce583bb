"""One write transaction: look, then insert, replace or remove; each page is written once."""

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice

import numpy as np

from fpdb.arrays import Column
from fpdb.documents.batch_lookup import BatchLookup
from fpdb.documents.catalog import (
    Catalog,
    Keys,
    View,
    find_key,
    key_bytes,
    key_pages,
    numbers_of,
    put_entries,
)
from fpdb.documents.lookup import Search, answer, to_matches
from fpdb.documents.new_documents import NewDocuments, NewRows
from fpdb.documents.prepare import BATCH
from fpdb.models import Added, Key, Matches
from fpdb.storage import WriteTransaction
from fpdb.storage.format import Stored
from fpdb.storage.new_records import entries_of
from fpdb.storage.origin import renamed
from fpdb.tables import Index
from fpdb.tables.bands import NumberTable
from fpdb.tables.bits import Fingerprints, to_array, to_ints
from fpdb.tables.bulk_load import load_tables, source_of

# New documents whose keys and rows are written together.
ADDED_TOGETHER = 1 << 20
# Documents that are replaced or removed at a time, which bounds the memory of a transaction.
_TOGETHER = 50_000


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
        # What isn't written yet.
        self._saved: dict[Key, Stored] = {}
        self._removed: dict[Key, Stored] = {}

    @property
    def documents(self) -> int:
        """How many documents are stored."""
        return self._counters.documents

    def add_rows(self, keys: Keys, fingerprints: Fingerprints, added: int, memory: int) -> int:
        """Add documents that are a key and a fingerprint, or replace those with their keys.

        Return how many are new or changed.
        """
        empty = not self.documents
        known = np.zeros(len(keys), np.bool_) if empty else self._catalog.holds(self._txn, keys)
        other = known.copy()
        if self._catalog.kind == "integer" and not self._txn.entries("documents"):
            other[known] = ~self._index.holds(self._txn, fingerprints[known], keys[known])
        changed = len(known) - int(known.sum())
        if changed:
            new, chosen = keys[~known], fingerprints[~known]
            ids = self._number(new)
            self._catalog.fill(self._txn, new, ids, chosen, added)
            if empty and len(ids) > BATCH:  # fewer are put into empty tables as into others
                load_tables(self._txn, self._index, source_of(chosen, ids), len(ids), memory)
            else:
                self._index.update(self._txn, (chosen, ids), self._rows([], {}))
            self._count(len(ids))
        keys, fingerprints = keys[other], fingerprints[other]
        for start in range(0, len(keys), _TOGETHER):
            part = slice(start, start + _TOGETHER)
            names, numbers = keys[part].tolist(), to_ints(fingerprints[part])
            rows = [Stored(0, *row, added) for row in zip(names, numbers, strict=True)]
            changed += sum(each.status != "unchanged" for each in self.add(rows))
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
            first, size = self._next_id, len(part.keys)
            self._next_id += size
            ids = np.arange(first, self._next_id, dtype=np.uint64)
            short = (digest + (first + at).to_bytes(8, "big") for at, digest in part.short)
            put_entries(self._txn, entries_of(part.records, ids), short)
            keys += part.keys
            added.append(part.rows.numbered(first))
            self._count(size, len(part.short), part.sketches)
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
        self._index.update(self._txn, new, self._rows([], {}))
        for table, rows in zip(self._index.of_texts, zip(*of_texts, strict=True), strict=True):
            table.insert(self._txn, rows)

    def _named(self, keys: Sequence[bytes], numbers: Iterator[int]) -> list[tuple[bytes, int]]:
        """Return the keys of the last documents with their ids, sorted.

        A document whose key is taken gets another one, with the next number that makes it free.
        """
        taken = numbers_of(self._txn, keys)
        named: dict[bytes, int] = {}
        for own, key in enumerate(keys, self._next_id - len(keys)):
            data = key
            if data in taken or data in named:
                document = free = self._catalog.named(self._txn, own)
                while data in named or find_key(self._txn, data) is not None:
                    free = renamed(document, next(numbers))
                    data = key_bytes(str(free.key))
                self._catalog.put_records(self._txn, [free])
            named[data] = own
        return [(data, named[data]) for data in sorted(named)]

    def add(
        self,
        documents: Sequence[Stored],
        duplicates: Search | None = None,
        *,
        newer: bool = False,
    ) -> list[Added]:
        """Add documents, or replace those with their keys, if only by `newer` ones.

        With `duplicates`, a new one for which that search finds others isn't added; it finds the
        documents before it too.
        """
        self._known = self._catalog.find_many(self._txn, [each.key for each in documents])
        if not newer:  # less of a text costs nothing that is stored of it
            latest, completed = dict(self._known), list[Stored]()
            for document in documents:
                old = latest[document.key]
                completed.append(document.completed(old) if old else document)
                latest[document.key] = completed[-1]
            documents = completed
        added: list[Added] = []
        while rest := documents[len(added) :]:
            lookup = None
            if duplicates and len(rest) > 1:
                lookup = BatchLookup(self._view, rest, self._known, duplicates)
                rest = rest[: len(lookup)]
            for place, document in enumerate(rest):
                old = self._known[document.key]
                # A newer one with equal content counts too: its time decides about a third one.
                if old and (old.added >= document.added if newer else old.holds_what(document)):
                    added.append(Added(document.key, old.id, "unchanged", Matches()))
                    continue
                matches = Matches()
                if duplicates:
                    matches = self._resembling(document, duplicates, place, lookup)
                    if matches and not old:
                        added.append(Added(document.key, None, "duplicate", matches))
                        continue
                if old:
                    number = old.id
                    self._remove(document.key)
                elif isinstance(document.key, int):
                    number = document.key
                else:
                    number, self._next_id = self._next_id, self._next_id + 1
                # This takes a third of the time of `_replace`.
                saved = Stored(number, *document[1:])
                self._known[document.key] = self._saved[document.key] = saved
                if lookup:
                    lookup.save(place, saved, old)
                status = "replaced" if old else "added"
                status = "short" if document.fingerprint is None else status
                lost = bool(old and old.meta and not document.meta)
                added.append(Added(document.key, saved.id, status, matches, lost))
            self._apply()
        return added

    def _resembling(
        self, document: Stored, search: Search, place: int, lookup: BatchLookup | None
    ) -> Matches:
        """Find what a document resembles, as if everything collected was written already."""
        matches = lookup.matches(place, document) if lookup else None
        if matches is None:
            if self._saved or self._removed:
                self._apply()
            matches = answer(self._view, document, search)
        if not matches:
            return matches
        others = [match for match in matches if match.key != document.key]
        return to_matches(others, complete=matches.complete)

    def remove(self, keys: Iterable[Key]) -> int:
        """Remove documents by their keys; return how many were there."""
        rest, removed = iter(keys), 0
        while some := list(islice(rest, _TOGETHER)):
            self._known = self._catalog.find_many(self._txn, some)
            removed += sum(map(self._remove, some))
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
        saved, removed = list(self._saved.values()), list(self._removed.values())
        insert, remove = self._rows(saved, self._removed), self._rows(removed, self._saved)
        self._index.update(self._txn, insert, remove)
        for table in self._index.of_texts:
            inserted, deleted = saved, removed
            if saved and removed:
                inserted = _moved(table, saved, self._removed)
                deleted = _moved(table, removed, self._saved)
            table.update(self._txn, inserted, deleted)
        self._catalog.write(self._txn, saved, removed)
        short = sketches = 0
        for some, sign in ((saved, 1), (removed, -1)):
            for document in some:
                short += sign * (document.fingerprint is None)
                sketches += sign * bool(document.sketch)
        self._count(len(saved) - len(removed), short, sketches)
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

    def _rows(
        self, documents: Sequence[Stored], others: dict[Key, Stored]
    ) -> tuple[Fingerprints, Column]:
        """Return the rows of documents in the tables, without those that stay what they are."""
        fingerprints: list[int] = []
        ids: list[int] = []
        for document in documents:
            other = others.get(document.key)
            number = document.fingerprint
            kept = other and (other.id, other.fingerprint) == (document.id, number)
            if number is not None and not kept:
                fingerprints.append(number)
                ids.append(document.id)
        return to_array(fingerprints, self._index.plan.bits), np.array(ids, np.uint64)


def _moved(
    table: NumberTable, documents: Sequence[Stored], others: dict[Key, Stored]
) -> list[Stored]:
    """Return the documents whose rows in a table don't stay what they are."""
    return [
        document
        for document in documents
        if not (other := others.get(document.key))
        or (other.id, table.of(other)) != (document.id, table.of(document))
    ]
