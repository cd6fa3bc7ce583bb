"""Options that several commands share, the values they take, and recipes by their names."""

import functools
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

import fpdb
from fpdb.cli import render
from fpdb.fingerprint import PRESETS
from fpdb.fingerprint.digits import Base
from fpdb.models import MOST_BYTES
from fpdb.processes import MOST

_LARGEST_COUNT = 1 << 63
_BYTES = re.compile(r"([0-9]{1,19})([KMG]?)")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}

KeyType = Literal["text", "integer"]


def parse_count(given: str | int) -> int:
    """Parse a whole number that may be large: 8000000000, 8_000_000_000, 8e9 or 2**33."""
    base, raised, power = str(given).partition("**")
    try:
        number = float(base) ** (int(power) if raised else 1)
    except (ValueError, ArithmeticError):
        number = 0.0
    if not 1 <= number <= _LARGEST_COUNT or not number.is_integer():
        raise typer.BadParameter(
            f"found {str(given)!r}, expected a whole number from 1, e.g. 50000, 8e9 or 2**33"
        )
    return int(number)


def parse_bytes(given: str | int) -> int:
    """Parse a number of bytes, e.g. 512K or 4M."""
    found = _BYTES.fullmatch(str(given))
    number = int(found[1]) << _SHIFTS[found[2]] if found else 0
    if not 1 <= number <= MOST_BYTES:
        raise typer.BadParameter(f"found {str(given)!r}, expected a number of bytes, e.g. 4M")
    return number


def parse_similarity(given: str | float) -> float:
    """Parse a similarity; "off" becomes 0, since typer takes None for a missing value."""
    try:
        share = 0.0 if given == "off" else float(given)
    except ValueError:
        share = -1.0
    if given != "off" and not 0 < share <= 1:
        raise typer.BadParameter(f"found {given!r}, expected a number above 0, at most 1, or off")
    return share


def _presets(incomplete: str) -> list[str]:
    return [name for name in PRESETS if name.startswith(incomplete)]


Named = TypeVar("Named", str, Path, None)


def require_name(given: Named) -> Named:
    """Raise a usage error for "-", which means standard output elsewhere."""
    if str(given) == "-":
        raise typer.BadParameter(
            "found -, expected a path: this isn't written to standard output; "
            "fpdb export writes a database there"
        )
    return given


def require_page(given: Path | None) -> Path | None:
    """Raise a usage error unless the suffix of a page is that of HTML."""
    if given is not None and given.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"found {given}, expected a name that ends in .html")
    return given


DatabaseArgument = Annotated[
    Path, typer.Argument(metavar="DB", callback=require_name, help="The directory of the database.")
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
_CAPACITY = typer.Option(
    "--capacity",
    metavar="N",
    parser=parse_count,
    help="Choose the tables for N documents, e.g. 5e6.",
)
CapacityOption = Annotated[int, _CAPACITY]
AnyCapacityOption = Annotated[int | None, _CAPACITY]
_KEY_TYPE = typer.Option("--key-type", help="The kind of keys; default text.")
KeyTypeOption = Annotated[KeyType, _KEY_TYPE]
AnyKeyTypeOption = Annotated[KeyType | None, _KEY_TYPE]
BitsOption = Annotated[
    int, typer.Option("--bits", metavar="32|64|128", help="The width of fingerprints.")
]
NewKOption = Annotated[
    int | None,
    typer.Option(
        "--k", "-k", metavar="K", min=0, help="The largest distance where bits are compared."
    ),
]
KOption = Annotated[
    int | None,
    typer.Option("--k", "-k", metavar="K", min=0, help="Compare bits: the largest distance."),
]
SimilarityOption = Annotated[
    float | None,
    typer.Option(
        "--similarity",
        metavar="J",
        min=0.0,
        max=1.0,
        help="Least similarity; default the stored one.",
    ),
]
NewSimilarityOption = Annotated[
    float | None,
    typer.Option(
        "--similarity",
        metavar="J|off",
        parser=parse_similarity,
        help="Least similarity of texts, default 0.8; off: bits alone.",
    ),
]
PrefixOption = Annotated[
    str | None, typer.Option("--prefix", metavar="P", help="All documents whose key begins with P.")
]
JobsOption = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=0, max=MOST, help="Number of workers; 0: all processors."
    ),
]
_NEW_PATH = typer.Option(
    "--output",
    "-o",
    metavar="NEW",
    callback=require_name,
    help="The directory of the new database.",
)
NewPathOption = Annotated[Path, _NEW_PATH]
AnyNewPathOption = Annotated[Path | None, _NEW_PATH]
BaseOption = Annotated[
    Base, typer.Option("--base", help="How fingerprints are written; signed: as by Java and SQL.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON, one object a line.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", callback=render.hush, help="Print no summary.")
]


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


def with_quiet(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the option --quiet, as all have; it mutes at least the progress."""
    signature = inspect.signature(command)
    if "quiet" in signature.parameters:
        return command

    @functools.wraps(command)
    def call(**values: Any) -> None:
        del values["quiet"]  # its callback has its effect
        command(**values)

    kind = inspect.Parameter.KEYWORD_ONLY
    quiet = inspect.Parameter("quiet", kind, default=False, annotation=QuietOption)
    own = [each.replace(kind=kind) for each in signature.parameters.values()]
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, quiet]
    )
    return call


def require(good: object, message: str) -> None:
    """Raise a usage error unless something holds."""
    if not good:
        raise typer.BadParameter(message)


def choose_recipe(name: str) -> fpdb.Recipe:
    """Return a preset by its name, or read a recipe from a file."""
    return fpdb.read_recipe(Path(name)) if name.endswith(".toml") else fpdb.recipe(name)
