"""Options that several commands share, the values they take, and recipes by their names."""

import functools
import inspect
import re
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

import fpdb
from fpdb.cli import render
from fpdb.fingerprint import PRESETS, Recipe
from fpdb.fingerprint.digits import Base
from fpdb.threads import MOST

_LARGEST_COUNT = 1 << 63
_BYTES = re.compile(r"([0-9]{1,19})([KMG]?)")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}


def option(spec: str, text: str, **more: Any) -> Any:
    """Return an option: its names and a word for its value, as "--output -o FILE", and its help."""
    words = spec.split()
    names = [word for word in words if word.startswith("-")]
    value = " ".join(words[len(names) :])
    return typer.Option(*names, metavar=value, help=text, **more)


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
    """Parse a number of bytes, e.g. 512M or 3G."""
    found = _BYTES.fullmatch(str(given))
    number = int(found[1]) << _SHIFTS[found[2]] if found else 0
    if not 1 <= number <= _LARGEST_COUNT:
        raise typer.BadParameter(f"found {str(given)!r}, expected a number of bytes, e.g. 3G")
    return number


def parse_similarity(given: str | float) -> float:
    """Parse a similarity; "off" becomes 0, since typer takes None for a missing value."""
    try:
        share = 0.0 if given == "off" else float(given) or -1.0
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter(f"found {given!r}, expected a number above 0, at most 1, or off")
    return share


def choose_recipe(name: str) -> Recipe:
    """Return a preset by its name, or read a recipe from a file."""
    return fpdb.read_recipe(Path(name)) if name.endswith(".toml") else fpdb.recipe(name)


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
# Recipes by their names, which typer parses like given ones.
WEB: Any = "web"
WORDS: Any = "words"
_RECIPE = option(
    "--recipe -r NAME|FILE.toml",
    "A preset, or a TOML file.",
    parser=str,  # typer would take a RecipeError of a parser for a usage error
    callback=lambda name: None if name is None else choose_recipe(name),
    autocompletion=_presets,
)
RecipeOption = Annotated[Recipe, _RECIPE]
AnyRecipeOption = Annotated[Recipe | None, _RECIPE]
TextOption = Annotated[list[str] | None, option("--text -t TEXT", "A text, in place of a file.")]
FingerprintOption = Annotated[
    list[str] | None, option("--fingerprint DIGITS", "A fingerprint, in place of a text.")
]
SkipDuplicatesOption = Annotated[
    bool, option("--skip-duplicates", "Don't add near-duplicates of stored documents.")
]
DateFieldOption = Annotated[str | None, option("--date-field F", "Field of a date.")]
HostFieldOption = Annotated[str | None, option("--host-field F", "Field of a host or URL.")]
PortOption = Annotated[int, option("--port N", "The port; 0: any free one.", min=0, max=65535)]
ReportOption = Annotated[
    Path | None,
    option(
        "--report FILE.html",
        "Also write a page that shows the pairs side by side.",
        callback=require_page,
    ),
]
_CAPACITY = option("--capacity N", "How many documents to plan for, e.g. 5e6.", parser=parse_count)
CapacityOption = Annotated[int, _CAPACITY]
AnyCapacityOption = Annotated[int | None, _CAPACITY]
KeyTypeOption = Annotated[
    Literal["text", "integer"] | None,
    option("--key-type text|integer", "Kind of keys; default text."),
]
NewKOption = Annotated[
    int | None, option("--k -k K", "The largest distance where bits are compared.", min=0)
]
KOption = Annotated[int | None, option("--k -k K", "Compare bits: the largest distance.", min=0)]
_SIMILARITY = option(
    "--similarity J", "Least similarity; default the stored one or 0.8.", min=0.0, max=1.0
)
SimilarityOption = Annotated[float | None, _SIMILARITY]
LeastOption = Annotated[float, _SIMILARITY]
NewSimilarityOption = Annotated[
    float | None,
    option("--similarity J|off", "Least similarity; off: bits alone.", parser=parse_similarity),
]
PrefixOption = Annotated[str | None, option("--prefix P", "All documents whose key begins with P.")]
JobsOption = Annotated[
    int, option("--jobs -j N", "Number of threads; 0: all processors.", min=0, max=MOST)
]
_NEW_PATH = option("--output -o NEW", "The directory of the new database.", callback=require_name)
NewPathOption = Annotated[Path, _NEW_PATH]
AnyNewPathOption = Annotated[Path | None, _NEW_PATH]
BaseOption = Annotated[
    Base,
    option("--base BASE", "Digits: hex (default), decimal, signed or binary.", show_default=False),
]


def bundled(
    only: str | None = None, **bundles: Callable[..., Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that replaces parameters of a command by the options they are made of.

    Args:
        only: The options to show, if not all of them are wanted; others keep their defaults.
        bundles: For each parameter, the function or class that makes it, even if the command has
            no such parameter; its own parameters become options of the command.
    """
    parts = {
        name: [
            each
            for each in inspect.signature(make).parameters.values()
            if only is None or each.name in only.split()
        ]
        for name, make in bundles.items()
    }

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters

        @functools.wraps(command)
        def call(**values: Any) -> None:
            for name, make in bundles.items():
                made = make(**{each.name: values.pop(each.name) for each in parts[name]})
                if name in own:
                    values[name] = made
            command(**values)

        shown = [each for name, each in own.items() if name not in bundles]
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=each.KEYWORD_ONLY) for each in chain(shown, *parts.values())]
        )
        return call

    return expand


def _choose_printing(
    as_json: Annotated[bool, option("--json", "Write JSON, one object a line.")] = False,
    quiet: Annotated[bool, option("--quiet -q", "Print no summary and no progress.")] = False,
) -> None:
    render.now.json, render.now.quiet = as_json, quiet


def with_common(command: Callable[..., None], *, json: bool) -> Callable[..., None]:
    """Return a command with the option --quiet, and with --json if it has results to print."""
    return bundled("as_json quiet" if json else "quiet", printing=_choose_printing)(command)


def require(good: object, message: str) -> None:
    """Raise a usage error unless something holds."""
    if not good:
        raise typer.BadParameter(message)
