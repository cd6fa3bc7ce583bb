"""One write transaction: look, then insert, replace or remove; each page is written once."""

import contextlib
import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, compress, count, islice
from operator import sub

import numpy as np

from fpdb.arrays import Column, Rows, gathered, joined
from fpdb.documents.batch_lookup import BatchLookup
from fpdb.documents.catalog import (
    Catalog,
    KeyedRows,
    NumberedRows,
    View,
    find_key,
    key_bytes,
    key_pages,
    numbers_of,
)
from fpdb.documents.groups import Grouping, most_similar
from fpdb.documents.lookup import Search, answer, to_matches
from fpdb.documents.prepare import BATCH
from fpdb.documents.similarity import KnownTexts
from fpdb.models import Added, Key, Match, Matches
from fpdb.storage import WriteTransaction
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.storage.origin import renamed
from fpdb.storage.text_pages import TextEntry
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, as_words, of_words
from fpdb.tables.bulk_load import load_tables
from fpdb.tables.sorter import RowFile

# New documents whose keys and rows are written together.
ADDED_TOGETHER = 1 << 20
# Documents that are replaced or removed at a time, or nearly twice as many, which bounds the memory
# of a transaction.
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
        self._groups = Grouping(txn, self._view, index.groups) if index.groups else None
        self._next_id = self._counters.next_id
        # Documents by the keys that are added or removed one by one.
        self._known: dict[Key, Stored | None] = {}
        # Those that are being added, and by their places those whose keys are known or come twice.
        self._documents: Block
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

        with RowFile(folder, columns, share) as new, RowFile(folder, columns, share) as old:
            parts = self._new_rows(self._catalog.in_turn(counted(), folder, share), new, old)
            for part in parts:  # all numbers are read before the first comes
                self._catalog.fill(self._txn, chain([part], parts), added, read)
            changed = len(new)
            if changed > BATCH:
                load_tables(self._txn, self._index, partial(_prints, new), changed, 2 * share)
            elif changed:
                for prints, ids in _prints(new):
                    self._index.update(self._txn, [[prints, ids]])
            if changed:
                self._count(changed)
            return changed + self._replace_rows(old, added, first)

    def _new_rows(
        self, rows: Iterable[KeyedRows], new: RowFile, old: RowFile
    ) -> Iterator[NumberedRows]:
        """Yield those rows whose keys aren't stored, and keep both kinds under their ids."""
        for keys, fingerprints in rows:
            stored, ids = self._catalog.ids_of(self._txn, keys)
            if len(ids):
                old.append([ids, *as_words(fingerprints[stored])])
            if len(ids) < len(keys):
                fresh = ~stored if len(ids) else slice(None)
                names, prints = keys[fresh], fingerprints[fresh]
                ids = names if self._catalog.kind == "integer" else self._new_ids(len(names))
                new.append([ids, *as_words(prints)])
                yield names, ids, prints

    def _replace_rows(self, rows: RowFile, added: int, first: int) -> int:
        """Give documents by their ids other fingerprints; count the changed ones that are old."""
        bits = self._index.plan.bits
        changed, numbered = 0, self._catalog.kind == "integer"
        # A block changes pages all over the tables, so small ones are written together.
        for prints, ids in _prints(gathered(rows, _TOGETHER)):
            for places in np.array_split(np.arange(len(ids)), max(len(ids) // _TOGETHER, 1)):
                numbers, values = ids[places], prints[places]
                names = self._catalog.keys_of(self._txn, numbers)
                if numbered and not self._txn.entries("documents"):
                    differing = ~self._index.holds(self._txn, values, numbers)
                    names, values = list(compress(names, differing)), values[differing]
                documents = Block.bare([key for key in names if key is not None], bits)
                documents.fingerprints[:] = values
                documents.added[:] = added
                for result in self.add(documents):
                    was_there = numbered or (result.id or 0) < first
                    changed += was_there and result.status != "unchanged"
        return changed

    def _new_ids(self, count: int) -> Column:
        """Return the ids of new documents with text keys."""
        first = self._next_id
        self._next_id += count
        return np.arange(first, self._next_id, dtype=np.uint64)

    def add_new(self, blocks: Iterable[Block]) -> int:
        """Add documents with text keys, some at a time; one whose key is taken gets another.

        Their keys and rows are spread over all pages of the tables, so those of very many are
        written together.
        """
        before, numbers = self._next_id, count(self._next_id)
        names: list[bytes] = []  # of the last ids
        parts: list[list[Rows]] = []
        for block in chain(blocks, [None]):
            if names and (block is None or len(names) >= ADDED_TOGETHER):
                key_pages.splice(self._txn, self._named(names, numbers), [])
                self._index.update(self._txn, [joined(rows) for rows in zip(*parts, strict=True)])
                names, parts = [], []
            if block:
                documents = self._catalog.packed(block)
                documents = replace(documents, ids=self._new_ids(len(documents)))
                self._catalog.put_records(self._txn, documents)
                names += self._catalog.pack(documents).names
                parts.append(self._index.rows(documents))
                self._count(*documents.counts)
        if self._groups:
            self._groups.decide(before)
        return self._next_id - before

    def _named(self, names: Sequence[bytes], numbers: Iterator[int]) -> list[TextEntry]:
        """Return the names of the last documents with their ids, sorted.

        A document whose key is taken gets another one, with the next number that makes it free.
        """
        taken = numbers_of(self._txn, names)
        ids: dict[bytes, int] = {}
        for number, name in enumerate(names, self._next_id - len(names)):
            free = name
            if name in taken or name in ids:
                document = other = self._catalog.named(self._txn, number)
                while free in ids or find_key(self._txn, free) is not None:
                    other = renamed(document, next(numbers))
                    free = key_bytes(str(other.key))
                self._catalog.put_records(self._txn, Block.of([other], self._index.plan.bits))
            ids[free] = number
        return sorted(ids.items())

    def add(
        self,
        documents: Block,
        duplicates: Search | None = None,
        *,
        newer: bool = False,
        known: KnownTexts | None = None,
    ) -> list[Added]:
        """Add documents, or replace those with their keys, if only by `newer` ones.

        With `duplicates`, a new one for which that search finds others isn't added; it finds the
        documents before it too. For groups, `known` texts are compared exactly.
        """
        documents = self._catalog.packed(documents)
        names = self._catalog.pack(documents).names
        self._known = self._catalog.find_many(self._txn, documents.keys, names)
        self._documents, self._rows = documents, {}
        if len(self._known) < len(documents) or any(self._known.values()):
            self._take_rows_of_known_keys(newer=newer)
        added: list[Added] = []
        together = len(documents)  # fewer after a lookup that was cut short
        keepers = self._search_of_keepers(self._groups, duplicates, known) if self._groups else None
        while len(added) < len(documents):
            if self._groups:
                self._groups.begin(known)
            start, lookups = len(added), dict[Search, BatchLookup]()
            end = min(start + together, len(documents))
            for search in filter(None, (duplicates, keepers) if end - start > 1 else ()):
                asking = self._asking(start, end, newer=newer)
                asked = replace(self._documents, packed=None)[:end]  # it copies blocks
                replacing = bool(self._rows) or search is keepers
                lookups[search] = BatchLookup(
                    self._view, asked, search, asking, replacing=replacing
                )
                end = lookups[search].end
            for place in range(start, end):
                added.append(self._add(place, duplicates, keepers, lookups, newer=newer))
                if self._groups and (self._groups.unchecked or self._groups.passed_on):
                    break  # the next one is looked up among other keepers
            together = 2 * (len(added) - start)
            self._apply()
        return added

    def _search_of_keepers(
        self, groups: Grouping, duplicates: Search | None, known: KnownTexts | None
    ) -> Search | None:
        """Return the search for the keepers of the groups of documents that are added.

        It isn't needed where none of these resembles any other document.
        """
        search = groups.search._replace(known=known)
        wide = duplicates and (duplicates.similarity or 0.0) <= (search.similarity or 0.0)
        return None if wide and not self._rows else search

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

    def _take_rows_of_known_keys(self, *, newer: bool) -> None:
        """Take the documents whose keys are stored, or come twice, and the stored documents.

        Less of a text costs nothing that is stored of it, unless only `newer` ones count.
        """
        documents, latest, completed = self._documents, dict(self._known), dict[int, Stored]()
        often = Counter(documents.keys)
        for place, key in enumerate(documents.keys):
            old = latest[key]
            if not old and often[key] == 1:
                continue
            document = self._rows[place] = documents.row(place)
            if not newer:
                latest[key] = self._rows[place] = document.completed(old) if old else document
                if self._rows[place] != document:
                    completed[place] = self._rows[place]
        if completed:
            changed = documents.with_rows(completed, self._index.plan.bits)
            self._documents = self._catalog.packed(changed)

    def _add(
        self,
        place: int,
        duplicates: Search | None,
        keepers: Search | None,
        lookups: Mapping[Search, BatchLookup],
        *,
        newer: bool,
    ) -> Added:
        """Decide what becomes of a document, as if everything collected was written already."""
        documents, row, groups = self._documents, self._rows.get(place), self._groups
        key = documents.keys[place]
        old = self._known[key]
        if row and old and _stays(old, row, newer=newer):
            group = groups.of(old) if groups else None
            return Added(key, old.id, "unchanged", Matches(), group=group)
        matches = self._resembling(place, duplicates, lookups) if duplicates else Matches()
        if matches and not old:
            group = groups.of_match(matches[0]) if groups else None
            return Added(key, None, "duplicate", matches, group=group)
        group = None
        if old:
            number = old.id
            self._remove(key)
        elif isinstance(key, int):
            number = key
        else:
            number, self._next_id = self._next_id, self._next_id + 1
        if groups and old and row and old.has_text_of(row):
            group = groups.stay(number, key, old)
        elif groups:
            if old:
                groups.leave(old)
            keeper = self._keeper(groups, place, keepers, lookups) if keepers else None
            group = groups.join(number, key, keeper)
        if row:
            self._known[key] = row._replace(id=number)
        self._saved[key] = place, number
        for lookup in lookups.values():
            lookup.save(place, number, old)
        status = "replaced" if old else "added"
        status = "short" if documents.short[place] else status
        lost = bool(old and old.meta and not documents.metas[place])
        return Added(key, number, status, matches, lost, group)

    def _resembling(
        self, place: int, search: Search, lookups: Mapping[Search, BatchLookup]
    ) -> Matches:
        """Find what a document resembles, but itself."""
        matches = lookups[search].matches(place) if search in lookups else None
        if matches is None:
            self._apply()
            matches = answer(self._view, self._documents.row(place), search)
        if not matches:
            return matches
        key = self._documents.keys[place]
        duplicates_of = [match for match in matches if match.key != key]
        return to_matches(duplicates_of, complete=matches.complete)

    def _keeper(
        self, groups: Grouping, place: int, search: Search, lookups: Mapping[Search, BatchLookup]
    ) -> Match | None:
        """Find the keeper that a document resembles most."""
        if self._documents.ready[place]:
            return None  # it has no text
        # A lookup before doesn't know the keeper that follows this document.
        lookup = None if groups.passed_on else lookups.get(search)
        keepers: Sequence[Match] | None = lookup.matches(place) if lookup else None
        if keepers is None:
            self._apply()
            keepers = groups.find(self._documents.row(place), search)
        return most_similar(keepers)

    def remove(self, keys: Iterable[Key]) -> int:
        """Remove documents by their keys; return how many were there."""
        remaining, removed = iter(keys), 0
        self._documents = Block.bare([], self._index.plan.bits)
        if self._groups:
            self._groups.begin()
        while batch := list(islice(remaining, _TOGETHER)):
            self._known = self._catalog.find_many(self._txn, batch)
            going = {old.id for old in self._known.values() if old}
            for key in batch:
                old = self._known[key]
                if old and self._groups:
                    self._groups.leave(old, going)
                removed += self._remove(key)
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
        if self._groups:
            self._groups.write()
            saved = self._groups.with_keepers(saved)
        removed = gone = None
        if self._removed:
            removed = Block.of(list(self._removed.values()), self._index.plan.bits)
            gone = self._index.rows(removed)
        self._index.update(self._txn, self._index.rows(saved), gone)
        self._catalog.write(self._txn, saved, removed)
        counts = saved.counts
        self._count(*map(sub, counts, removed.counts) if removed else counts)
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


def _prints(rows: Iterable[Sequence[Column]]) -> Iterator[tuple[Fingerprints, Column]]:
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
