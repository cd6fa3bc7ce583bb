"""Options that several commands share, and what they turn into."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fpdb.fingerprint import PRESETS, WIDTHS, Recipe, preset, read_recipe, to_int
from fpdb.io import LARGEST_TEXT


class Format(StrEnum):
    """How a fingerprint is written."""

    HEX = "hex"
    DECIMAL = "decimal"


def _names(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


RecipeOption = Annotated[
    str,
    typer.Option(
        "--recipe",
        "-r",
        metavar="NAME|FILE.toml",
        help="A recipe that comes with fpdb, or a TOML file.",
        autocompletion=_names,
    ),
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        "--bits",
        metavar="|".join(map(str, WIDTHS)),
        help="The width of the fingerprint, if not the recipe's own.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write fingerprints.")]
MaxBytesOption = Annotated[
    int,
    typer.Option("--max-bytes", min=1, max=1 << 40, help="The largest text to take, in bytes."),
]
LARGEST = LARGEST_TEXT


def choose_recipe(name: str, bits: int | None = None) -> Recipe:
    """Take a preset by its name, or read a recipe from a file."""
    recipe = read_recipe(Path(name)) if name.endswith(".toml") else preset(name)
    return recipe if bits is None else recipe.with_bits(bits)


def written(fingerprint: object, bits: int, form: Format) -> str:
    """Write an entry of a fingerprint array."""
    number = to_int(fingerprint)
    return f"{number:0{bits // 4}x}" if form is Format.HEX else str(number)
