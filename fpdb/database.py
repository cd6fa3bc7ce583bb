"""The database: what can be asked of it, and what can be changed, in transactions."""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

from fpdb import portable
from fpdb.arrays import each
from fpdb.documents import (
    BATCH,
    LOAD,
    Candidate,
    Prepared,
    Preparer,
    Texts,
    Verifier,
    View,
    Writer,
    at_places,
    take,
)
from fpdb.errors import InputError, RecipeError, RecipeMismatchError
from fpdb.fingerprint import Recipe
from fpdb.models import (
    Added,
    Cluster,
    Document,
    Key,
    Loaded,
    require_whole,
)
from fpdb.processes import Workers
from fpdb.reader import Reader
from fpdb.storage import LOCK_SECONDS, WriteTransaction
from fpdb.storage.preflight import is_vacant
from fpdb.tables import Index
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY

if TYPE_CHECKING:
    from fpdb.joins import Members


# Documents that are stored together in a database that nobody else sees yet.
_FILLED = 1 << 14


class _Place(NamedTuple):
    """A document by its id, and the fingerprint that it had."""

    id: int
    fingerprint: int


class Database(Reader):
    """A persistent database of fingerprints in a directory; open it with `fpdb.open`.

    It may be shared by threads, survives a fork, and can be pickled as its path. Several
    processes may read and write the same directory.
    """

    def add(
        self,
        key: Key,
        text: str,
        meta: Any = None,
        *,
        skip_duplicates: bool = False,
        min_jaccard: float | None = None,
    ) -> Added:
        """Add one document, or replace the one with its key; durable when it returns.

        With `skip_duplicates`, a document that resembles a stored one isn't added: looking and
        adding are one transaction, so of two crawlers with the same page only one adds it. With
        `min_jaccard` as well, it resembles what a verified query would find.
        """
        documents = [Document(key, text, meta)]
        found = self.add_many(documents, skip_duplicates=skip_duplicates, min_jaccard=min_jaccard)
        return next(found)

    def add_many(
        self,
        documents: Iterable[Document],
        *,
        skip_duplicates: bool = False,
        min_jaccard: float | None = None,
        jobs: int = 1,
    ) -> Iterator[Added]:
        """Add documents in transactions of a thousand or so; yield each once it is durable.

        Nothing is added before the result is iterated, as a for loop does. With several `jobs`,
        so many further processes make the fingerprints, and this one stores; 0 stands for all
        processors. What is stored and yielded, and in which order, doesn't depend on it.
        """
        self._resemblance(min_jaccard, skip_duplicates=skip_duplicates)
        source = iter(documents)
        batches = iter(lambda: take(source), [])
        for _, prepared in Workers(self.preparer, jobs).map(batches):
            yield from self.add_prepared(
                prepared, skip_duplicates=skip_duplicates, min_jaccard=min_jaccard
            )

    def _resemblance(
        self, min_jaccard: float | None, *, skip_duplicates: bool
    ) -> tuple[int, Verifier | None]:
        if min_jaccard is not None and not skip_duplicates:
            raise InputError(
                "found min_jaccard without skip_duplicates",
                hint="min_jaccard says what counts as a duplicate that isn't added",
            )
        return self._look(None, None, min_jaccard)

    @cached_property
    def preparer(self) -> Preparer:
        """What turns documents into such that `add_prepared` takes, in any process."""
        recipe: Recipe | RecipeError
        try:
            recipe = self.recipe
        except RecipeError as error:  # which matters to texts only
            recipe = error
        return Preparer(self._intake.candidates, recipe, self._fits)

    @property
    def _fits(self) -> tuple[str, ...]:
        sketch = (f"{self.sketch} sketches",) if self.sketch else ()
        return (self._header["recipe_id"], f"{self.keys} keys", *sketch)

    def add_prepared(
        self,
        prepared: Prepared,
        *,
        skip_duplicates: bool = False,
        min_jaccard: float | None = None,
    ) -> Iterator[Added]:
        """Add what the `preparer` of this database prepared, as `add_many` does."""
        k, verifier = self._resemblance(min_jaccard, skip_duplicates=skip_duplicates)
        if prepared.fits != self._fits:
            raise RecipeMismatchError(
                f"found documents prepared for {' and '.join(prepared.fits)}, "
                f"expected {' and '.join(self._fits)}",
                hint="prepare them with the preparer of this database",
            )
        candidates = iter(prepared)
        while batch := list(islice(candidates, BATCH)):
            yield from self._add(batch, skip_duplicates=skip_duplicates, k=k, verifier=verifier)

    def _add(
        self,
        batch: Sequence[Candidate],
        *,
        skip_duplicates: bool = False,
        k: int = 0,
        verifier: Verifier | None = None,
    ) -> list[Added]:
        """Add documents in one transaction."""
        with self._environment.write(self._timeout) as txn:
            writer = self._writer(txn)
            writer.expect([candidate.key for candidate in batch])
            added = [
                writer.add(candidate, skip_duplicates=skip_duplicates, k=k, verifier=verifier)
                for candidate in batch
            ]
            writer.apply()
        return added

    def dump(self, file: IO[bytes], *, prefix: str = "") -> int:
        """Write the database in its portable form, for a machine of any kind; `fpdb.load` reads it.

        The file is a binary one, such as `gzip.open(path, "wb")` or a pipe. It gets everything
        that is kept of each document, as it is at this moment, in the order of the ids, or of
        those whose key begins with `prefix`. Return how many there are.
        """
        with self._environment.read() as txn:
            return portable.write(file, txn, self._catalog, self._head, prefix)

    @property
    def _head(self) -> portable.Head:
        return portable.Head.of(self._header, self.plan.bits, self.k)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        file: IO[bytes],
        *,
        capacity: int | None = None,
        timeout: float = LOCK_SECONDS,
    ) -> Loaded:
        """Bring the documents of the portable form, as `dump` writes it, into a database.

        If nothing is at the path, a database like the dumped one is made there, with tables for
        `capacity` documents if it is given. It appears whole, and not at all if the file is
        damaged or cut short. A database that is there must have the same recipe and keys. It gets
        a thousand documents or so at a time, as `add_many` adds them; those before an error stay.

        The times of adding are kept, and so is the order of the documents, but their ids may be
        others. No secret of a recipe is needed.
        """
        source = portable.Source(file)
        if is_vacant(path):
            head = source.head
            if capacity is not None:
                require_whole("capacity", capacity, 1)
                head = dataclasses.replace(head, capacity=capacity)
            with cls._build_like(path, head) as built:
                return cls._take(built, source, _FILLED)
        with cls.open(path, timeout=timeout) as database:
            return cls._take(database, source, BATCH)

    def _take(self, source: portable.Source, together: int) -> Loaded:
        """Add what a file holds, as far as it is sound; then raise what is wrong with it."""
        source.head.require_fit(self._head, str(self.path))
        counts: Counter[str] = Counter()
        for line, batch in source.batches(together):
            prepared, bad = self.preparer.sift(batch)
            if bad:
                prepared = self.preparer(batch[: bad[0][0]])
            counts.update(added.status for added in self._add(list(prepared)))
            for place, error in bad:
                raise InputError(f"line {line + place}: {error}", hint=error.hint)
        return Loaded(**counts)

    def add_fingerprints(
        self, keys: Iterable[Key], fingerprints: Any, *, memory: int = MEMORY
    ) -> int:
        """Add documents whose fingerprints are known; return how many were new or changed.

        `keys` may be an array of numbers; `fingerprints` is an array as `recipe.fingerprint_many`
        gives it, or any numbers. Of a key that comes twice, the last counts. An empty database is
        filled in one transaction, which sorts in about `memory` bytes besides the arrays. To
        others a million documents are added at a time; if that is interrupted, run it again.
        """
        require_whole("memory", memory, LEAST_MEMORY)
        array = self._intake.array(fingerprints)
        names = self._intake.keys(keys)
        if len(names) != len(array):
            raise InputError(
                f"found {len(names)} keys and {len(array)} fingerprints, expected as many of both",
                hint="the first key goes with the first fingerprint, and so on",
            )
        names, array = self._catalog.distinct(names, array)
        if len(names) > BATCH:
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                if not writer.documents:
                    return writer.fill(names, array, memory)
        changed = 0
        for start in range(0, len(names), LOAD):
            some, numbers = names[start : start + LOAD], array[start : start + LOAD]
            while len(some):
                with self._environment.write(self._timeout) as txn:
                    done, left = self._writer(txn).merge(some, numbers)
                changed += done
                some, numbers = at_places(some, left), numbers[left]
        return changed

    def delete(self, key: Key) -> bool:
        """Delete a document; say whether it was there."""
        return self.delete_many([key]) == 1

    def delete_many(self, keys: Iterable[Key]) -> int:
        """Delete documents; return how many were there."""
        keys, deleted = iter(each(keys, "keys")), 0
        while batch := list(islice(keys, BATCH)):
            for key in batch:
                self._catalog.check_key(key)
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                writer.expect(batch)
                deleted += sum(map(writer.remove, batch))
                writer.apply()
        return deleted

    def delete_duplicates(
        self,
        k: int | None = None,
        *,
        keep: Literal["first", "longest"] = "first",
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Iterator[Cluster]:
        """Delete all documents of each cluster but its representative; yield what was deleted.

        A thousand or so are deleted at a time, each time in one transaction, and yielded once
        that is durable; a cluster with more comes in several parts. What has changed since the
        clusters were found stays. Nothing is deleted before the result is iterated.
        """
        from fpdb import joins

        wanted, verifier = self._wanted(k, keep, min_jaccard, exact)
        with self._environment.read() as txn:
            view = View(txn, self._index, self._catalog)
            clusters = list(joins.find_members(view, wanted, keep=keep, verifier=verifier))
        duplicates = _duplicates(self._index, clusters)
        while batch := list(islice(duplicates, BATCH)):
            with self._environment.write(self._timeout) as txn:
                deleted = self._delete_unchanged(txn, batch)
            for representative, some in groupby(deleted, key=itemgetter(0)):
                yield Cluster(representative, tuple(key for _, key in some))

    def _delete_unchanged(
        self, txn: WriteTransaction, batch: Sequence[tuple[_Place, _Place]]
    ) -> list[tuple[Key, Key]]:
        """Delete the second of each two documents if both are what they were; give their keys."""
        keys: dict[_Place, Key] = {}
        for place in {place for pair in batch for place in pair}:
            stored = self._catalog.load(txn, place.id)
            if stored is not None and stored.fingerprint == place.fingerprint:
                keys[place] = stored.key
        pairs = [(keys[a], keys[b]) for a, b in batch if a in keys and b in keys]
        writer = self._writer(txn)
        writer.expect([duplicate for _, duplicate in pairs])
        for _, duplicate in pairs:
            writer.remove(duplicate)
        writer.apply()
        return pairs

    def _writer(self, txn: Any) -> Writer:
        return Writer(txn, self._index, self._catalog, self._lookup, int(time.time()))


def _duplicates(index: Index, clusters: Iterable["Members"]) -> Iterator[tuple[_Place, _Place]]:
    """Give each document that isn't to be kept, behind the one that is kept for it."""
    for ids, fingerprints in clusters:
        first, *others = map(_Place, ids.tolist(), index.numbers(fingerprints))
        for duplicate in others:
            yield first, duplicate
