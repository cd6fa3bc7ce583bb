"""One write transaction: look, then insert, replace or remove; each page is written once."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from fpdb.arrays import Column, Marks
from fpdb.documents.catalog import Catalog, Keys, View
from fpdb.documents.lookup import Search, answer, compared, is_of_bits, to_matches
from fpdb.models import Added, Key, Matches
from fpdb.storage import WriteTransaction
from fpdb.storage.format import Counters, Stored
from fpdb.tables import Index
from fpdb.tables.bands import MOST_OF_A_BAND, BandTable
from fpdb.tables.bits import Fingerprints, distances, to_array
from fpdb.tables.bulk_load import load_tables, source_of


class Writer:
    """Collects the changes of one transaction, and applies them together."""

    def __init__(
        self, txn: WriteTransaction, index: Index, catalog: Catalog, keys: Sequence[Key] = ()
    ) -> None:
        """Begin; `keys` are those that will be added or removed one by one."""
        self._txn, self._index, self._catalog = txn, index, catalog
        self._view = View(txn, index, catalog)
        self._counters = Counters.unpack(txn.get("counters", b"counters"))
        self._known = catalog.find_many(txn, keys)
        # What isn't written yet: documents, and what their rows in the tables will be.
        self._saved: dict[Key, Stored] = {}
        self._removed: dict[Key, Stored] = {}
        self._digests: set[bytes] = set()
        self._bands: dict[int, list[Stored]] = {}  # by their numbers there
        self._numbers: list[int] = []
        self._array: Fingerprints = to_array([], index.plan.bits)  # of the numbers

    @property
    def documents(self) -> int:
        """How many documents are stored."""
        return self._counters.documents

    def fill(self, keys: Keys, fingerprints: Fingerprints, added: int, memory: int) -> int:
        """Write many documents that are a key and a fingerprint into an empty database."""
        ids = self._number(keys)
        self._catalog.fill(self._txn, keys, ids, fingerprints, added)
        load_tables(self._txn, self._index, source_of(fingerprints, ids), len(ids), memory)
        self._count(len(ids))
        return len(ids)

    def extend(self, keys: Keys, fingerprints: Fingerprints, added: int) -> tuple[int, Marks]:
        """Write the new documents, each a key and a fingerprint.

        Return how many are new, and mark those that are stored and may be something else.
        """
        known = self._catalog.holds(self._txn, keys)
        other = known.copy()
        if self._catalog.kind == "integer" and not self._txn.entries("documents"):
            other[known] = ~self._index.holds(self._txn, fingerprints[known], keys[known])
        if known.all():
            return 0, other
        new, chosen = keys[~known], fingerprints[~known]
        ids = self._number(new)
        self._catalog.fill(self._txn, new, ids, chosen, added)
        self._index.update(self._txn, (chosen, ids), self._rows([], {}))
        self._count(len(ids))
        return len(ids), other

    def _number(self, keys: Keys) -> Column:
        """Return the ids of new keys."""
        if self._catalog.kind == "integer":
            return keys
        first = self._counters.next_id
        self._counters = self._counters._replace(next_id=first + len(keys))
        return np.arange(first, first + len(keys), dtype=np.uint64)

    def add(self, document: Stored, duplicates: Search | None = None) -> Added:
        """Add a document, or replace the one with its key.

        With `duplicates`, a new one for which that search finds others isn't added.
        """
        key = document.key
        old = self._known[key]
        if old and old.holds_what(document):
            return Added(key, old.id, "unchanged", Matches())
        matches = Matches()
        if duplicates:
            matches = self._resembling(document, duplicates)
            if matches and not old:
                return Added(key, None, "duplicate", matches)
        number = old.id if old else self._new_id(key)
        self.remove(key)
        self._known[key] = self._saved[key] = saved = document._replace(id=number)
        self._changed_near(saved)
        status = "replaced" if old else "added"
        return Added(key, number, "short" if document.fingerprint is None else status, matches)

    def remove(self, key: Key) -> bool:
        """Remove a document; return whether it was there."""
        old = self._known[key]
        if old is None:
            return False
        if self._saved.pop(key, None) is None:
            self._removed[key] = old
            self._changed_near(old)
        self._known[key] = None
        return True

    def _changed_near(self, document: Stored) -> None:
        """Remember that the tables aren't up to date for what resembles this."""
        if document.fingerprint is None:
            self._digests.add(document.digest)
        else:
            self._numbers.append(document.fingerprint)
            for number in self._index.band_numbers(document):
                self._bands.setdefault(number, []).append(document)

    def _new_id(self, key: Key) -> int:
        if isinstance(key, int):
            return key
        number = self._counters.next_id
        self._counters = self._counters._replace(next_id=number + 1)
        return number

    def _resembling(self, document: Stored, search: Search) -> Matches:
        """Find what a document resembles, as if everything collected was written already."""
        bands = self._index.bands
        if bands and document.fingerprint is not None and not is_of_bits(document, search):
            matches = compared(document, *self._candidates(bands, document), search)
        else:
            if self._is_pending(document, search):
                self.apply()
            matches = answer(self._view, document, search)
        others = [match for match in matches if match.key != document.key]
        return to_matches(others, complete=matches.complete)

    def _is_pending(self, document: Stored, search: Search) -> bool:
        """Return whether something that isn't written yet may resemble a document."""
        if document.fingerprint is None:
            return document.digest in self._digests
        return self._is_near_pending(document.fingerprint, search.k)

    def _candidates(
        self, bands: BandTable, document: Stored
    ) -> tuple[tuple[list[int], bool], Callable[[int], Stored]]:
        """Return the documents that agree with one in a band, and what reads them.

        To write all that was collected for each of them takes as long as some adds.
        """
        numbers = bands.numbers(document.sketch, document.digest)
        nearby = bands.near(self._txn, numbers)
        changed = [own for number in numbers for own in self._bands.get(number, ())]
        saved = {own.id: own for own in changed if self._saved.get(own.key) is own}
        if changed:
            ids = set(nearby[0]).difference([own.id for own in changed]).union(saved)
            if nearby[1] and len(ids) <= MOST_OF_A_BAND:
                nearby = sorted(ids), True
            else:  # the table decides which of them are compared
                self.apply()
                nearby = bands.near(self._txn, numbers)
        return nearby, partial(self._read, saved)

    def _read(self, saved: Mapping[int, Stored], number: int) -> Stored:
        return saved.get(number) or self._catalog.named(self._txn, number)

    def _is_near_pending(self, fingerprint: int, k: int) -> bool:
        if not self._numbers:
            return False
        bits = self._index.plan.bits
        if len(self._array) < len(self._numbers):
            more = to_array(self._numbers[len(self._array) :], bits)
            self._array = np.concatenate([self._array, more])
        own = to_array([fingerprint], bits)
        return bool((distances(self._array, own, bits) <= k).any())

    def apply(self) -> None:
        """Write everything that was collected."""
        saved, removed = list(self._saved.values()), list(self._removed.values())
        insert, remove = self._rows(saved, self._removed), self._rows(removed, self._saved)
        self._index.update(self._txn, insert, remove)
        if self._index.bands:
            come, gone = self._moved(saved, self._removed), self._moved(removed, self._saved)
            self._index.bands.update(self._txn, come, gone)
        self._catalog.write(self._txn, saved, removed)
        short = sketches = 0
        for some, sign in ((saved, 1), (removed, -1)):
            for document in some:
                short += sign * (document.fingerprint is None)
                sketches += sign * bool(document.sketch)
        self._count(len(saved) - len(removed), short, sketches)
        self._saved, self._removed = {}, {}
        self._digests, self._bands, self._numbers = set(), {}, []
        self._array = self._array[:0]

    def _count(self, documents: int, short: int = 0, sketches: int = 0) -> None:
        old = self._counters
        self._counters = old._replace(
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

    def _moved(self, documents: Sequence[Stored], others: dict[Key, Stored]) -> list[Stored]:
        """Return the documents whose rows in the bands don't stay what they are."""
        numbers = self._index.band_numbers
        return [
            document
            for document in documents
            if not (other := others.get(document.key))
            or (other.id, numbers(other)) != (document.id, numbers(document))
        ]
