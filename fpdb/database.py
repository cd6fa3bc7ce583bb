"""The database: created, opened, or built; changed in transactions; copied."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, Self

from fpdb.arrays import items_of
from fpdb.documents import layout
from fpdb.documents.lookup import Search, answers, times_of
from fpdb.documents.prepare import BATCH, Preparer, keyed_rows, take, transactions
from fpdb.documents.runs import Runs
from fpdb.documents.similarity import KnownTexts
from fpdb.documents.writer import Writer, without_collector
from fpdb.errors import DatabaseNotFoundError, InputError, MovedError, NotADatabaseError
from fpdb.fingerprint import Recipe, preset
from fpdb.maintenance.check import check_view, require_checksums, require_complete_copy
from fpdb.maintenance.rebuild import CopySource, compact
from fpdb.models import (
    Added,
    Cluster,
    Document,
    Key,
    Problem,
    Stats,
    TextsByKey,
    now,
    require_whole,
)
from fpdb.progress import log, tracked
from fpdb.queries import Queries, Snapshot
from fpdb.storage import LOCK_SECONDS, Environment, ReadTransaction, drafts
from fpdb.storage.block import Block
from fpdb.tables import Plan
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY
from fpdb.threads import mapped

# Shingles of the texts that are compared exactly within one transaction: 128 MiB.
_MOST_SHINGLES = 1 << 24


class Database(Queries):
    """A persistent database of fingerprints in a directory; open it with `fpdb.open`.

    It may be shared by threads, survives a fork, and can be pickled as its path. Several
    processes may read and write the same directory. Errors of writing are those of `add`.
    """

    def __init__(
        self,
        environment: Environment,
        recipe: Recipe | None = None,
        k: int | None = None,
        *,
        timeout: float = LOCK_SECONDS,
    ) -> None:
        self._header, index, catalog = layout.read_layout(environment)
        self._environment = environment
        self._timeout = timeout
        layout.require_created_with(recipe, k, self._header, environment.path)
        super().__init__(Preparer(self._header, index, catalog, recipe))

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        recipe: str | Recipe = "web",
        similarity: float | Literal["recipe"] | None = "recipe",
        k: int | None = None,
        capacity: int = 1_000_000,
        keys: str = "text",
        plan: Plan | None = None,
        passages: bool = False,
        groups: bool = False,
        timeout: float = LOCK_SECONDS,
    ) -> Self:
        """Create a database and open it; there must not be one at the path.

        A database keeps a sketch of each text, with the bands that find texts of this similarity.
        With `similarity=None` it is a database of bits, where fingerprints within `k` match: for
        ready fingerprints, titles and the smallest files.

        Args:
            path: The directory of the database, on a local disk.
            recipe: The name of a preset, or a recipe; it never changes.
            similarity: The least similarity that counts as a match; by default that of the recipe,
                0.8 with "web". None for a database of bits.
            k: The largest distance that counts as a match in a database of bits; by default that of
                the recipe.
            capacity: The number of documents to choose the plan for; it isn't a limit.
            keys: "text", or "integer" for numbers from 0 to 2**64 - 1.
            plan: The tables, e.g. one of `fpdb.plans`; by default the best for k and the capacity.
            passages: Whether to keep what finds copied passages; about 150 bytes for a
                text of 200 words, and 600 for one of 700 Chinese characters.
            groups: Whether to keep for each text the group that it belongs to, as `group` shows it;
                about 20 bytes for one that is in the group of another.
            timeout: How many seconds a write waits for other writers.

        Raises:
            DatabaseExistsError: There is a database, a file, or a directory with other files.
            OpenError: It can't be created there, e.g. on a network file system.
            RecipeError, PlanError: There is no such recipe or plan.
            InputError: Groups are to be kept of bits.
        """
        chosen, described = layout.header_for(
            recipe,
            similarity=similarity,
            k=k,
            capacity=capacity,
            keys=keys,
            plan=plan,
            passages=passages,
            groups=groups,
        )
        new = layout.new_database(described)
        environment = Environment.create(path, *new, verify=require_complete_copy)
        db = cls(environment, chosen, timeout=timeout)
        log("DEBUG", "created %s: recipe %s, similarity %s", db.path, chosen.name, db.similarity)
        return db

    @classmethod
    @contextlib.contextmanager
    def build(cls, path: str | os.PathLike[str], **settings: Any) -> Iterator[Self]:
        """Create a database for a `with` block to fill, faster than one that is in its place.

        It is made beside the path and moved there when the block ends, complete and synced. If the
        block fails, there is none. The handle ends with the block. The settings are those of
        `create`, but for the timeout.
        """
        chosen, described = layout.header_for(**settings)
        with Environment.build(path, *layout.new_database(described)) as environment:
            yield cls(environment, chosen)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        recipe: str | Recipe | None = None,
        k: int | None = None,
        timeout: float = LOCK_SECONDS,
    ) -> Self:
        """Open an existing database, with the similarity of its creation; it never creates one.

        Args:
            path: The directory of the database.
            readonly: Refuse to write through this handle.
            recipe: The stored recipe, which must be given if it is keyed, because its secret isn't
                stored. One with a larger `largest` lets this handle take larger texts.
            k: The stored k, if you want it checked.
            timeout: How many seconds a write waits for other writers.

        Raises:
            DatabaseNotFoundError: Nothing is at the path.
            NotADatabaseError, FormatError: What is there isn't a database that this version reads.
            RecipeMismatchError: The recipe or k isn't the stored one.
            DamagedError: It is damaged, or a copy that isn't complete.
            AccessError: It belongs to another user.
        """
        environment = Environment.open(path, readonly=readonly, verify=require_complete_copy)
        try:
            chosen = preset(recipe) if isinstance(recipe, str) else recipe
            database = cls(environment, chosen, k, timeout=timeout)
        except BaseException:
            environment.close()
            raise
        name = database._header["recipe"].get("name")
        log("DEBUG", "opened %s%s: recipe %s", database.path, " to read" * readonly, name)
        return database

    @property
    def path(self) -> Path:
        """Where the database is."""
        return self._environment.path

    @property
    def readonly(self) -> bool:
        """Whether this handle refuses to write."""
        return self._environment.readonly

    @property
    def damage(self) -> str:
        """The first damage that this handle has met, or nothing; `check` looks for all."""
        return self._environment.damage

    @property
    def preparer(self) -> Preparer:
        """What turns documents into those that `add_prepared` takes, in any process."""
        return self._preparer

    def _transaction(self) -> ReadTransaction:
        return self._environment.read()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a `Snapshot` of this moment, for a `with` block with many questions."""
        with self._environment.read() as txn:
            yield Snapshot(self._preparer, txn)

    def add(
        self,
        key: Key,
        text: str,
        meta: Any = None,
        *,
        skip_duplicates: bool = False,
        similarity: float | None = None,
        texts: TextsByKey | None = None,
    ) -> Added:
        """Add one document, or replace the one with its key; durable when it returns.

        With `skip_duplicates`, a document that resembles a stored one isn't added: looking and
        adding are one transaction, so of two crawlers with the same page only one adds it.

        Args:
            key: Your name for the document: text of at most 64 KiB, or with integer keys a number.
            text: Its text, of at most 2 MiB (the recipe's `largest`), which isn't stored; of an
                HTML page that of `html_text`, or there is a TagsWarning, once a handle.
            meta: A value that JSON can hold, of at most 64 KiB, stored with it.
            skip_duplicates: Don't add a document with a new key that resembles a stored one.
            similarity: The least similarity of a duplicate; by default that of the database.
            texts: The texts of stored documents, as in `query`, for duplicates and for groups. They
                are asked for before the transaction, and what others add meanwhile is compared by
                estimates.

        Returns:
            What became of it: `status` is "added", "replaced", "unchanged", "duplicate" or "short".
            The `matches` of a duplicate are what it resembles, all if `matches.complete`. Of a
            database with groups, `group` is the key of the keeper of its group, its own if it
            begins one.

        Raises:
            InputError: The key, the text or the metadata can't be stored.
            LockTimeoutError: Another process wrote for longer than the `timeout` of the handle.
            DiskFullError: The disk is full; like all errors, it changes nothing that was stored.
            ReadOnlyError, ClosedError: The handle was opened for reading, or is closed.
        """
        duplicates = self._duplicates(similarity, texts, skip_duplicates=skip_duplicates)
        documents = self._preparer.watched([Document(key, text, meta)])
        prepared = self._preparer.prepare(documents, keep_texts=texts is not None)
        [added] = self._add(prepared, duplicates, texts)
        return added

    def add_many(
        self,
        documents: Iterable[Document],
        *,
        skip_duplicates: bool = False,
        similarity: float | None = None,
        texts: TextsByKey | None = None,
        jobs: int = 1,
        transaction: int = BATCH,
    ) -> Iterator[Added]:
        """Add documents in transactions of a thousand or so; yield each once it is durable.

        Nothing is added before the result is iterated, as a for loop does.

        Args:
            documents: Any iterable of `fpdb.Document`.
            skip_duplicates: As in `add`; documents of one call are compared with each other too.
            similarity: As in `add`.
            texts: As in `add`; documents of one call are compared by their own texts.
            jobs: The number of threads that make the fingerprints; 0 for one a processor. What is
                stored and yielded, and in which order, doesn't depend on it.
            transaction: The number of documents in a transaction. A larger one is faster, but other
                writers wait until it ends, and nothing is yielded before.

        Yields:
            What `add` returns, for each document in order.

        Raises:
            InputError: A document can't be stored. Nothing of its transaction is, all before it is.
        """
        require_whole("transaction", transaction, 1)
        duplicates = self._duplicates(similarity, texts, skip_duplicates=skip_duplicates)
        parts = map(self._preparer.watched, take(iter(documents), transaction))
        prepare = partial(self._preparer.packed, keep_texts=texts is not None)
        prepared = (block for _, block in mapped(prepare, parts, jobs))
        for together in transactions(prepared, transaction):
            yield from self._add(together, duplicates, texts)

    def _add(
        self,
        documents: Block,
        duplicates: Search | None,
        texts: TextsByKey | None,
        *,
        newer: bool = False,
    ) -> Iterator[Added]:
        """Add documents in one transaction, or in several if texts need too much memory for one."""
        start, documents = 0, self._catalog.packed(documents)
        while start < len(documents):
            part, search, known = documents[start:], duplicates, None
            if texts is not None:
                part, known = self._with_texts(part, duplicates, texts)
                search = duplicates and duplicates._replace(known=known)
            with self._environment.write(self._timeout) as txn:
                writer = Writer(txn, self._index, self._catalog)
                added = writer.add(part, search, newer=newer, known=known)
            yield from added
            start += len(part)

    def _with_texts(
        self, documents: Block, duplicates: Search | None, texts: TextsByKey
    ) -> tuple[Block, KnownTexts]:
        """Fetch, before the lock, the texts of the candidates of the first documents.

        Return these documents, and the texts, of which no further one is asked for.
        """
        search = duplicates or self._usual
        if self._catalog.grouped and (search.similarity or 0.0) > (self.similarity or 0.0):
            search = self._usual  # which finds the duplicates, too
        known, count = self._fetched(texts, search), len(documents)
        rows = list(documents.rows())
        known.hold(rows, documents.texts or [None] * count)
        search = search._replace(known=known)
        with self._transaction() as txn:
            stored = self._catalog.find_many(txn, documents.keys)
            changed = [
                place
                for place, row in enumerate(rows)
                if not ((old := stored[row.key]) and old.holds_what(row))
            ]
            asked = answers(self._view(txn), replace(documents, packed=None)[changed], search)
            for place, _ in zip(changed, asked, strict=True):
                if known.size > _MOST_SHINGLES:
                    count = place + 1
                    break
        known.ask_no_more()
        return documents[:count], known

    def add_prepared(
        self,
        documents: Block,
        *,
        skip_duplicates: bool = False,
        similarity: float | None = None,
        texts: TextsByKey | None = None,
        newer: bool = False,
    ) -> list[Added]:
        """Add what the `preparer` of this database prepared, in one transaction.

        Metadata of many megabytes take several transactions. A document replaces the one with its
        key, unless only `newer` ones do. With `texts`, those that were prepared with their own
        texts are compared exactly.
        """
        duplicates = self._duplicates(similarity, texts, skip_duplicates=skip_duplicates)
        added: list[Added] = []
        with without_collector():
            for portion in transactions([documents], len(documents) + BATCH):
                added += self._add(portion, duplicates, texts, newer=newer)
        return added

    @property
    def runs(self) -> Runs:
        """The runs that add all that they keep of a delivery in one step, as `dedupe` does."""
        return Runs(self._environment, self._index, self._catalog, self._timeout)

    def _duplicates(
        self, similarity: float | None, texts: TextsByKey | None, *, skip_duplicates: bool
    ) -> Search | None:
        if skip_duplicates:
            return self._search(None, None, similarity)
        if similarity is not None or (texts is not None and not self._catalog.grouped):
            named = "texts" if similarity is None else "a similarity"
            raise InputError(
                f"found {named} without skip_duplicates",
                hint="without it, no duplicates are looked for",
            )
        return None

    def add_fingerprints(
        self, keys: Iterable[Any] | None, fingerprints: Any = None, *, memory: int = MEMORY
    ) -> int:
        """Add documents whose fingerprints are known, in one transaction.

        Args:
            keys: One for each fingerprint, e.g. an array of numbers; None counts them on from the
                highest number that is stored, or from 0. Of a key that comes twice, the last
                counts. Without `fingerprints`, an iterator of both in pairs, of which any number
                takes bounded memory; nobody else can write until it ends.
            fingerprints: An array as `recipe.fingerprint_many` returns it, or any numbers.
            memory: About how many bytes to hold besides what is given and LMDB's own half a
                gigabyte; the rest is sorted in a file in the directory of the database.

        Returns:
            How many were new or changed.

        Raises:
            InputError: There aren't as many keys as fingerprints, or one can't be stored.
        """
        require_whole("memory", memory, LEAST_MEMORY)
        blocks = () if keys is None else keys
        if fingerprints is not None:
            blocks = [(keys, fingerprints)]
        with self._environment.write(self._timeout) as txn:
            following = self._catalog.following(txn)
            rows = keyed_rows(blocks, self._catalog, self.plan.bits, following)
            return Writer(txn, self._index, self._catalog).add_rows(rows, now(), memory)

    def delete(self, key: Key) -> bool:
        """Delete a document; return whether it was there."""
        return self.delete_many([key]) == 1

    def delete_many(self, keys: Iterable[Key], *, undo: IO[bytes] | None = None) -> int:
        """Delete documents, a thousand in a transaction; return how many were there.

        Args:
            keys: The keys of the documents; one that isn't stored is ignored.
            undo: A binary file, which gets the portable form of what is deleted, so that
                `fpdb.load` brings it back. The deletion is then one transaction.

        Raises:
            InputError: A key isn't of the kind of the database; the thousands before it are
                deleted.
        """
        keys, deleted = iter(items_of(keys, "keys")), 0
        while batch := list(islice(keys, BATCH if undo is None else None)):
            for key in batch:
                self._catalog.check_key(key)
            with self._environment.write(self._timeout) as txn:
                if undo is not None:
                    from fpdb.maintenance import portable

                    portable.save(undo, txn, self._catalog, self._header, batch)
                deleted += Writer(txn, self._index, self._catalog).remove(batch)
        return deleted

    def delete_duplicates(
        self,
        *,
        similarity: float | None = None,
        k: int | None = None,
        keep: str = "first",
        texts: TextsByKey | None = None,
        jobs: int = 1,
    ) -> list[Cluster]:
        """Delete all documents of each cluster but its representative; return the clusters.

        Each that is deleted matches the one that stays. It is one transaction: other writers wait
        until the clusters are found and deleted. The arguments are those of `clusters`; texts are
        asked for before, and what others add meanwhile is compared by estimates.
        """
        from fpdb.joins.clusters import finder_of_clusters

        search, find = self._search(k, None, similarity), finder_of_clusters(keep)
        with self._comparing(search, texts) as comparing:
            if comparing.known:
                list(self._reading(find, comparing, jobs))  # which fetches all texts
                comparing.known.ask_no_more()
            with self._environment.write(self._timeout) as txn:
                clusters = list(find(self._view(txn), comparing, jobs))
                keys = [key for cluster in clusters for key in cluster.duplicates]
                gone = tracked(keys, "delete", "document", len(keys))
                Writer(txn, self._index, self._catalog).remove(gone)
        return clusters

    def dump(
        self,
        file: IO[bytes],
        *,
        added_since: float | None = None,
        added_before: float | None = None,
    ) -> int:
        """Write the database in its portable form, for a machine of any kind; `fpdb.load` reads it.

        The file is a binary one, such as `gzip.open(path, "wb")` or a pipe. It gets everything
        that is kept of each document, as it is at this moment, in the order of the ids; with times,
        as in `scan`, of those that were added then. Return how many there are.
        """
        from fpdb.maintenance import portable

        with self._transaction() as txn:
            times, head = times_of(added_since, added_before), portable.Head.of(self._header)
            return portable.write(file, txn, self._catalog, head, times)

    def stats(self) -> Stats:
        """Return what the database holds, and how."""
        with self._transaction() as txn:
            return layout.stats_of(self._view(txn), self._header, self.path)

    def check(self) -> Iterator[Problem]:
        """Compare the header, tables, documents and counters; yield what doesn't agree.

        It reads in this process, which a file that LMDB can't read may end; `fpdb.check` reads in
        another one, and can follow LMDB's own structure. It takes a bounded amount of memory,
        however many documents there are. The snapshot lasts as long as the iteration.
        """
        with self._transaction() as txn:
            yield from check_view(self._view(txn))

    def compact(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        capacity: int | None = None,
        k: int | None = None,
        similarity: float | None = None,
        passages: bool = False,
        groups: bool = False,
        memory: int = MEMORY,
    ) -> None:
        """Write a new database with the same documents and ids, without free pages.

        Without a path, it replaces this database, and writers wait until it has. Then all handles,
        this one too, raise MovedError: `reopen` them, or with other tables, open it again.

        Args:
            path: Where the new database is made; what others add meanwhile isn't in it.
            capacity: The number of documents to plan for; by default the tables stay the same.
            k: The k of the new database, with tables for it.
            similarity: The similarity of the new database, with bands for it.
            passages: Whether the new database keeps passages even if this one doesn't: documents
                get them when they are added again, with the same key, text and metadata.
            groups: Whether the new database keeps groups even if this one doesn't: as if its
                documents were added in the order of their ids. So it is with another similarity.
            memory: About how many bytes to sort in.

        Raises:
            DatabaseExistsError: There is something at the path.
            PlanError, InputError: There are no such tables or bands.
        """
        require_whole("memory", memory, LEAST_MEMORY)
        head = layout.replanned(
            self._header,
            k=k,
            capacity=capacity,
            similarity=similarity,
            passages=passages,
            groups=groups,
        )
        in_place = path is None
        lockout = self._environment.lockout(self._timeout) if in_place else contextlib.nullcontext()
        with lockout, self._transaction() as txn:
            target = self.path if path is None else path
            source = CopySource(self.path, self._header, self._view(txn))
            compact(source, head, target, memory, replace=in_place)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the database to a new directory while others write; it is on disk on return.

        The copy is this moment's, without free pages. It is verified, structure and checksums,
        before it appears at the path.

        Raises:
            DatabaseExistsError, DiskFullError: There is something at the path, or no room for it.
        """
        with self._environment.backup(path) as copy, copy.read() as txn:
            require_checksums(self._view(txn))

    @contextlib.contextmanager
    def hold(self) -> Iterator[Path]:
        """Keep the files such that another program may copy them, while others write.

        Run that program as a process of its own in the `with` block: this process may not open
        the files itself, since closing them again would end its locks. What is freed meanwhile
        isn't used again, so the file grows: bound what is read, or a slow reader never ends. If the
        database is replaced meanwhile, the end of the block raises MovedError: copy it again.
        """
        with self._transaction() as txn:
            yield self.path
            txn.require_in_place()

    def remove(self, *, only_empty: bool = False) -> bool:
        """Remove the database from the disk, or only an empty one; return whether it did.

        Other handles of it raise MovedError from then on, and so does this one.
        """
        with self._environment.lockout(self._timeout) as txn:
            wanted = not (only_empty and self._view(txn).counters.documents)
            if wanted:
                drafts.remove(self.path)
        return wanted

    def reopen(self) -> None:
        """Go on with the database that is at the path now; all threads may, after a MovedError.

        It must have the same uuid, recipe and tables: a compacted or restored copy has. Open
        snapshots stay what they are. Further errors are those of `open`.

        Raises:
            MovedError: Nothing is there, or another database, or one with other tables.
        """
        path = self.path
        try:
            environment = Environment.open(
                path, readonly=self.readonly, verify=require_complete_copy
            )
        except (DatabaseNotFoundError, NotADatabaseError) as error:
            raise MovedError(
                f"the database at {path} was moved or removed: {error}",
                hint="open it where it is now, or restore it",
            ) from error
        if layout.read_layout(environment)[0] != self._header:
            environment.close()
            raise MovedError(
                f"another database is at {path} now, or this one with other tables",
                hint="open it again, or restart the program that uses it",
            )
        # The one before ends with its last transaction, which another thread may begin just now.
        self._environment = environment
        log("WARNING", "%s was replaced, and is open again", path)

    def close(self) -> None:
        """Close the handle; closing it again is a no-op."""
        self._environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name, least = self._header["recipe"]["name"], self.similarity
        near = f"k={self.k}" if least is None else f"similarity={least:g}"
        return f"<{type(self).__name__} {str(self.path)!r} {name} {near}>"

    def __reduce__(self) -> tuple[Any, ...]:
        again = partial(
            type(self).open,
            self.path,
            readonly=self.readonly,
            recipe=self._preparer.callers_recipe,
            timeout=self._timeout,
        )
        return again, ()


def describe(path: str | os.PathLike[str]) -> Stats:
    """Count the documents and pages of a database. Errors are those of `open`."""
    with Environment.open(path, readonly=True, verify=require_complete_copy) as environment:
        return Database(environment).stats()


create = Database.create
build = Database.build
open = Database.open  # noqa: A001 - as lmdb.open and shelve.open
