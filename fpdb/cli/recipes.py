"""List recipes, show one, compute an idf table for one."""

from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import JsonOption, QuietOption, RecipeOption, choose_recipe, require_name
from fpdb.fingerprint import DESCRIPTIONS, PRESETS, write_recipe
from fpdb.io.streams import read_lines

app = typer.Typer(
    help="List, show and prepare recipes.\n\n"
    "Example:\n  fpdb recipes list\n  fpdb recipes show web > my.toml",
    rich_markup_mode="rich",
    no_args_is_help=True,
)


@app.command("list")
def list_recipes(as_json: JsonOption = False) -> None:
    """List the recipes that come with fpdb.

    Example:
      fpdb recipes list
    """
    if not as_json:
        render.columns("name", "bits", "k", "similarity", "id", "description")
    for name, recipe in PRESETS.items():
        if as_json:
            shown = {"id": recipe.id, "description": DESCRIPTIONS[name]}
            render.record(recipe.to_dict() | shown)
        else:
            render.row(
                name,
                recipe.bits,
                recipe.k,
                recipe.similarity or "off",
                recipe.id,
                DESCRIPTIONS[name],
            )


@app.command()
def show(
    recipe: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="The recipe to show.")],
    as_json: JsonOption = False,
) -> None:
    """Print a recipe as TOML, to make another.

    Example:
      fpdb recipes show web > my.toml
    """
    chosen = choose_recipe(recipe)
    if as_json:
        render.record(chosen.to_dict() | {"id": chosen.id})
    else:
        render.block(write_recipe(chosen))


@app.command()
def idf(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Texts, one a line.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            callback=require_name,
            help="Where to write the table.",
        ),
    ],
    recipe: RecipeOption = "words",
    quiet: QuietOption = False,
) -> None:
    """Compute idf weights from a corpus.

    Example:
      fpdb recipes idf corpus.txt --output idf.tsv
    """
    chosen = choose_recipe(recipe)
    texts = (line for path in files for line in read_lines(path))
    table = fpdb.IdfTable.from_documents(map(chosen.features, texts))
    table.to_file(output)
    if not quiet:
        render.note(f"{output}: {render.plural(len(table.values), 'feature')}, id {table.id}")
