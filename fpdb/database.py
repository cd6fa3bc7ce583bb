"""The database: documents go in, near-duplicates come out; transactions, ids and counts."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar, overload

import numpy as np

from fpdb import corpus
from fpdb.documents import (
    BATCH,
    CANDIDATES,
    Intake,
    Lookup,
    Writer,
    digest_of,
    take,
    to_document,
)
from fpdb.errors import (
    DocumentNotFoundError,
    InputError,
)
from fpdb.fingerprint import Recipe
from fpdb.handle import Handle
from fpdb.models import (
    Added,
    Cluster,
    Document,
    Group,
    Key,
    Matches,
    Pair,
    Problem,
    Stats,
)
from fpdb.storage import LOCK_SECONDS, Environment, ReadTransaction, WriteTransaction
from fpdb.storage.counters import Counters
from fpdb.tables import Hits, Index, near_many

_Read = TypeVar("_Read")


class _Place(NamedTuple):
    """A document by its id, and the fingerprint that it had."""

    id: int
    fingerprint: int


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
        self, documents: Iterable[Document], *, skip_duplicates: bool = False
    ) -> Iterator[Added]:
        """Add documents in transactions of a thousand or so; yield each once it is durable.

        Nothing is added before the result is iterated, as a for loop does.
        """
        documents = iter(documents)
        while batch := take(documents):
            candidates = self._intake.candidates(batch, lambda: self.recipe)
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                writer.expect([candidate.key for candidate in candidates])
                added = [
                    writer.add(candidate, skip_duplicates=skip_duplicates, k=self.k)
                    for candidate in candidates
                ]
                writer.apply()
            yield from added

    def add_fingerprints(self, keys: Iterable[Key], fingerprints: Any) -> int:
        """Add documents whose fingerprints are known; return how many were new or changed.

        `fingerprints` is an array as `recipe.fingerprint_many` gives it, or any numbers.
        """
        array = self._intake.array(fingerprints)
        names = keys.tolist() if isinstance(keys, np.ndarray) else list(keys)
        if len(names) != len(array):
            raise InputError(
                f"found {len(names)} keys and {len(array)} fingerprints, expected as many of both",
                hint="the first key goes with the first fingerprint, and so on",
            )
        for name in names:
            self._catalog.check_key(name)
        if len(names) > BATCH:
            with self._environment.write(self._timeout) as txn:
                writer = self._writer(txn)
                if not writer.documents:
                    filled = writer.fill(names, array)
                    writer.apply()
                    return filled
        numbers = self._index.numbers(array)
        documents = (
            Document(name, fingerprint=number) for name, number in zip(names, numbers, strict=True)
        )
        changed = (added for added in self.add_many(documents) if added.status != "unchanged")
        return len({added.key for added in changed})  # of a key that comes twice, the last counts

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

    def delete_duplicates(
        self, k: int | None = None, *, keep: Literal["first", "longest"] = "first"
    ) -> Iterator[Cluster]:
        """Delete all documents of each cluster but its representative; yield what was deleted.

        A thousand or so are deleted at a time, each time in one transaction, and yielded once
        that is durable; a cluster with more comes in several parts. What has changed since the
        clusters were found stays. Nothing is deleted before the result is iterated.
        """
        wanted = self._wanted(k, keep)
        with self._environment.read() as txn:
            clusters = list(corpus.members(txn, self._index, self._catalog, wanted, keep))
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

    # Reading

    def query(self, text: str, *, k: int | None = None, limit: int | None = None) -> Matches:
        """Find the stored documents near a text; one that is short finds equal texts only."""
        return next(self.query_many([text], k=k, limit=limit))

    def query_many(
        self, texts: Iterable[str], *, k: int | None = None, limit: int | None = None
    ) -> Iterator[Matches]:
        """Find the stored documents near each of many texts."""
        self._intake.check_query(k, limit)
        texts = iter(texts)
        while block := list(islice(texts, BATCH)):
            batch = self.recipe.batch(block)
            numbers = self._index.numbers(batch.fingerprints)
            for text, number, short in zip(block, numbers, batch.short.tolist(), strict=True):
                if short:
                    with self._environment.read() as txn:
                        found = self._lookup.same_text(txn, digest_of(text), limit)
                    yield found
                else:
                    yield self.query_fingerprint(number, k=k, limit=limit)

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

    def query_fingerprints(self, fingerprints: Any, *, k: int | None = None) -> Hits:
        """Find the stored documents near each of many fingerprints, all of them together.

        Gives three arrays, sorted by query, distance and id: the places of the queries, the ids
        of the documents, the distances. Nothing is cut.
        """
        self._intake.check_query(k, None)
        array = self._intake.array(fingerprints)
        with self._environment.read() as txn:
            return near_many(txn, self._index, array, self.k if k is None else k)

    @overload
    def pairs(self, k: int | None = None) -> Iterator[Pair]: ...

    @overload
    def pairs(self, k: int | None = None, *, groups: Literal[False]) -> Iterator[Pair]: ...

    @overload
    def pairs(self, k: int | None = None, *, groups: bool) -> Iterator[Pair | Group]: ...

    def pairs(
        self, k: int | None = None, *, groups: bool = False
    ) -> Iterator[Pair] | Iterator[Pair | Group]:
        """Find all pairs of stored documents within k, each once, in no particular order.

        With `groups`, documents with the very same fingerprint come as one group and not as
        pairs, and near pairs are those of the first documents of each fingerprint. Short texts
        have no pairs. One snapshot is read, which lasts as long as the result is iterated.
        """
        self._intake.check_query(k, None)
        join = corpus.grouped if groups else corpus.pairs
        return self._snapshot(
            lambda txn: join(txn, self._index, self._catalog, self.k if k is None else k)
        )

    def clusters(
        self, k: int | None = None, *, keep: Literal["first", "longest"] = "first"
    ) -> Iterator[Cluster]:
        """Find the documents that pairs within k connect, in the order of their first ones.

        A cluster is represented by its first document, the one with the smallest id, or with
        `keep="longest"` by the one with the longest text. A chain of near documents is one
        cluster, so a duplicate may be farther than k from its representative.
        """
        wanted = self._wanted(k, keep)
        return self._snapshot(
            lambda txn: corpus.clusters(txn, self._index, self._catalog, wanted, keep)
        )

    def _wanted(self, k: int | None, keep: str) -> int:
        self._intake.check_query(k, None)
        if keep not in ("first", "longest"):
            raise InputError(
                f"found keep={keep!r}, expected first or longest",
                hint="first keeps the document with the smallest id",
            )
        return self.k if k is None else k

    def _snapshot(self, read: Callable[[ReadTransaction], Iterator[_Read]]) -> Iterator[_Read]:
        """Read in one transaction that lasts until everything was read."""
        with self._environment.read() as txn:
            yield from read(txn)

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


def _duplicates(
    index: Index, clusters: Iterable[corpus.Members]
) -> Iterator[tuple[_Place, _Place]]:
    """Give each document that isn't to be kept, behind the one that is kept for it."""
    for ids, fingerprints in clusters:
        first, *others = map(_Place, ids.tolist(), index.numbers(fingerprints))
        for duplicate in others:
            yield first, duplicate
