"""The database: documents go in, near-duplicates come out; transactions, ids and counts."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from typing import Any

from fpdb import corpus
from fpdb.documents import (
    BATCH,
    CANDIDATES,
    LOAD,
    Intake,
    Lookup,
    Prepared,
    Preparer,
    Writer,
    take,
    to_document,
)
from fpdb.errors import DocumentNotFoundError, InputError, RecipeError, RecipeMismatchError
from fpdb.fingerprint import Recipe
from fpdb.handle import Handle, require_fit
from fpdb.models import Added, Document, Key, Matches, Problem, Stats
from fpdb.snapshot import Snapshot
from fpdb.storage import LOCK_SECONDS, Environment
from fpdb.storage.counters import Counters
from fpdb.tables import Hits, Plan, plans
from fpdb.tables.loading import MEMORY
from fpdb.workers import Workers

# The answers of `query_many` that are held at once have hardly more matches than this.
_MATCHES = 100_000


class Database(Handle):
    """A persistent database of fingerprints in a directory; open it with `fpdb.open`.

    It may be shared by threads, survives a fork, and can be pickled as its path. Several
    processes may read and write the same directory.
    """

    def __init__(
        self, environment: Environment, recipe: Recipe | None = None, timeout: float = LOCK_SECONDS
    ) -> None:
        super().__init__(environment, recipe, timeout)
        self._lookup = Lookup(self._index, self._catalog)
        self._intake = Intake(self._index, self._catalog)

    # Writing

    def add(self, key: Key, text: str, meta: Any = None, *, skip_duplicates: bool = False) -> Added:
        """Add one document, or replace the one with its key; durable when it returns.

        With `skip_duplicates`, a document that resembles a stored one isn't added: looking and
        adding are one transaction, so of two crawlers with the same page only one adds it.
        """
        document = Document(key, text, meta)
        return next(self.add_many([document], skip_duplicates=skip_duplicates))

    def add_many(
        self, documents: Iterable[Document], *, skip_duplicates: bool = False, jobs: int = 1
    ) -> Iterator[Added]:
        """Add documents in transactions of a thousand or so; yield each once it is durable.

        Nothing is added before the result is iterated, as a for loop does. With several `jobs`,
        so many further processes make the fingerprints, and this one stores; 0 stands for all
        processors. What is stored and yielded, and in which order, doesn't depend on it.
        """
        source = iter(documents)
        batches = iter(lambda: take(source), [])
        for _, prepared in Workers(self.preparer, jobs).map(batches):
            yield from self.add_prepared(prepared, skip_duplicates=skip_duplicates)

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
    def _fits(self) -> tuple[str, str]:
        return self._header["recipe_id"], self.keys

    def add_prepared(self, prepared: Prepared, *, skip_duplicates: bool = False) -> Iterator[Added]:
        """Add what the `preparer` of this database prepared, as `add_many` does."""
        if prepared.fits != self._fits:
            raise RecipeMismatchError(
                f"found documents prepared for {' and '.join(prepared.fits)} keys, "
                f"expected {' and '.join(self._fits)} keys",
                hint="prepare them with the preparer of this database",
            )
        candidates = iter(prepared)
        while batch := list(islice(candidates, BATCH)):
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                writer.expect([candidate.key for candidate in batch])
                added = [
                    writer.add(candidate, skip_duplicates=skip_duplicates, k=self.k)
                    for candidate in batch
                ]
                writer.apply()
            yield from added

    def add_fingerprints(
        self, keys: Iterable[Key], fingerprints: Any, *, memory: int = MEMORY
    ) -> int:
        """Add documents whose fingerprints are known; return how many were new or changed.

        `keys` may be an array of numbers; `fingerprints` is an array as `recipe.fingerprint_many`
        gives it, or any numbers. Of a key that comes twice, the last counts. An empty database is
        filled in one transaction, which sorts in about `memory` bytes besides the arrays. To
        others a million documents are added at a time; if that is interrupted, run it again.
        """
        array = self._intake.array(fingerprints)
        names = self._intake.keys(keys)
        if len(names) != len(array):
            raise InputError(
                f"found {len(names)} keys and {len(array)} fingerprints, expected as many of both",
                hint="the first key goes with the first fingerprint, and so on",
            )
        names, array = self._catalog.distinct(names, array)
        changed = 0
        for start in range(0, len(names), LOAD):
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                if not writer.documents and start == 0 and len(names) > BATCH:
                    return writer.fill(names, array, memory)
                changed += writer.merge(names[start : start + LOAD], array[start : start + LOAD])
        return changed

    def delete(self, key: Key) -> bool:
        """Delete a document; say whether it was there."""
        return self.delete_many([key]) == 1

    def delete_many(self, keys: Iterable[Key]) -> int:
        """Delete documents; return how many were there."""
        keys, deleted = iter(keys), 0
        while batch := list(islice(keys, BATCH)):
            for key in batch:
                self._catalog.check_key(key)
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                writer.expect(batch)
                deleted += sum(map(writer.remove, batch))
                writer.apply()
        return deleted

    def _writer(self, txn: Any) -> Writer:
        return Writer(txn, self._index, self._catalog, self._lookup, int(time.time()))

    # Reading

    def query(self, text: str, *, k: int | None = None, limit: int | None = None) -> Matches:
        """Find the stored documents near a text; one that is short finds equal texts only."""
        return next(self.query_many([text], k=k, limit=limit))

    def query_many(
        self, texts: Iterable[str], *, k: int | None = None, limit: int | None = None, jobs: int = 1
    ) -> Iterator[Matches]:
        """Find the stored documents near each of many texts, a thousand of them together.

        An answer is what the database holds when its thousand are looked up, or a part of them if
        they match very many documents. With several `jobs`, so many further processes make the
        fingerprints; 0 stands for all processors. The answers and their order don't depend on it.
        """
        self._intake.check_query(k, limit)
        k = self.k if k is None else k
        source = iter(texts)
        blocks = iter(lambda: list(islice(source, BATCH)), [])
        for block, batch in Workers(self.recipe.batch, jobs).map(blocks):
            left, fingerprints, short = list(block), batch.fingerprints, batch.short
            while left:
                found: list[Matches] = []
                held = 0
                with self._environment.read() as txn:
                    for matches in self._lookup.near_texts(
                        txn, left, fingerprints, short, k=k, limit=limit
                    ):
                        found.append(matches)
                        held += len(matches)
                        if held >= _MATCHES:
                            break
                yield from found
                left = left[len(found) :]
                fingerprints, short = fingerprints[len(found) :], short[len(found) :]

    def query_fingerprint(
        self,
        fingerprint: int,
        *,
        k: int | None = None,
        limit: int | None = None,
        budget: int = CANDIDATES,
    ) -> Matches:
        """Find the stored documents near a fingerprint.

        A `budget` bounds the candidates that are read; if it ends the search, the matches say
        that they aren't complete.
        """
        self._intake.check_query(k, limit)
        number = self._intake.number(fingerprint)
        with self._environment.read() as txn:
            return self._lookup.near(txn, number, self.k if k is None else k, limit, budget)

    def query_fingerprints(
        self, fingerprints: Any, *, k: int | None = None, limit: int | None = None
    ) -> Hits:
        """Find the stored documents near each of many fingerprints, all of them together.

        Gives arrays: the places of the queries, the ids of the documents, the distances, sorted by
        query, distance and id; and for each query whether its answer is complete. Each query has
        the budgets of `query_fingerprint`. A `limit` takes the nearest documents of each, those
        with the lowest ids where distances are equal.
        """
        self._intake.check_query(k, limit)
        array = self._intake.array(fingerprints)
        with self._environment.read() as txn:
            return self._lookup.hits(txn, array, self.k if k is None else k, limit)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a view of this moment, for a `with` block that asks many questions.

        Its queries are faster, since none begins a transaction. It keeps LMDB from using the pages
        again that are freed while it is open, so the file may grow meanwhile.
        """
        with self._environment.read() as txn:
            yield Snapshot(
                txn,
                k=self.k,
                recipe=lambda: self.recipe,
                lookup=self._lookup,
                intake=self._intake,
                catalog=self._catalog,
            )

    def get(self, key: Key, default: Any = None) -> Document | Any:
        """Give the stored document with a key, or the default."""
        with self._environment.read() as txn:
            stored = self._catalog.find(txn, key)
            return default if stored is None else to_document(stored)

    def scan(self, *, prefix: str = "", added_before: float | None = None) -> Iterator[Document]:
        """Give the stored documents in the order of their keys; what is added meanwhile may show.

        Keys of 511 bytes and more are in the order of their first 479 bytes.
        `prefix` takes those whose key begins with it, `added_before` those added before a time,
        in seconds since 1970.
        """
        after: Key | None = None
        while True:
            with self._environment.read() as txn:
                found = self._catalog.slice_after(txn, after, prefix)
            if not found:
                return
            after = found[-1].key
            for stored in found:
                if added_before is None or stored.added < added_before:
                    yield to_document(stored)

    def stats(self) -> Stats:
        """Tell what the database holds, and how."""
        with self._environment.read() as txn:
            return corpus.stats(txn, self._index, self._catalog, self._header, self._environment)

    def compact(
        self,
        path: str | os.PathLike[str],
        *,
        capacity: int | None = None,
        k: int | None = None,
        plan: Plan | None = None,
        memory: int = MEMORY,
    ) -> None:
        """Write a new database with the same documents and ids, without free pages.

        With a capacity or a k, its tables are those of the best plan for them; with a plan, those
        of that plan. It is made beside the path and moved there whole. What is added meanwhile
        isn't in it.
        """
        room = capacity or self._header["capacity"]
        wanted = self.k if k is None else k
        if plan is None:
            replan = capacity is not None or wanted != self.k
            plan = plans(self.plan.bits, wanted, room)[0] if replan else self.plan
        require_fit(plan, self.plan.bits, wanted)
        head = {**self._header, "plan": plan.to_dict(), "capacity": room}
        with self._environment.read() as txn:
            corpus.compact(txn, self._index, self._catalog, head=head, path=path, memory=memory)

    def check(self) -> Iterator[Problem]:
        """Compare the tables, the documents and the counters; yield what doesn't agree."""
        with self._environment.read() as txn:
            yield from corpus.check(txn, self._index, self._catalog)

    def __getitem__(self, key: Key) -> Document:
        found = self.get(key)
        if found is None:
            raise DocumentNotFoundError(
                f"{self.path} has no document {key!r}",
                hint="db.get(key) gives None for a key that isn't there",
            )
        return found

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        with self._environment.read() as txn:
            return Counters.unpack(txn.get("header", b"counters")).documents

    def __iter__(self) -> Iterator[Key]:
        return (document.key for document in self.scan())
