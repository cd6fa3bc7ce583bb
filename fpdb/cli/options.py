"""Options that several commands share, and what they turn into."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fpdb.cli.values import parse_bytes, parse_count
from fpdb.fingerprint import PRESETS, WIDTHS, Recipe, preset, read_recipe, to_int
from fpdb.models import LARGEST_TEXT, MOST_BYTES
from fpdb.processes import MOST


class Format(StrEnum):
    """How a fingerprint is written."""

    HEX = "hex"
    DECIMAL = "decimal"


def _names(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


class Sketch(StrEnum):
    """The kinds of sketches that a database may keep."""

    MINHASH = "minhash"


class Keys(StrEnum):
    """What the keys of a database are."""

    TEXT = "text"
    INTEGER = "integer"


DatabaseArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DB",
        envvar="FPDB_PATH",
        help="The directory of the database; it comes first.",
    ),
]
_RECIPE = typer.Option(
    "--recipe",
    "-r",
    metavar="NAME|FILE.toml",
    help="A recipe that comes with fpdb, or a TOML file.",
    autocompletion=_names,
)
RecipeOption = Annotated[str, _RECIPE]
AnyRecipeOption = Annotated[str | None, _RECIPE]
CapacityOption = Annotated[
    int | None,
    typer.Option(
        "--capacity",
        metavar="N",
        parser=parse_count,
        help="For how many documents to choose the tables, as 5e6; default 1e6.",
    ),
]
KeysOption = Annotated[
    Keys | None, typer.Option("--keys", help="What keys are: text (the default) or integers.")
]
SketchOption = Annotated[
    Sketch | None,
    typer.Option("--sketch", help="Keep a sketch of each text, to verify matches: 128 bytes."),
]
MinJaccardOption = Annotated[
    float | None,
    typer.Option(
        "--min-jaccard",
        metavar="J",
        min=0.0,
        max=1.0,
        help="Look wider, and keep what is so similar, as 0.8, by sketches.",
    ),
]
TablesOption = Annotated[
    int | None,
    typer.Option("--tables", min=1, help="The plan with so many tables, of those `plan` lists."),
]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="P", help="All documents whose key begins so.")
]
BitsOption = Annotated[
    int | None,
    typer.Option(
        "--bits",
        metavar="|".join(map(str, WIDTHS)),
        help="The width of the fingerprint, if not the recipe's own.",
    ),
]
JoinOption = Annotated[
    int | None,
    typer.Option("--k", "-k", min=0, help="The largest distance; default the database's k."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to write fingerprints.")]
MaxBytesOption = Annotated[
    int,
    typer.Option("--max-bytes", min=1, max=MOST_BYTES, help="The largest text to take, in bytes."),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=0,
        max=MOST,
        help="So many further processes read and fingerprint; 0: one for each processor. "
        "With 1 there is none.",
    ),
]
MemoryOption = Annotated[
    int,
    typer.Option(
        "--memory",
        metavar="BYTES",
        parser=parse_bytes,
        show_default="1G",
        help="About what sorting may take, as 512M or 4G.",
    ),
]


def choose_recipe(name: str, bits: int | None = None, max_bytes: int = LARGEST_TEXT) -> Recipe:
    """Take a preset by its name, or read a recipe from a file; it takes texts of so many bytes."""
    recipe = read_recipe(Path(name)) if name.endswith(".toml") else preset(name)
    recipe = recipe if bits is None else recipe.with_bits(bits)
    return widened(recipe, max_bytes)


def widened(recipe: Recipe, max_bytes: int) -> Recipe:
    """Let a recipe take texts of so many bytes."""
    return recipe if max_bytes <= recipe.largest else recipe.replace(largest=max_bytes)


def written(fingerprint: object, bits: int, form: Format) -> str:
    """Write an entry of a fingerprint array."""
    number = to_int(fingerprint)
    return f"{number:0{bits // 4}x}" if form is Format.HEX else str(number)
