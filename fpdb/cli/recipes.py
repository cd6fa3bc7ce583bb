"""List recipes, show one, compute an idf table for one."""

from pathlib import Path

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.options import argument, choose_recipe, option, require_name, takes
from fpdb.fingerprint import DESCRIPTIONS, PRESETS, Recipe, write_recipe
from fpdb.io.files import meter_of
from fpdb.io.streams import read_lines

HELP = "List, show and prepare recipes.\n\nExample:\n  fpdb recipes show web > my.toml"


def list_recipes() -> None:
    """List the recipes that come with fpdb.

    Example:
      fpdb recipes list
    """
    render.columns("name", "bits", "k", "similarity", "id", "description")
    for name, recipe in PRESETS.items():
        plain = recipe.to_dict() | {"id": recipe.id, "description": DESCRIPTIONS[name]}
        shown = (name, recipe.bits, recipe.k, recipe.similarity or "off", recipe.id)
        render.result(plain, *shown, DESCRIPTIONS[name])


@takes(
    recipe=typer.Argument(
        metavar="NAME|FILE.toml", parser=str, callback=choose_recipe, help="The recipe to show."
    )
)
def show(recipe: Recipe) -> None:
    """Print a recipe as TOML, to make another.

    Example:
      fpdb recipes show web > my.toml
    """
    if render.now.json:
        render.record(recipe.to_dict() | {"id": recipe.id})
    else:
        for line in write_recipe(recipe).splitlines():
            render.row(line)


@takes(
    files=argument("FILE", "Texts, one a line."),
    output=option("--output -o FILE", "Where to write the table.", callback=require_name),
)
def idf(files: list[str], output: Path, recipe: fpdb.Recipe = options.WORDS) -> None:
    """Compute idf weights from a corpus.

    Example:
      fpdb recipes idf corpus.txt --output idf.tsv
    """
    meter = meter_of("read", files)
    texts = (line for path in files for line in read_lines(path, progress=meter.add))
    table = fpdb.IdfTable.from_documents(map(recipe.features, texts))
    table.to_file(output)
    counts = {"path": str(output), "features": len(table.values), "id": table.id}
    features = render.plural(len(table.values), "feature")
    render.summarise(counts, f"{output}: {features}, id {table.id}")


COMMANDS = {"list": list_recipes, "show": show, "idf": idf}
