"""Create a database, or open one that is created if it isn't there."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.options import takes
from fpdb.cli.output import settings, stats_dict
from fpdb.cli.plan import MANY
from fpdb.errors import DatabaseExistsError
from fpdb.fingerprint import WIDTHS, Recipe
from fpdb.models import Stats


@takes(
    similarity=options.NEW_SIMILARITY,
    k=options.NEW_K,
    passages=options.option("--passages", "Also keep what finds copied parts of texts."),
)
def create(
    path: Path,
    recipe: fpdb.Recipe = options.WEB,
    similarity: float | None = None,
    k: int | None = None,
    capacity: int = 1_000_000,
    key_type: options.KeyType | None = None,
    passages: bool = False,
) -> None:
    """Create a database.

    Example:
      fpdb create crawl.fpdb --similarity 0.9 --capacity 5e7

    Similarity and k are the recipe's, unless they are given.
    """
    with fpdb.create(
        path,
        recipe=recipe,
        similarity="recipe" if similarity is None else similarity or None,
        k=k,
        capacity=capacity,
        keys=key_type or "text",
        passages=passages,
    ) as database:
        stats = database.stats()
        if render.now.json or not render.now.quiet:
            render.report(settings(stats), stats_dict(stats))
        _warn_of_chance(stats)


def _warn_of_chance(stats: Stats) -> None:
    """Print a warning if questions of bits will often match unrelated documents by chance."""
    bits, k = stats.bits, stats.k
    chance = fpdb.chance_matches(bits, k, stats.capacity)
    if stats.similarity is None and chance >= MANY:
        wider = f"take a recipe of {2 * bits} bits, or " if bits < max(WIDTHS) else ""
        render.warn(
            f"a query will match about {chance:.2g} unrelated documents by chance, at "
            f"{stats.capacity:,} documents of {bits} bits and k={k}; {wider}create it with a "
            "smaller -k, or with the --capacity that you expect"
        )


@contextlib.contextmanager
def open_or_create(path: Path, recipe: Recipe | None) -> Iterator[fpdb.Database]:
    """Open a database for a block to write, or create it if there is nothing at its path.

    Without a recipe, a stored one may be any. A new database is removed if the block fails with
    nothing in it: it would be in the way of another attempt, with another recipe.
    """
    new = False
    try:
        database = fpdb.open(path, recipe=recipe)
    except (fpdb.DatabaseNotFoundError, fpdb.NotADatabaseError):  # such as an empty directory
        try:
            database, new = fpdb.create(path, recipe=recipe or options.WEB), True
        except DatabaseExistsError:  # another process was faster, or other files are there
            database = fpdb.open(path, recipe=recipe)
    with database:
        if new:
            stats = database.stats()
            near = f"similarity {stats.similarity}" if stats.similarity else f"k {stats.k}"
            render.summarise(None, f"created {path}: recipe {stats.recipe}, {near}")
            _warn_of_chance(stats)
        try:
            yield database
        except typer.Exit:  # a good end
            raise
        except BaseException:
            with contextlib.suppress(fpdb.FpdbError):
                if new and database.remove(only_empty=True):
                    render.summarise(None, f"removed {path}: nothing is in it")
            raise
