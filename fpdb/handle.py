"""An open database: created or opened once, described by its header, closed or pickled."""

import contextlib
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fpdb.documents import new_database, new_header, read_layout
from fpdb.errors import DamagedError, RecipeMismatchError
from fpdb.fingerprint import Recipe, preset
from fpdb.portable import Head
from fpdb.storage import LOCK_SECONDS, Environment
from fpdb.storage.header import Header
from fpdb.tables import Plan


class Handle:
    """What every use of a database begins with: its environment, header, plan and recipe."""

    def __init__(
        self, environment: Environment, recipe: Recipe | None = None, timeout: float = LOCK_SECONDS
    ) -> None:
        self._environment = environment
        self._timeout = timeout
        self._header, self._index, self._catalog = read_layout(environment)
        self.plan = self._index.plan
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
        chosen, described = _describe(recipe, k, capacity, keys, plan, sketch=sketch)
        return cls(Environment.create(path, *new_database(described)), chosen, timeout)

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
        chosen, described = _describe(recipe, k, capacity, keys, plan, sketch=sketch)
        with Environment.build(path, *new_database(described)) as environment:
            yield cls(environment, chosen)

    @classmethod
    @contextlib.contextmanager
    def _build_like(cls, path: str | os.PathLike[str], head: Head) -> Iterator[Self]:
        """Create a database for a block to fill; the secret of its recipe isn't needed."""
        described = new_header(
            head.recipe,
            head.recipe_id,
            bits=head.bits,
            keys=head.keys,
            sketch=head.sketch,
            k=head.k,
            capacity=head.capacity,
        )
        with Environment.build(path, *new_database(described)) as environment:
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
    from fpdb.maintenance.check import check

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
) -> tuple[Recipe, Header]:
    """Return the recipe and the header of a new database."""
    chosen = preset(recipe) if isinstance(recipe, str) else recipe
    described = new_header(
        chosen.to_dict(),
        chosen.id,
        bits=chosen.bits,
        keys=keys,
        sketch=sketch,
        k=k,
        capacity=capacity,
        plan=plan,
    )
    return chosen, described
