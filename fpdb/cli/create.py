"""Create a database, or open one that is created if it isn't there."""

from pathlib import Path
from typing import Any

import fpdb
from fpdb.cli import render
from fpdb.cli.options import (
    BitsOption,
    CapacityOption,
    DatabaseArgument,
    JsonOption,
    KeyType,
    KeyTypeOption,
    NewKOption,
    RecipeOption,
    SketchOption,
    TablesOption,
    choose_recipe,
    open_writable,
)
from fpdb.errors import (
    DatabaseExistsError,
    DatabaseNotFoundError,
    NotADatabaseError,
    PlanError,
)

DEFAULT_RECIPE = "web"
_CAPACITY = 1_000_000
_STATS = ("path", "uuid", "recipe", "recipe_id", "bits", "k", "plan", "capacity", "keys", "sketch")


def create(
    path: DatabaseArgument,
    recipe: RecipeOption = DEFAULT_RECIPE,
    bits: BitsOption = None,
    k: NewKOption = 3,
    capacity: CapacityOption = None,
    key_type: KeyTypeOption = KeyType.TEXT,
    tables: TablesOption = None,
    sketch: SketchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a database.

    Example:
      fpdb create crawl.fpdb
      fpdb create crawl.fpdb --sketch minhash
      fpdb create crawl.fpdb --recipe char-4 -k 4 --capacity 5e7
    """
    chosen, distance, room = choose_recipe(recipe, bits), 3 if k is None else k, capacity
    room = room or _CAPACITY
    plan = None if tables is None else choose_plan(chosen.bits, distance, room, tables)
    with fpdb.create(
        path,
        recipe=chosen,
        k=distance,
        capacity=room,
        keys=(key_type or KeyType.TEXT).value,
        plan=plan,
        sketch=sketch,
    ) as database:
        if as_json:
            stats = database.stats()
            found = {name: getattr(stats, name) for name in _STATS}
            render.record({name: value for name, value in found.items() if value is not None})
        else:
            render.report(_facts(database))


def choose_plan(bits: int, k: int, capacity: int, tables: int) -> fpdb.Plan:
    """Return the best plan that has that many tables."""
    found = {len(plan.tables): plan for plan in reversed(fpdb.plans(bits, k, capacity))}
    if tables not in found:
        raise PlanError(
            f"no plan for {bits} bits and k={k} has {tables} tables, "
            f"expected one of {', '.join(map(str, sorted(found)))}",
            hint="fpdb plan lists them with their costs",
        )
    return found[tables]


def open_or_create(
    path: Path, recipe: str | None, *, sketched: bool = False, quiet: bool
) -> fpdb.Database:
    """Open a database to write to it, or create it if there is nothing at its path.

    Args:
        path: Where the database is.
        recipe: The recipe that it has, or is to have; None for whichever it has, or the default.
        sketched: Whether a new database keeps sketches.
        quiet: Whether to print nothing about a new database.
    """
    try:
        return open_writable(path, recipe)
    except (DatabaseNotFoundError, NotADatabaseError):
        pass  # creating one succeeds if nothing is there, or an empty directory
    try:
        database = fpdb.create(
            path,
            recipe=choose_recipe(recipe or DEFAULT_RECIPE),
            sketch="minhash" if sketched else None,
        )
    except DatabaseExistsError:  # something else is there, or another process was faster
        return open_writable(path, recipe)
    if not quiet:
        note_created(database)
    return database


def is_there(path: Path) -> bool:
    """Return whether there is a database at a path."""
    try:
        fpdb.open(path, readonly=True).close()
    except (DatabaseNotFoundError, NotADatabaseError):
        return False
    return True


def note_created(database: fpdb.Database) -> None:
    """Print what was created."""
    facts = _facts(database)
    path = facts.pop("path")
    render.note(f"created {path}: " + "; ".join(f"{name} {facts[name]}" for name in facts))


def _facts(database: fpdb.Database) -> dict[str, Any]:
    """Return what never changes in a database."""
    stats = database.stats()
    facts = {
        "path": stats.path,
        "recipe": f"{stats.recipe} ({stats.recipe_id})",
        "k": stats.k,
        "plan": stats.plan,
        "keys": stats.keys,
    }
    return facts | ({"sketch": stats.sketch} if stats.sketch else {})
