"""An open database: created or opened once, described by its header, closed or pickled."""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fpdb.checking import check
from fpdb.documents import CATALOGS, layout, require_whole
from fpdb.errors import DamagedError, InputError, PlanError, RecipeMismatchError
from fpdb.fingerprint import Recipe, preset
from fpdb.portable import SKETCHES, Head
from fpdb.storage import LOCK_SECONDS, Environment, header
from fpdb.storage.counters import Counters
from fpdb.storage.creation import Entries
from fpdb.tables import Index, Plan, plans
from fpdb.tables.planner import USUAL, first_look


class Handle:
    """What every use of a database begins with: its environment, header, plan and recipe."""

    def __init__(
        self, environment: Environment, recipe: Recipe | None = None, timeout: float = LOCK_SECONDS
    ) -> None:
        self._environment = environment
        self._timeout = timeout
        with environment.read() as txn:
            value = txn.get("header", b"header")
            self._header = header.decode(value if value is not None else b"")
        header.require_openable(self._header, readonly=environment.readonly)
        self._index, self._catalog = layout(self._header)
        self.plan = self._index.plan
        environment.include([*self._catalog.names, *self._index.names])
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
        sketch: str | None = None,
        timeout: float = LOCK_SECONDS,
    ) -> Self:
        """Create a database and open it; there must not be one at the path.

        The best plan for `capacity` documents is chosen, unless one is given. With
        `sketch="minhash"` it keeps a sketch of each text, by which matches can be verified. A
        write waits for other writers up to `timeout` seconds.
        """
        chosen, names, first = _describe(recipe, k, capacity, keys, plan, sketch=sketch)
        return cls(Environment.create(path, names, first), chosen, timeout)

    @classmethod
    @contextlib.contextmanager
    def build(
        cls,
        path: str | os.PathLike[str],
        *,
        recipe: str | Recipe = "web",
        k: int = 3,
        capacity: int = 1_000_000,
        keys: str = "text",
        plan: Plan | None = None,
        sketch: str | None = None,
    ) -> Iterator[Self]:
        """Create a database for a `with` block to fill, faster than one that is in its place.

        It is made beside the path and moved there when the block ends, whole and on disk for
        good. If the block fails, there is none. The handle ends with the block.
        """
        chosen, names, first = _describe(recipe, k, capacity, keys, plan, sketch=sketch)
        with Environment.build(path, names, first) as environment:
            yield cls(environment, chosen)

    @classmethod
    @contextlib.contextmanager
    def _build_like(cls, path: str | os.PathLike[str], head: Head) -> Iterator[Self]:
        """Create a database for a block to fill; the secret of its recipe isn't needed."""
        plan = best_plan(head.bits, head.k, head.capacity, head.sketch)
        with Environment.build(path, *_begin(head, plan)) as environment:
            yield cls(environment)

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
        environment = Environment.open(
            path, ["header"], readonly=readonly, verify=_require_whole_copy
        )
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
    def sketch(self) -> str | None:
        """The kind of sketches that it keeps: "minhash", or None for none."""
        kind = self._header.get("sketch")
        return kind if kind is None else str(kind)

    @property
    def readonly(self) -> bool:
        """Whether this handle refuses to write."""
        return self._environment.readonly

    def _replanned(self, capacity: int | None, k: int | None, plan: Plan | None) -> header.Header:
        """Give the header of a copy with a plan, or the best plan for a capacity or a k."""
        require_whole("capacity", capacity, 1)
        require_whole("k", k)
        room = self._header["capacity"] if capacity is None else capacity
        wanted = self.k if k is None else k
        if plan is None:
            replan = capacity is not None or wanted != self.k
            bits = self.plan.bits
            plan = best_plan(bits, wanted, room, self.sketch) if replan else self.plan
        require_fit(plan, self.plan.bits, wanted)
        return {**self._header, "plan": plan.to_dict(), "capacity": room}

    def close(self) -> None:
        """Close the handle; closing it again does nothing."""
        self._environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self._header["recipe"]["name"]
        return f"<{type(self).__name__} {str(self.path)!r} {name} k={self.k}>"

    def __reduce__(self) -> tuple[Any, ...]:
        keyed = (
            self.__dict__.get("recipe") if self._header["recipe"]["hash"].get("secret") else None
        )
        return _reopen, (type(self), self.path, self.readonly, keyed, self._timeout)


def _require_whole_copy(directory: Path) -> None:
    for problem in check(directory, deep=True):
        raise DamagedError(
            f"{directory} is a copy that isn't whole: {problem.where}: {problem.what}",
            hint="copy it with `fpdb backup`, or under `fpdb hold`",
        )


def _reopen(
    cls: type[Handle],
    path: Path,
    readonly: bool,  # noqa: FBT001 - pickle passes arguments by position
    recipe: Recipe | None,
    timeout: float,
) -> Handle:
    return cls.open(path, readonly=readonly, recipe=recipe, timeout=timeout)


def _describe(
    recipe: str | Recipe, k: int, capacity: int, keys: str, plan: Plan | None, *, sketch: str | None
) -> tuple[Recipe, list[str], Entries]:
    """Give the recipe, the sub-databases and the first entries of a new database."""
    chosen = preset(recipe) if isinstance(recipe, str) else recipe
    if keys not in CATALOGS:
        raise InputError(
            f"found keys={keys!r}, expected one of {', '.join(CATALOGS)}",
            hint="text for URLs and names, integer for numbers of your own",
        )
    if sketch not in SKETCHES:
        raise InputError(
            f"found sketch={sketch!r}, expected one of {', '.join(map(repr, SKETCHES))}",
            hint="minhash keeps 128 bytes of each text, to verify matches; None keeps nothing",
        )
    require_whole("k", k)
    require_whole("capacity", capacity, 1)
    if plan is None:
        plan = best_plan(chosen.bits, k, capacity, sketch)
    require_fit(plan, chosen.bits, k)
    head = Head(chosen.to_dict(), chosen.id, chosen.bits, k, keys, sketch, capacity)
    return chosen, *_begin(head, plan)


def _begin(head: Head, plan: Plan) -> tuple[list[str], Entries]:
    """Give the sub-databases and the first entries of a new database."""
    fields = {
        "uuid": str(uuid.uuid4()),
        "created": int(time.time()),
        "created_by": "fpdb",
        "keys": head.keys,
        "recipe": head.recipe,
        "recipe_id": head.recipe_id,
        "plan": plan.to_dict(),
        "capacity": head.capacity,
    }
    if head.sketch:
        fields |= {"sketch": head.sketch, "features": [head.sketch]}
    index = Index(plan)
    names = ["header", *CATALOGS[head.keys].names, *index.names]
    counters = Counters(sketches=0 if head.sketch else None)
    return names, {"header": {b"header": header.encode(fields), b"counters": counters.pack()}}


def best_plan(bits: int, k: int, capacity: int, sketch: str | None) -> Plan:
    """Choose the tables; with sketches those that are best for the first look."""
    query_k = first_look(bits, k, USUAL) if sketch else None
    return plans(bits, k, capacity, query_k=query_k)[0]


def require_fit(plan: Plan, bits: int, k: int) -> None:
    """Refuse a plan that is made for something else."""
    if not isinstance(plan, Plan):
        raise PlanError(
            f"found {plan!r:.40}, expected a plan",
            hint="take one of fpdb.plans(bits, k, documents)",
        )
    if (plan.bits, plan.k) != (bits, k):
        raise PlanError(
            f"the plan is made for {plan.bits} bits and k={plan.k}, expected {bits} bits and k={k}",
            hint="take one of fpdb.plans(bits, k, documents)",
        )
