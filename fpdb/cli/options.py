"""Options that several commands share, the values they take, and recipes by their names."""

import functools
import inspect
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_origin

import typer

import fpdb
from fpdb.cli import render
from fpdb.fingerprint import PRESETS, Recipe
from fpdb.threads import MOST

_LARGEST_COUNT = 1 << 63
_BYTES = re.compile(r"([0-9]{1,19})([KMG]?)")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
_AGE = re.compile(r"0*([1-9][0-9]{0,8})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def option(spec: str, text: str, *, rare: bool = False, **more: Any) -> Any:
    """Return an option: its names and a word for its value, as "--output -o FILE", and its help.

    `rare` ones are only named at the end of a command's help; --help-all shows them.
    """
    words = spec.split()
    if rare:
        more |= {"hidden": True, "rich_help_panel": render.MORE}
    names = [word for word in words if word.startswith("-")]
    value = " ".join(words[len(names) :])
    return typer.Option(*names, metavar=value, help=text, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, **more)


def parse_count(value: str | int) -> int:
    """Parse a whole number that may be large: 8000000000, 8_000_000_000, 8e9 or 2**33."""
    base, raised, power = str(value).partition("**")
    try:
        number = float(base) ** (int(power) if raised else 1)
    except (ValueError, ArithmeticError):
        number = 0.0
    if not 1 <= number <= _LARGEST_COUNT or not number.is_integer():
        raise typer.BadParameter(
            f"found {str(value)!r}, expected a whole number from 1, e.g. 50000, 8e9 or 2**33"
        )
    return int(number)


def parse_bytes(value: str | int) -> int:
    """Parse a number of bytes, e.g. 512M or 3G."""
    match = _BYTES.fullmatch(str(value))
    number = int(match[1]) << _SHIFTS[match[2]] if match else 0
    if not 1 <= number <= _LARGEST_COUNT:
        raise typer.BadParameter(f"found {str(value)!r}, expected a number of bytes, e.g. 3G")
    return number


def parse_similarity(value: str | float) -> float:
    """Parse a similarity, e.g. 0.8 or 80%."""
    text = str(value)
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise typer.BadParameter(f"found {text!r}, expected a number above 0, at most 1, e.g. 0.8")
    return share


def parse_age(text: str) -> int:
    """Parse a length of time, e.g. 30d, 12h or 2w; return it in seconds."""
    match = _AGE.fullmatch(text)
    require(match, f"found {text!r}, expected a length of time, e.g. 45s, 90m, 12h, 30d or 2w")
    return int(match[1]) * _SECONDS[match[2]] if match else 0


def parse_time(text: str) -> float:
    """Parse a date or a time, in UTC unless it names another zone, or an age before now."""
    if _AGE.fullmatch(text):
        return time.time() - parse_age(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"found {text!r}, expected a date, a time or an age, e.g. 2026-11-30, "
            "2026-11-30T18:00Z or 7d"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def choose_recipe(name: str) -> Recipe:
    """Return a preset by its name, or read a recipe from a file."""
    return fpdb.read_recipe(Path(name)) if name.endswith(".toml") else fpdb.recipe(name)


Named = TypeVar("Named", str, Path, None)


def require_name(path: Named) -> Named:
    """Raise a usage error for "-", which means standard output elsewhere."""
    if str(path) == "-":
        raise typer.BadParameter(
            "found -, expected a path: this isn't written to standard output; "
            "fpdb export writes a database there"
        )
    return path


def require_file(path: str | None) -> str | None:
    """Raise a usage error for a folder, whose name as a path would be that of a file."""
    if path and path.endswith("/"):
        raise typer.BadParameter(f"found {path}, which names a folder, expected a file")
    return path


def require_page(path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise typer.BadParameter(f"found {path}, expected a name that ends in .html")
    return path


# Recipes by their names, which typer parses like given ones.
WEB: Any = "web"
KeyType = Literal["text", "integer"]
# Options and arguments of several commands, by the names of their parameters.
_SHARED: dict[str, Any] = {
    "path": argument("DB", "The directory of the database.", callback=require_name),
    "files": argument("FILE|DIR|-", "What to read; default standard input."),
    "recipe": option(
        "--recipe -r NAME|FILE.toml",
        "A preset, or a TOML file.",
        parser=str,  # typer would take a RecipeError of a parser for a usage error
        callback=lambda name: None if name is None else choose_recipe(name),
        autocompletion=lambda incomplete: [n for n in PRESETS if n.startswith(incomplete)],
    ),
    "texts": option("--text -t TEXT", "A text, in place of a file."),
    "fingerprints": option("--fingerprint DIGITS", "A fingerprint, in place of a text."),
    "similarity": option(
        "--similarity J",
        "Least similarity; default the stored one or 0.8.",
        parser=parse_similarity,
    ),
    "k": option("--k -k K", "Compare bits: the largest distance.", min=0, rare=True),
    "least": option("--least SHARE", "With --passages: least share of a text.", min=0, max=1),
    "common": option("--common FILE", "A text that all were given: it counts for nobody."),
    "jobs": option(
        "--jobs -j N", "Threads; default all processors.", min=0, max=MOST, show_default=False
    ),
    "bad": option("--bad drop|fail", "Records that can't be used: leave them out, or stop."),
    "limit": option("--limit -n N", "Print at most N.", min=1),
    "keep": option(
        "--keep WHICH", "first (default), longest, newest:F or source:F=A,B,*.", show_default=False
    ),
    "lose": option(
        "--lose SHARE", "Remove what loses at most this share of its own words.", min=0, max=1
    ),
    "within": option("--within FIELD", "Compare only records with an equal value."),
    "skip_duplicates": option(
        "--skip-duplicates", "Don't add near-duplicates of stored documents."
    ),
    "capacity": option(
        "--capacity N", "How many documents to plan for, e.g. 5e6.", parser=parse_count
    ),
    "key_type": option("--key-type text|integer", "Kind of keys; default text.", rare=True),
    "keys": argument("KEY", "Keys of documents."),
    "since": option(
        "--since TIME", "Added then or later: a date, or an age, e.g. 7d.", parser=parse_time
    ),
    "until": option("--until TIME", "Added before: a date or an age.", parser=parse_time),
    "prefix": option("--prefix P", "All documents whose key begins with P."),
    "title_field": option("--title-field F", "Field of a title; else a usual one."),
    "date_field": option("--date-field F", "Field of a date; else a usual one."),
    "host_field": option("--host-field F", "Field of a host; else a usual one."),
    "url_field": option("--url-field F", "Field of a link; else a usual one."),
    "port": option("--port N", "The port; 0: any free one.", min=0, max=65535),
    "report": option(
        "--report FILE.html",
        "Also write a page that shows the pairs side by side.",
        callback=require_page,
    ),
    "key_field": option("--key-field F", "Field of the key; default key, id, url, …"),
    "text_field": option("--text-field F", "Field of the text; several are joined."),
    "meta_field": option("--meta-field F", "Field to keep as metadata; '*': all others."),
    "fingerprint_field": option(
        "--fingerprint-field F", "Field of a ready fingerprint.", rare=True
    ),
    "base": option(
        "--base BASE",
        "Digits: hex (default), decimal, signed or binary.",
        rare=True,
        show_default=False,
    ),
    "format": option(
        "--format FORMAT",
        "jsonl, tsv, csv, parquet, lines, text, html, docx, odt, pdf, warc, wacz.",
    ),
    "encoding": option("--encoding NAME", "Encoding of texts and tables; else detected."),
    "html": option("--html HOW", "HTML: auto (.html, archives), main or page.", show_default=False),
    "max_bytes": option(
        "--max-bytes BYTES",
        "Largest text or HTML page to accept; default 2M.",
        rare=True,
        parser=parse_bytes,
        show_default=False,
    ),
    "output": option(
        "--output -o FILE|-",
        "Where to write; the suffix chooses the format.",
        callback=require_file,
    ),
    "as_json": option("--json", "Write JSON, an object per line."),
    "quiet": option("--quiet -q", "Print no summary and no progress."),
    "_all": option(
        "--help-all",
        "Show the help with all options.",
        rare=True,
        callback=render.show_all_help,
        is_eager=True,
    ),
}
# Types that typer knows, of what may have others in Python.
_TYPES: dict[str, Any] = {"text_field": list[str], "meta_field": list[str]}
# Parameters of a way of reading: how files become documents, and what pages show of these.
READ = "key_field text_field format encoding html max_bytes"
SHOWN = "title_field date_field host_field url_field"
# Options that mean another thing in several commands.
NEW_PATH = option("--output -o NEW", "The directory of the new database.", callback=require_name)
NEW_K = option("--k -k K", "The largest distance where bits are compared.", min=0, rare=True)
NEW_SIMILARITY = option(
    "--similarity J|off",
    "Least similarity; off: bits alone.",
    # "Off" is 0, since typer takes None for a missing value.
    parser=lambda value: 0.0 if value in ("off", 0.0) else parse_similarity(value),
)
SORT = option("--sort", "Print the nearest pairs first; all are found before.")
TEXTS = option("--texts FILE", "Files with the texts, under the same keys.")


def takes(
    fields: str | None = None, **definitions: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives the parameters of a command their options and arguments.

    Args:
        fields: The options to show of a class or function in the definitions, if not all of them
            are wanted; others keep their defaults.
        definitions: For a parameter, its option or argument if that isn't the shared one; or the
            class or function that makes it, even if the command has no such parameter: its own
            parameters become options of the command.
    """
    makers = {name: definition for name, definition in definitions.items() if callable(definition)}
    options = _SHARED | definitions

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        declared = inspect.signature(command).parameters
        parts = {
            name: [
                parameter.replace(annotation=_TYPES.get(part, parameter.annotation))
                for part, parameter in inspect.signature(make).parameters.items()
                if part in options and (fields is None or part in fields.split())
            ]
            for name, make in makers.items()
        }

        @functools.wraps(command)
        def call(**values: Any) -> None:
            for name, make in makers.items():
                made = make(**{part.name: values.pop(part.name) for part in parts[name]})
                if name in declared:
                    values[name] = made
            command(**values)

        shown = [parameter for name, parameter in declared.items() if name not in makers]
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                parameter.replace(
                    kind=parameter.KEYWORD_ONLY, annotation=_described(parameter, options)
                )
                for parameter in chain(shown, *parts.values())
            ]
        )
        return call

    return expand


def _described(parameter: inspect.Parameter, options: dict[str, Any]) -> Any:
    kind = parameter.annotation
    if get_origin(kind) is Annotated:  # by a decorator before
        return kind
    return Annotated[kind, options[parameter.name]]


def _choose_printing(as_json: bool = False, quiet: bool = False, _all: bool = False) -> None:
    render.now.json, render.now.quiet = as_json, quiet


def with_common(command: Callable[..., None], *, json: bool) -> Callable[..., None]:
    """Return a command with the option --quiet, and with --json if it has results to print."""
    fields = "as_json quiet _all" if json else "quiet _all"
    return takes(fields, printing=_choose_printing)(command)


def require(good: object, message: str) -> None:
    """Raise a usage error unless something holds."""
    if not good:
        raise typer.BadParameter(message)
