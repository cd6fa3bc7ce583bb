"""One write transaction: look, then insert, replace or remove; each page is touched once."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.documents.catalog import Catalog, Keys, Stored
from fpdb.documents.lookup import Lookup
from fpdb.documents.verify import Verifier, side_of
from fpdb.fingerprint.sketches import SKETCH_BYTES
from fpdb.models import Added, Key, Matches
from fpdb.storage import WriteTransaction
from fpdb.storage.columns import Column
from fpdb.storage.counters import Counters
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints, distances, to_array
from fpdb.tables.bulk_load import in_blocks, load

# Documents that change in one transaction of a bulk load; each takes far longer than a new one.
_CHANGED = 50_000


class Candidate(NamedTuple):
    """A document that is ready to be stored; `fingerprint` is None if its text is short.

    `added` is None if it is added now.
    """

    key: Key
    fingerprint: int | None
    digest: bytes
    meta: bytes
    characters: int
    sketch: bytes | None = None
    added: int | None = None


class Writer:
    """Collects the changes of one transaction, and applies them together."""

    def __init__(
        self, txn: WriteTransaction, index: Index, catalog: Catalog, lookup: Lookup, now: int
    ) -> None:
        self._txn = txn
        self._index = index
        self._catalog = catalog
        self._lookup = lookup
        self._now = now
        self._counters = Counters.unpack(txn.get("header", b"counters"))
        self._known: dict[Key, Stored | None] = {}
        self._forget()

    def _forget(self) -> None:
        self._saved: dict[Key, Stored] = {}
        self._removed: dict[Key, Stored] = {}
        self._digests: set[bytes] = set()
        self._numbers: list[int] = []
        self._array: Fingerprints | None = None
        self._new = self._places([], set())

    @property
    def documents(self) -> int:
        """How many documents are stored."""
        return self._counters.documents

    def fill(self, keys: Keys, fingerprints: Fingerprints, memory: int) -> int:
        """Write many documents that are nothing but fingerprints into an empty database."""
        ids = self._number(keys)
        self._catalog.fill(self._txn, keys, ids, fingerprints, self._now)
        load(self._txn, self._index, in_blocks(fingerprints, ids), len(ids), memory)
        self._count(len(ids))
        return len(ids)

    def merge(self, keys: Keys, fingerprints: Fingerprints) -> tuple[int, NDArray[np.intp]]:
        """Add documents that are nothing but fingerprints; say how many are new or changed.

        Of those that are stored and change, only so many are written; give the places of the rest.
        """
        new, changed = self._catalog.sift(self._txn, keys, fingerprints)
        places, left = np.split(changed.nonzero()[0], [_CHANGED])
        done = len(places)
        old = [_plain(keys[place]) for place in places.tolist()]
        self.expect(old)
        for key, number in zip(old, self._index.numbers(fingerprints[places]), strict=True):
            self.add(Candidate(key, number, b"", b"", 0, self._catalog.no_sketch))
        places = new.nonzero()[0]
        if len(places):
            fresh = at_places(keys, places)
            ids, chosen = self._number(fresh), fingerprints[places]
            self._catalog.save_bare(self._txn, fresh, ids, chosen, self._now)
            self._new = (chosen, ids)
        self.apply()
        return int(new.sum()) + done, left

    def _number(self, keys: Keys) -> Column:
        ids = self._catalog.new_ids(keys, self._counters.next_id)
        if not isinstance(keys, np.ndarray):
            next_id = self._counters.next_id + len(ids)
            self._counters = self._counters._replace(next_id=next_id)
        return ids

    def expect(self, keys: Sequence[Key]) -> None:
        """Look keys up together that will be added or removed one by one."""
        self._known |= self._catalog.find_many(self._txn, keys)

    def add(
        self,
        candidate: Candidate,
        *,
        skip_duplicates: bool = False,
        k: int = 0,
        verifier: Verifier | None = None,
    ) -> Added:
        """Add a document, or replace the one with its key."""
        key = candidate.key
        old = self._known[key]
        if old and old[2:3] + old[4:] == candidate[1:6]:
            return Added(key, old.id, "unchanged", Matches())
        matches = Matches()
        if skip_duplicates:
            matches = self._resembling(candidate, k, verifier)
            if matches and not old:
                return Added(key, None, "duplicate", matches)
        number = old.id if old else self._new_id(key)
        added = self._now if candidate.added is None else candidate.added
        stored = Stored(number, key, candidate.fingerprint, added, *candidate[2:6])
        self._drop(key)
        self._known[key] = self._saved[key] = stored
        self._changed_near(candidate.fingerprint, candidate.digest)
        if candidate.fingerprint is None:
            return Added(key, number, "short", matches)
        return Added(key, number, "replaced" if old else "added", matches)

    def remove(self, key: Key) -> bool:
        """Remove a document; say whether it was there."""
        there = self._known[key] is not None
        self._drop(key)
        self._known[key] = None
        return there

    def _drop(self, key: Key) -> None:
        """Forget what was to be saved, or plan to remove what is stored."""
        old = self._known[key]
        if self._saved.pop(key, None) is None and old is not None:
            self._removed[key] = old
            self._changed_near(old.fingerprint, old.digest)

    def _changed_near(self, fingerprint: int | None, digest: bytes) -> None:
        """Remember that the tables aren't up to date for what resembles this."""
        if fingerprint is None:
            self._digests.add(digest)
        else:
            self._numbers.append(fingerprint)

    def _new_id(self, key: Key) -> int:
        if isinstance(key, int):
            return key
        number = self._counters.next_id
        self._counters = self._counters._replace(next_id=number + 1)
        return number

    def _resembling(self, candidate: Candidate, k: int, verifier: Verifier | None) -> Matches:
        """Find what a document resembles, as if everything collected was written already."""
        if candidate.fingerprint is None:
            pending = candidate.digest in self._digests
        else:
            pending = self._is_near_pending(candidate.fingerprint, k)
        if pending:
            self.apply()
        if candidate.fingerprint is None:
            matches = self._lookup.same_text(self._txn, candidate.digest)
        elif verifier is None:
            matches = self._lookup.near(self._txn, candidate.fingerprint, k)
        else:
            matches = self._verified(candidate, candidate.fingerprint, k, verifier)
        others = (match for match in matches if match.key != candidate.key)
        return Matches(others, complete=matches.complete)

    def _verified(
        self, candidate: Candidate, fingerprint: int, k: int, verifier: Verifier
    ) -> Matches:
        own = to_array([fingerprint], self._index.plan.bits)
        sketch = (candidate.sketch or b"").ljust(SKETCH_BYTES, b"\0")
        side = side_of([candidate.digest], np.frombuffer(sketch, np.uint8).reshape(1, SKETCH_BYTES))
        place = np.zeros(1, np.int64)
        return next(self._lookup.verified(self._txn, own, side, place, verifier, k=k))

    def _is_near_pending(self, fingerprint: int, k: int) -> bool:
        if not self._numbers:
            return False
        bits = self._index.plan.bits
        if self._array is None or len(self._array) < len(self._numbers):
            known = 0 if self._array is None else len(self._array)
            more = to_array(self._numbers[known:], bits)
            self._array = more if self._array is None else np.concatenate([self._array, more])
        own = to_array([fingerprint], bits)
        return bool((distances(self._array, own, bits) <= k).any())

    def apply(self) -> None:
        """Write everything that was collected."""
        saved, removed = list(self._saved.values()), list(self._removed.values())
        # What keeps its fingerprint keeps its places in the tables.
        kept = {
            (old.id, old.fingerprint)
            for key, old in self._removed.items()
            if key in self._saved and self._saved[key].fingerprint == old.fingerprint
        }
        came, new = self._places(saved, kept), self._new
        insert = np.concatenate([came[0], new[0]]), np.concatenate([came[1], new[1]])
        self._index.update(self._txn, insert, self._places(removed, kept))
        self._save(saved, removed)
        documents = len(saved) + len(new[1]) - len(removed)
        sketches = _sketched(saved) - _sketched(removed)
        self._count(documents, _short(saved) - _short(removed), sketches)
        self._forget()

    def _save(self, saved: Sequence[Stored], removed: Sequence[Stored]) -> None:
        """Bring the catalog up to date; a document that keeps its id is replaced in its place."""
        ids = {stored.id for stored in saved}
        replaced = {old.id for old in removed if old.id in ids}
        self._catalog.remove(self._txn, [old for old in removed if old.id not in replaced])
        self._catalog.replace(
            self._txn,
            [old for old in removed if old.id in replaced],
            [stored for stored in saved if stored.id in replaced],
        )
        self._catalog.save(self._txn, [stored for stored in saved if stored.id not in replaced])

    def _count(self, documents: int, short: int = 0, sketches: int = 0) -> None:
        old = self._counters
        self._counters = Counters(
            old.next_id,
            old.documents + documents,
            old.short + short,
            old.writes + 1,
            None if old.sketches is None else old.sketches + sketches,
        )
        self._txn.put("header", b"counters", self._counters.pack())

    def _places(
        self, documents: Sequence[Stored], kept: set[tuple[int, int | None]]
    ) -> tuple[Fingerprints, Column]:
        placed = [
            (stored.fingerprint, stored.id)
            for stored in documents
            if stored.fingerprint is not None and (stored.id, stored.fingerprint) not in kept
        ]
        fingerprints = to_array([fingerprint for fingerprint, _ in placed], self._index.plan.bits)
        return fingerprints, np.array([number for _, number in placed], np.uint64)


def at_places(keys: Keys, places: NDArray[np.intp]) -> Keys:
    """Choose some keys."""
    return keys[places] if isinstance(keys, np.ndarray) else [keys[at] for at in places.tolist()]


def _plain(key: Any) -> Key:
    return key if isinstance(key, str) else int(key)


def _short(documents: Sequence[Stored]) -> int:
    return sum(stored.fingerprint is None for stored in documents)


def _sketched(documents: Sequence[Stored]) -> int:
    return sum(bool(stored.sketch) for stored in documents)
