"""Open the database that a command names, or create it; what an option says must fit it."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import Keys, Sketch, choose_recipe
from fpdb.errors import (
    DatabaseExistsError,
    DatabaseNotFoundError,
    NotADatabaseError,
    PlanError,
    RecipeMismatchError,
)
from fpdb.storage.open_checks import is_vacant
from fpdb.tables import Plan

DEFAULT_RECIPE = "web"
_CAPACITY = 1_000_000
_K = 3


def open_readonly(path: Path, recipe: str | None = None) -> fpdb.Database:
    """Open a database to read it."""
    chosen = choose_recipe(recipe) if recipe else None
    with explained(path):
        return fpdb.open(path, readonly=True, recipe=chosen)


def open_writable(
    path: Path, recipe: fpdb.Recipe | None = None, k: int | None = None
) -> fpdb.Database:
    """Open a database to write to it."""
    with explained(path):
        return fpdb.open(path, recipe=recipe, k=k)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Say why a path is taken for a database that may have been meant as something else."""
    try:
        yield
    except (DatabaseNotFoundError, NotADatabaseError) as error:
        if os.environ.get("FPDB_PATH", str(path)) != str(path):
            error.hint += "; the database comes first, even where FPDB_PATH names one"
        raise


@dataclass(frozen=True)
class Wanted:
    """What a database is to be created with, or must have been; None leaves it open."""

    recipe: str | None
    bits: int | None
    k: int | None
    capacity: int | None
    keys: Keys | None
    tables: int | None
    sketch: Sketch | None = None

    def create(self, path: Path) -> fpdb.Database:
        """Create a database."""
        return fpdb.create(path, **self._options(Keys.TEXT, _CAPACITY))

    def given(self, path: Path) -> dict[str, Any]:
        """Return the arguments for `fpdb.load`; a database that is there must fit them."""
        if is_vacant(path):
            made = self._options(self.keys or Keys.TEXT, self.capacity or _CAPACITY)
            made |= {"keys": self.keys, "capacity": self.capacity}
            return {name: value for name, value in made.items() if value is not None}
        recipe = choose_recipe(self.recipe, self.bits) if self.recipe else None
        with open_writable(path, recipe, self.k) as database:
            self.require(database)
        return {"recipe": recipe, "k": self.k}

    def _options(self, keys: Keys, capacity: int) -> dict[str, Any]:
        """Say how to create a database; what is open is the default."""
        recipe = choose_recipe(self.recipe or DEFAULT_RECIPE, self.bits)
        k = _K if self.k is None else self.k
        room = self.capacity or capacity
        plan = None if self.tables is None else choose_plan(recipe.bits, k, room, self.tables)
        return {
            "recipe": recipe,
            "k": k,
            "capacity": room,
            "keys": self.keys or keys,
            "plan": plan,
            "sketch": self.sketch,
        }

    def require(self, database: fpdb.Database) -> None:
        """Refuse a database that was created with something else."""
        for name, given, stored in (
            ("bits", self.bits, database.plan.bits),
            ("keys", self.keys, database.keys),
            ("tables", self.tables, len(database.plan.tables)),
            ("sketch", self.sketch, database.sketch or "none"),
        ):
            if given is not None and given != stored:
                raise RecipeMismatchError(
                    f"{database.path} was created with --{name} {stored}, found --{name} {given}",
                    hint=f"leave --{name} out, or create another database",
                )


def choose_plan(bits: int, k: int, capacity: int, tables: int) -> Plan:
    """Take the best plan that has so many tables."""
    found = {len(plan.tables): plan for plan in reversed(fpdb.plans(bits, k, capacity))}
    if tables not in found:
        raise PlanError(
            f"no plan for {bits} bits and k={k} has {tables} tables, "
            f"expected one of {', '.join(map(str, sorted(found)))}",
            hint="fpdb plan lists them with their costs",
        )
    return found[tables]


def open_or_create(path: Path, wanted: Wanted, *, quiet: bool) -> fpdb.Database:
    """Open a database to write to it, or create it if there is nothing at its path."""
    if is_vacant(path):
        try:
            database = wanted.create(path)
        except DatabaseExistsError:  # another process was faster
            if is_vacant(path):
                raise
        else:
            if not quiet:
                note_created(database)
            return database
    recipe = choose_recipe(wanted.recipe, wanted.bits) if wanted.recipe else None
    database = open_writable(path, recipe, wanted.k)
    try:
        wanted.require(database)
    except BaseException:
        database.close()
        raise
    return database


def note_created(database: fpdb.Database) -> None:
    """Say what was created."""
    made = facts(database)
    first = made.pop("path")
    rest = "; ".join(f"{name} {value}" for name, value in made.items())
    render.note(f"created {first}: {rest}")


def facts(database: fpdb.Database) -> dict[str, Any]:
    """Name what never changes in a database."""
    stats = database.stats()
    made = {
        "path": stats.path,
        "recipe": f"{stats.recipe} ({stats.recipe_id})",
        "k": stats.k,
        "plan": stats.plan,
        "keys": stats.keys,
    }
    return made | ({"sketch": stats.sketch} if stats.sketch else {})


def require(good: object, message: str) -> None:
    """Refuse wrong usage."""
    if not good:
        raise typer.BadParameter(message)


def require_alone(context: typer.Context, names: set[str], what: str) -> None:
    """Refuse options that don't go with something: all that were given but these."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        require(
            not given or parameter.name in names,
            f"{parameter.opts[0]} doesn't go with {what}",
        )
