"""Options that several commands share, the values they take, and the database they name."""

import contextlib
import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import fpdb
from fpdb.errors import DatabaseNotFoundError, NotADatabaseError
from fpdb.fingerprint import PRESETS, WIDTHS
from fpdb.models import LARGEST_TEXT, MOST_BYTES
from fpdb.processes import MOST

# What sorting may take unless --memory says otherwise.
MEMORY = 1 << 30

_COUNT = re.compile(r"([0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]{1,19})(?:(?:\*\*|\^)([0-9]{1,2}))?")
_LARGEST_COUNT = 1 << 63
_BYTES = re.compile(r"([0-9]{1,19})([KMGT]?)")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_LEAST_MEMORY = 1 << 20
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")


class Base(StrEnum):
    """How fingerprints are written."""

    HEX = "hex"
    DECIMAL = "decimal"


class KeyType(StrEnum):
    """What the keys of a database are."""

    TEXT = "text"
    INTEGER = "integer"


class SketchKind(StrEnum):
    """The kinds of sketches that a database can keep."""

    MINHASH = "minhash"


def parse_count(given: str | int) -> int:
    """Parse a whole number that may be large: 8000000000, 8,000,000,000, 8e9 or 2**33."""
    text = str(given)
    try:
        if found := _COUNT.fullmatch(text):
            number: int = int(re.sub("[,_]", "", found[1])) ** int(found[2] or 1)
        else:
            # The limit comes first, so that a huge power of ten never becomes a whole number.
            real = float(text)
            number = int(real) if 1 <= real <= _LARGEST_COUNT and real.is_integer() else 0
    except ValueError:
        number = 0
    if not 1 <= number <= _LARGEST_COUNT:
        raise typer.BadParameter(
            f"found {text!r}, expected a whole number from 1, e.g. 50000, 8e9 or 2**33"
        )
    return number


def parse_bytes(given: str | int) -> int:
    """Parse a number of bytes, e.g. 512M or 4G."""
    text = str(given)
    found = _BYTES.fullmatch(text)
    number = int(found[1]) << _SHIFTS[found[2]] if found else 0
    if not 1 <= number <= MOST_BYTES:
        raise typer.BadParameter(f"found {text!r}, expected a number of bytes, e.g. 512M or 4G")
    return number


def parse_memory(given: str | int) -> int:
    """Parse a number of bytes that is enough to sort in."""
    if (number := parse_bytes(given)) < _LEAST_MEMORY:
        raise typer.BadParameter(f"found {given!r}, expected 1M or more")
    return number


def parse_age(text: str) -> int:
    """Parse a length of time, e.g. 30d, 12h or 2w; return it in seconds."""
    found = _AGE.fullmatch(text)
    if not found or not int(found[1]):
        raise typer.BadParameter(
            f"found {text!r}, expected a length of time, e.g. 45s, 90m, 12h, 30d or 2w"
        )
    return int(found[1]) * _SECONDS[found[2]]


