"""The command that creates a database."""

from typing import Annotated

import typer

from fpdb.cli import databases, render
from fpdb.cli.options import (
    BitsOption,
    CapacityOption,
    DatabaseArgument,
    JsonOption,
    Keys,
    KeysOption,
    RecipeOption,
    SketchOption,
    TablesOption,
)


def create(
    path: DatabaseArgument,
    recipe: RecipeOption = databases.DEFAULT_RECIPE,
    bits: BitsOption = None,
    k: Annotated[
        int, typer.Option("--k", "-k", min=0, help="The distance that counts as a match.")
    ] = 3,
    capacity: CapacityOption = None,
    keys: KeysOption = Keys.TEXT,
    tables: TablesOption = None,
    sketch: SketchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a database. Its recipe, k and kind of keys never change.

    A query may ask for another k; for the k given here the tables are the fastest. The capacity
    is no limit.

    With --sketch minhash, matches can be verified: query, pairs, clusters and ingest then take
    --min-jaccard.

    \b
    Example:
      fpdb create crawl.fpdb
      fpdb create crawl.fpdb --recipe char-4 -k 4 --capacity 5e7
      fpdb create crawl.fpdb --sketch minhash
    """
    wanted = databases.Wanted(recipe, bits, k, capacity, keys, tables, sketch)
    with wanted.create(path) as database:
        if not as_json:
            render.report(databases.facts(database))
            return
        stats = database.stats()
        names = ["path", "uuid", "recipe", "recipe_id", "bits", "k", "plan", "capacity", "keys"]
        names += ["sketch"] if sketch else []
        render.record({name: getattr(stats, name) for name in names})
