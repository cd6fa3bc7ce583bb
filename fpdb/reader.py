"""What can be asked of a database: each question is a transaction over the layers below."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from fpdb.arrays import each
from fpdb.documents import (
    BATCH,
    CANDIDATES,
    Ask,
    Intake,
    Lookup,
    Texts,
    Verifier,
    View,
    replanned,
    to_document,
)
from fpdb.errors import DocumentNotFoundError, InputError
from fpdb.fingerprint import Recipe
from fpdb.handle import Handle
from fpdb.models import (
    Cluster,
    Document,
    Group,
    Key,
    Matches,
    Pair,
    Problem,
    Stats,
    require_whole,
)
from fpdb.processes import Workers
from fpdb.snapshot import Snapshot
from fpdb.storage import LOCK_SECONDS, Environment
from fpdb.storage.counters import Counters
from fpdb.tables import Hits, Plan
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY

# The answers of `query_many` that are held at once have hardly more matches than this.
_MATCHES = 100_000

_Read = TypeVar("_Read")


class Reader(Handle):
    """The reading half of a database."""

    def __init__(
        self, environment: Environment, recipe: Recipe | None = None, timeout: float = LOCK_SECONDS
    ) -> None:
        super().__init__(environment, recipe, timeout)
        self._lookup = Lookup(self._index, self._catalog)
        self._intake = Intake(self._index, self._catalog)

    def query(
        self,
        text: str,
        *,
        k: int | None = None,
        limit: int | None = None,
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Matches:
        """Find the stored documents near a text; one that is short finds equal texts only.

        With `min_jaccard`, matches are verified, as `query_many` says.
        """
        found = self.query_many([text], k=k, limit=limit, min_jaccard=min_jaccard, exact=exact)
        return next(found)

    def query_many(
        self,
        texts: Iterable[str],
        *,
        k: int | None = None,
        limit: int | None = None,
        min_jaccard: float | None = None,
        exact: Texts | None = None,
        jobs: int = 1,
    ) -> Iterator[Matches]:
        """Find the stored documents near each of many texts, a thousand of them together.

        With `min_jaccard`, the first look is at a wider k, unless k is given; a match is what has
        that Jaccard similarity by its sketch, or exactly by its text in `exact`, which gives the
        stored documents' texts by their keys. The most similar come first.

        An answer is what the database holds when its thousand are looked up, or a part of them if
        they match very many documents. With several `jobs`, so many further processes make the
        fingerprints; 0 stands for all processors. The answers and their order don't depend on it.
        """
        wanted, verifier = self._look(k, limit, min_jaccard, exact)
        if isinstance(texts, str):
            raise InputError("found a string, expected several texts", hint="put it into a list")
        source = iter(each(texts, "texts"))
        blocks = iter(lambda: list(islice(source, BATCH)), [])
        sketched = verifier is not None and not verifier.exact
        work = partial(self.recipe.batch, sketches=sketched)
        for block, batch in Workers(work, jobs).map(blocks):
            ask = self._lookup.of_texts(list(block), batch, wanted, limit, verifier)
            yield from self._near(len(batch), ask)

    def query_each(
        self,
        fingerprints: Any,
        *,
        k: int | None = None,
        limit: int | None = None,
        min_jaccard: float | None = None,
        sketches: Any = None,
    ) -> Iterator[Matches]:
        """Find the stored documents near each of many fingerprints, a thousand of them together.

        The answers are those of `query_fingerprint`. `min_jaccard` needs the sketches of the same
        texts, as `recipe.batch(texts, sketches=True)` gives both.
        """
        wanted, verifier = self._look(k, limit, min_jaccard)
        array = self._intake.array(fingerprints)
        rows = self._intake.sketches(sketches, len(array)) if verifier else None
        for start in range(0, len(array), BATCH):
            some = slice(start, start + BATCH)
            own = None if rows is None else rows[some]
            ask = self._lookup.of_fingerprints(array[some], own, wanted, limit, verifier)
            yield from self._near(len(array[some]), ask)

    def _look(
        self,
        k: int | None,
        limit: int | None,
        min_jaccard: float | None,
        exact: Texts | None = None,
    ) -> tuple[int, Verifier | None]:
        """Check a question; give the k of its first look, and how its matches are verified."""
        return self._intake.look(
            k, limit, self.k, min_jaccard, texts=exact, recipe=lambda: self.recipe
        )

    def _near(self, count: int, ask: Ask) -> Iterator[Matches]:
        """Look many questions up together; the answers that are held have so many matches."""
        done = 0
        while done < count:
            found: list[Matches] = []
            held = 0
            with self._environment.read() as txn:
                for matches in ask(txn, done):
                    found.append(matches)
                    held += len(matches)
                    if held >= _MATCHES:
                        break
            yield from found
            done += len(found)

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
        require_whole("budget", budget, 0)
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

    @overload
    def pairs(
        self,
        k: int | None = None,
        *,
        groups: Literal[False] = False,
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Iterator[Pair]: ...

    @overload
    def pairs(self, k: int | None = None, *, groups: bool) -> Iterator[Pair | Group]: ...

    def pairs(
        self,
        k: int | None = None,
        *,
        groups: bool = False,
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Iterator[Pair] | Iterator[Pair | Group]:
        """Find all pairs of stored documents within k, each once, in no particular order.

        With `groups`, documents with the very same fingerprint come as one group and not as
        pairs, and near pairs are those of the first documents of each fingerprint. With
        `min_jaccard` (and `exact`), pairs are verified as the matches of `query_many` are. Short
        texts have no pairs. One snapshot is read, which lasts as long as the result is iterated.
        """
        from fpdb import joins

        wanted, verifier = self._look(k, None, min_jaccard, exact)
        if groups and verifier:
            raise InputError("found groups and min_jaccard", hint="a group isn't verified")
        if groups:
            return self._snapshot(lambda view: joins.find_groups(view, wanted))
        return self._snapshot(lambda view: joins.find_pairs(view, wanted, verifier))

    def clusters(
        self,
        k: int | None = None,
        *,
        keep: Literal["first", "longest"] = "first",
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Iterator[Cluster]:
        """Find the documents that pairs within k connect, in the order of their first ones.

        A cluster is represented by its first document, the one with the smallest id, or with
        `keep="longest"` by the one with the longest text. A chain of near documents is one
        cluster, so a duplicate may be farther than k from its representative. With `min_jaccard`
        (and `exact`), pairs are verified, as `pairs` says.
        """
        from fpdb import joins

        wanted, verifier = self._wanted(k, keep, min_jaccard, exact)
        return self._snapshot(
            lambda view: joins.find_clusters(view, wanted, keep=keep, verifier=verifier)
        )

    def _wanted(
        self, k: int | None, keep: str, min_jaccard: float | None, exact: Texts | None
    ) -> tuple[int, Verifier | None]:
        if keep not in ("first", "longest"):
            raise InputError(
                f"found keep={keep!r}, expected first or longest",
                hint="first keeps the document with the smallest id",
            )
        return self._look(k, None, min_jaccard, exact)

    def _snapshot(self, read: Callable[[View], Iterator[_Read]]) -> Iterator[_Read]:
        """Read in one transaction that lasts until everything was read."""
        with self._environment.read() as txn:
            yield from read(View(txn, self._index, self._catalog))

    def get(self, key: Key, default: Any = None) -> Document | Any:
        """Give the stored document with a key, or the default."""
        with self._environment.read() as txn:
            stored = self._catalog.find(txn, key)
            return default if stored is None else to_document(stored)

    def keys_of(self, ids: Iterable[int]) -> list[Key | None]:
        """Give the keys of documents by their ids, as `query_fingerprints` gives them.

        A document that has been deleted meanwhile has None.
        """
        numbers = self._intake.ids(ids)
        with self._environment.read() as txn:
            return self._catalog.keys_of(txn, numbers)

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
        from fpdb.maintenance.stats import stats

        with self._environment.read() as txn:
            return stats(txn, self._index, self._catalog, self._header, self._environment)

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
        from fpdb.maintenance.compact import compact

        require_whole("memory", memory, LEAST_MEMORY)
        head = replanned(self._header, k=k, capacity=capacity, plan=plan)
        with self._environment.read() as txn:
            compact(txn, self._index, self._catalog, head=head, path=path, memory=memory)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the database to a new directory while others write; it is on disk on return.

        The copy is this moment's, without free pages. It is verified, structure and checksums,
        before it appears at the path.
        """
        from fpdb.maintenance.check import require_intact

        with self._environment.backup(path) as copy, copy.read() as txn:
            require_intact(View(txn, self._index, self._catalog))

    @contextlib.contextmanager
    def hold(self) -> Iterator[Path]:
        """Keep the files such that another program may copy them, while others write.

        Run that program as a process of its own in the `with` block: this process may not open
        the files itself, since closing them again would end its locks. What is freed meanwhile
        isn't used again, so the file grows with what is written.
        """
        with self._environment.read():
            yield self.path

    def check(self) -> Iterator[Problem]:
        """Compare the header, tables, documents and counters; yield what doesn't agree.

        It reads in this process, which a file that LMDB can't read may end; `fpdb.check` reads in
        another one, and can follow LMDB's own structure. It takes a bounded amount of memory,
        however many documents there are. The snapshot lasts as long as the iteration.
        """
        from fpdb.maintenance.check import check_view

        with self._environment.read() as txn:
            yield from check_view(View(txn, self._index, self._catalog))

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