def _presets(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


DatabaseArgument = Annotated[
    Path,
    typer.Argument(metavar="DB", envvar="FPDB_PATH", help="The directory of the database."),
]
_RECIPE = typer.Option(
    "--recipe",
    "-r",
    metavar="NAME|FILE.toml",
    help="A recipe that comes with fpdb, or a TOML file.",
    autocompletion=_presets,
)
RecipeOption = Annotated[str, _RECIPE]
AnyRecipeOption = Annotated[str | None, _RECIPE]
BitsOption = Annotated[
    int | None,
    typer.Option(
        "--bits",
        metavar="|".join(map(str, WIDTHS)),
        help="The width of fingerprints; default the recipe's.",
    ),
]
BaseOption = Annotated[Base, typer.Option("--base", help="How fingerprints are written.")]
CapacityOption = Annotated[
    int | None,
    typer.Option(
        "--capacity",
        metavar="N",
        parser=parse_count,
        help="Choose the tables for N documents, e.g. 5e6.",
    ),
]
KeyTypeOption = Annotated[
    KeyType | None, typer.Option("--key-type", help="The kind of keys; default text.")
]
SketchOption = Annotated[
    SketchKind | None,
    typer.Option("--sketch", help="Keep a sketch of each text for --similarity: 128 bytes."),
]
TablesOption = Annotated[
    int | None,
    typer.Option("--tables", metavar="N", min=1, help="The plan with N tables; see fpdb plan."),
]
NewKOption = Annotated[
    int | None,
    typer.Option("--k", "-k", metavar="K", min=0, help="The distance that counts as a match."),
]
KOption = Annotated[
    int | None,
    typer.Option(
        "--k", "-k", metavar="K", min=0, help="Largest distance; default the database's k."
    ),
]
SimilarityOption = Annotated[
    float | None,
    typer.Option(
        "--similarity",
        metavar="J",
        min=0.0,
        max=1.0,
        help="Least similarity of texts, e.g. 0.8.",
    ),
]
PrefixOption = Annotated[
    str | None,
    typer.Option("--prefix", metavar="P", help="All documents whose key begins with P."),
]
MaxBytesOption = Annotated[
    int,
    typer.Option(
        "--max-bytes",
        metavar="BYTES",
        parser=parse_bytes,
        show_default="2M",
        help="Largest text to accept.",
    ),
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=0,
        max=MOST,
        help="Number of workers; 0: all processors.",
    ),
]
MemoryOption = Annotated[
    int,
    typer.Option(
        "--memory",
        metavar="BYTES",
        parser=parse_memory,
        show_default="1G",
        help="About how much memory sorting may take, e.g. 512M.",
    ),
]
NewPathOption = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="NEW", help="The directory of the new database."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")]


def bundled(
    only: str | None = None, **bundles: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces parameters of a command by the options they are made of.

    Args:
        only: The options to show, if not all of them are wanted; others keep their defaults.
        bundles: For each parameter, the function or class that makes it; its own parameters
            become options of the command.
    """
    parts = {
        name: {
            option: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for option, parameter in inspect.signature(make).parameters.items()
            if only is None or option in only.split()
        }
        for name, make in bundles.items()
    }

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**values: Any) -> None:
            for name, make in bundles.items():
                values[name] = make(**{option: values.pop(option) for option in parts[name]})
            command(**values)

        own = inspect.signature(command).parameters.values()
        shown = [parameter for parameter in own if parameter.name not in bundles]
        shown += [option for options in parts.values() for option in options.values()]
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in shown]
        )
        return call

    return expand


def require(good: object, message: str) -> None:
    """Raise a usage error unless something holds."""
    if not good:
        raise typer.BadParameter(message)


def require_directory(path: Path) -> None:
    """Raise a usage error if a new database is to go to standard output."""
    require(str(path) != "-", "--output is a directory")


def choose_recipe(name: str, bits: int | None = None, max_bytes: int = LARGEST_TEXT) -> fpdb.Recipe:
    """Return a preset by its name, or read a recipe from a file; it accepts texts of that size."""
    recipe = fpdb.read_recipe(Path(name)) if name.endswith(".toml") else fpdb.recipe(name)
    recipe = recipe if bits is None else recipe.with_bits(bits)
    return recipe if max_bytes <= recipe.largest else recipe.replace(largest=max_bytes)


def open_readonly(path: Path, recipe: str | None = None) -> fpdb.Database:
    """Open a database to read it."""
    with hinting_at_order(path):
        return fpdb.open(path, readonly=True, recipe=choose_recipe(recipe) if recipe else None)


def open_writable(path: Path, recipe: str | None = None) -> fpdb.Database:
    """Open a database to write to it."""
    with hinting_at_order(path):
        return fpdb.open(path, recipe=choose_recipe(recipe) if recipe else None)


@contextlib.contextmanager
def hinting_at_order(path: Path) -> Iterator[None]:
    """Add a hint to the error about a path that may not have been meant as the database."""
    try:
        yield
    except (DatabaseNotFoundError, NotADatabaseError) as error:
        if os.environ.get("FPDB_PATH", str(path)) != str(path):
            error.hint += "; the database comes first, even where FPDB_PATH names one"
        raise
