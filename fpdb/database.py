"""The database: documents go in, near-duplicates come out; transactions, ids and counts."""

import os
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Self

import numpy as np

from fpdb import corpus
from fpdb.documents import (
    BATCH,
    CANDIDATES,
    CATALOGS,
    Intake,
    Lookup,
    Writer,
    digest_of,
    take,
    to_document,
)
from fpdb.errors import (
    DamagedError,
    DocumentNotFoundError,
    InputError,
    PlanError,
    RecipeMismatchError,
)
from fpdb.fingerprint import Recipe, preset
from fpdb.models import Added, Document, Key, Matches, Problem, Stats
from fpdb.storage import LOCK_SECONDS, Environment, header
from fpdb.storage.counters import Counters
from fpdb.tables import Hits, Index, Plan, near_many, plans


class Database:
    """A persistent database of fingerprints in a directory; open it with `fpdb.open`.

    It may be shared by threads, survives a fork, and can be pickled as its path. Several
    processes may read and write the same directory.
    """

    def __init__(
        self, environment: Environment, recipe: Recipe | None = None, timeout: float = LOCK_SECONDS
    ) -> None:
        self._environment = environment
        self._timeout = timeout
        with environment.read() as txn:
            value = txn.get("header", b"header")
            self._header = header.decode(value if value is not None else b"")
        header.require_openable(self._header, readonly=environment.readonly)
        self.plan = Plan.from_dict(self._header["plan"])
        self._index = Index(self.plan)
        if self._header["keys"] not in CATALOGS:
            raise DamagedError(
                f"the header speaks of {self._header['keys']!r} keys, "
                f"expected one of {', '.join(CATALOGS)}",
                hint="restore the database from a backup",
            )
        self._catalog = CATALOGS[self._header["keys"]](self._index)
        environment.include([*self._catalog.names, *self._index.names])
        self._lookup = Lookup(self._index, self._catalog)
        self._intake = Intake(self._index, self._catalog)
        if recipe is not None:
            self._require_recipe(recipe)
            self.recipe = recipe

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        recipe: str | Recipe = "web",
        k: int = 3,
        capacity: int = 1_000_000,
        keys: str = "text",
        plan: Plan | None = None,
        timeout: float = LOCK_SECONDS,
    ) -> Self:
        """Create a database and open it; there must not be one at the path.

        The best plan for `capacity` documents is chosen, unless one is given. A write waits for
        other writers up to `timeout` seconds.
        """
        chosen = preset(recipe) if isinstance(recipe, str) else recipe
        if keys not in CATALOGS:
            raise InputError(
                f"found keys={keys!r}, expected one of {', '.join(CATALOGS)}",
                hint="text for URLs and names, integer for numbers of your own",
            )
        if plan is None:
            plan = plans(chosen.bits, k, capacity)[0]
        if (plan.bits, plan.k) != (chosen.bits, k):
            raise PlanError(
                f"the plan is made for {plan.bits} bits and k={plan.k}, "
                f"expected {chosen.bits} bits and k={k}",
                hint="take one of fpdb.plans(bits, k, documents)",
            )
        head = {
            "uuid": str(uuid.uuid4()),
            "created": int(time.time()),
            "created_by": "fpdb",
            "keys": keys,
            "recipe": chosen.to_dict(),
            "recipe_id": chosen.id,
            "plan": plan.to_dict(),
            "capacity": capacity,
        }
        index = Index(plan)
        names = ["header", *CATALOGS[keys].names, *index.names]
        first = {"header": {b"header": header.encode(head), b"counters": Counters().pack()}}
        return cls(Environment.create(path, names, first), chosen, timeout)

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
        """Open an existing database; a recipe or k that is given must be the stored one.

        A keyed recipe must be given, because its secret isn't stored. A write waits for other
        writers up to `timeout` seconds.
        """
        environment = Environment.open(path, ["header"], readonly=readonly)
        try:
            chosen = preset(recipe) if isinstance(recipe, str) else recipe
            database = cls(environment, chosen, timeout)
            database._require_k(k)
        except BaseException:
            environment.close()
            raise
        return database

    def _require_k(self, k: int | None) -> None:
        if k is not None and k != self.k:
            raise RecipeMismatchError(
                f"{self.path} was created for k={self.k}, found k={k}",
                hint="query with k=…, or create another database",
            )

    def _require_recipe(self, recipe: Recipe) -> None:
        if recipe.id != self._header["recipe_id"]:
            stored = self._header["recipe"].get("name")
            raise RecipeMismatchError(
                f"{self.path} was created with the recipe {stored} "
                f"({self._header['recipe_id']}), found {recipe.name} ({recipe.id})",
                hint="leave the recipe out to use the stored one, or create another database",
            )

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe that the database was created with."""
        return Recipe.from_dict(self._header["recipe"])

    @property
    def path(self) -> Path:
        """Where the database is."""
        return self._environment.path

    @property
    def k(self) -> int:
        """The largest distance that counts as a match, if a query doesn't say."""
        return self.plan.k

    @property
    def keys(self) -> str:
        """What keys are: "text" or "integer"."""
        return self._catalog.kind

    @property
    def readonly(self) -> bool:
        """Whether this handle refuses to write."""
        return self._environment.readonly

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

    # The handle

    def close(self) -> None:
        """Close the handle; closing it again does nothing."""
        self._environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Database {str(self.path)!r} {self._header['recipe']['name']} k={self.k}>"

    def __reduce__(self) -> tuple[Any, ...]:
        keyed = (
            self.__dict__.get("recipe") if self._header["recipe"]["hash"].get("secret") else None
        )
        return _reopen, (self.path, self.readonly, keyed, self._timeout)


def _reopen(
    path: Path,
    readonly: bool,  # noqa: FBT001 - pickle passes arguments by position
    recipe: Recipe | None,
    timeout: float,
) -> Database:
    return Database.open(path, readonly=readonly, recipe=recipe, timeout=timeout)
