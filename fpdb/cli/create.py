"""Create a database, or open one that is created if it isn't there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import (
    CapacityOption,
    DatabaseArgument,
    JsonOption,
    KeyTypeOption,
    NewKOption,
    NewSimilarityOption,
    RecipeOption,
    choose_recipe,
)
from fpdb.cli.output import stats_dict
from fpdb.cli.plan import MANY
from fpdb.errors import DatabaseExistsError, DatabaseNotFoundError, NotADatabaseError, PlanError
from fpdb.fingerprint import WIDTHS
from fpdb.storage.open_checks import is_vacant

DEFAULT_RECIPE = "web"


def create(
    path: DatabaseArgument,
    recipe: RecipeOption = DEFAULT_RECIPE,
    similarity: NewSimilarityOption = None,
    k: NewKOption = None,
    capacity: CapacityOption = 1_000_000,
    key_type: KeyTypeOption = "text",
    tables: Annotated[
        int | None,
        typer.Option("--tables", metavar="N", min=1, help="The plan with N tables; see fpdb plan."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a database.

    Example:
      fpdb create crawl.fpdb
      fpdb create crawl.fpdb --similarity 0.9 --capacity 5e7
      fpdb create prints.fpdb --similarity off -k 4
      fpdb create titles.fpdb --recipe title

    Similarity and k are the recipe's: with title, bits within 20.
    """
    chosen = choose_recipe(recipe)
    wanted = chosen.k if k is None else k
    plan = None if tables is None else _choose_plan(chosen.bits, wanted, capacity, tables)
    with fpdb.create(
        path,
        recipe=chosen,
        similarity="recipe" if similarity is None else similarity or None,
        k=k,
        capacity=capacity,
        keys=key_type,
        plan=plan,
    ) as database:
        if as_json:
            render.record(stats_dict(database.stats()))
        else:
            render.report(_facts(database))
        _warn_of_chance(database)


def _warn_of_chance(database: fpdb.Database) -> None:
    """Print a warning if questions of bits will often match unrelated documents by chance."""
    stats = database.stats()
    bits, k = stats.bits, stats.k
    chance = fpdb.chance_matches(bits, k, stats.capacity)
    if database.similarity is None and chance >= MANY:
        wider = f"take a recipe of {2 * bits} bits, or " if bits < max(WIDTHS) else ""
        render.note(
            f"warning: a query will match about {chance:.2g} unrelated documents by chance, at "
            f"{stats.capacity:,} documents of {bits} bits and k={k}; {wider}create it with a "
            "smaller -k, or with the --capacity that you expect"
        )


def _choose_plan(bits: int, k: int, capacity: int, tables: int) -> fpdb.Plan:
    """Return the best plan that has that many tables."""
    found = {len(plan.tables): plan for plan in reversed(fpdb.plans(bits, k, capacity))}
    if tables not in found:
        raise PlanError(
            f"no plan for {bits} bits and k={k} has {tables} tables, "
            f"expected one of {', '.join(map(str, sorted(found)))}",
            hint="fpdb plan lists them with their costs",
        )
    return found[tables]


def open_or_create(path: Path, recipe: str | None, *, quiet: bool) -> fpdb.Database:
    """Open a database to write to it, or create it if there is nothing at its path.

    Without a recipe, a stored one may be any.
    """
    chosen = None if recipe is None else choose_recipe(recipe)
    try:
        return fpdb.open(path, recipe=chosen)
    except (DatabaseNotFoundError, NotADatabaseError):
        pass  # creating one succeeds if nothing is there, or an empty directory
    try:
        database = fpdb.create(path, recipe=chosen or DEFAULT_RECIPE)
    except DatabaseExistsError:  # something else is there, or another process was faster
        return fpdb.open(path, recipe=chosen)
    if not quiet:
        facts = _facts(database)
        path = facts.pop("path")
        render.note(f"created {path}: " + "; ".join(f"{name} {facts[name]}" for name in facts))
    _warn_of_chance(database)
    return database


@contextlib.contextmanager
def open_to_fill(path: Path, recipe: str | None, *, quiet: bool) -> Iterator[fpdb.Database]:
    """Open or create a database; a new one is removed if the block fails with nothing in it.

    Otherwise it would be in the way of another attempt, with another recipe.
    """
    new = is_vacant(path)
    with open_or_create(path, recipe, quiet=quiet) as database:
        try:
            yield database
        except BaseException:
            with contextlib.suppress(fpdb.FpdbError):
                if new and database.remove_if_empty() and not quiet:
                    render.note(f"removed {path}: nothing is in it")
            raise


def _facts(database: fpdb.Database) -> dict[str, Any]:
    """Return what never changes in a database."""
    stats = database.stats()
    return {
        "path": stats.path,
        "recipe": f"{stats.recipe} ({stats.recipe_id})",
        "similarity": stats.similarity or "off",
        "k": stats.k,
        "plan": stats.plan,
        "keys": stats.keys,
    }
