"""The options of `fpdb spark`: where Spark runs, what is read, and where it goes."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated

import typer

import fpdb
from fpdb.cli.databases import DEFAULT_RECIPE, require
from fpdb.cli.options import choose_recipe
from fpdb.cli.values import parse_bytes


class InputForm(StrEnum):
    """The formats that Spark is told to read."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


class OutputForm(StrEnum):
    """The formats that Spark is told to write."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"


_SUFFIXES = {"json": "jsonl", "ndjson": "jsonl"}
_PACKED = ("gz", "bz2", "zst", "lz4", "snappy")

DocumentsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="IN...", help="Files, directories or patterns, also s3a:// or hdfs:// ones."
    ),
]
FormOption = Annotated[
    InputForm | None,
    typer.Option("--format", help="The format, if the suffix doesn't tell it; default parquet."),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key-field",
        metavar="F",
        help="The column of the documents' names; default key, id or url, whichever is first.",
    ),
]
TextOption = Annotated[
    str | None,
    typer.Option(
        "--text-field", metavar="F", help="The column of the texts; default text, content or body."
    ),
]
SparkBitsOption = Annotated[
    int | None,
    typer.Option(
        "--bits",
        metavar="32|64|128",
        help="The width of fingerprints, if neither the recipe nor the column tells it.",
    ),
]
KOption = Annotated[
    int | None, typer.Option("--k", "-k", min=0, help="The largest distance; default 3.")
]
DirectoryOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="A new directory for the rows, which are printed if there is none.",
    ),
]
DirectoryFormOption = Annotated[
    OutputForm | None,
    typer.Option(
        "--output-format", help="What to write, if the suffix doesn't tell it; default parquet."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs, as local[8] or spark://host:7077; default what Spark is "
        "configured with, or all processors of this machine.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
HeapOption = Annotated[
    int | None,
    typer.Option(
        "--memory",
        metavar="BYTES",
        parser=parse_bytes,
        help="What Java may take in this process, and so all of Spark with a local master, "
        "as 4G; default Spark's, which is 1G.",
    ),
]
WorkOption = Annotated[
    str | None,
    typer.Option(
        "--work",
        metavar="DIR",
        help="Where to put what is removed at the end; all workers must reach it. "
        "Default beside the output.",
    ),
]


@dataclass(frozen=True)
class Engine:
    """Which Spark is asked for: what is None or empty is left to Spark's own configuration."""

    master: str | None
    conf: tuple[str, ...]
    memory: int | None
    work: str | None

    def __post_init__(self) -> None:
        for each in self.conf:
            name, equals, _ = each.partition("=")
            require(
                name.startswith("spark.") and equals, f"{each!r} isn't spark.NAME=VALUE, for --conf"
            )

    @property
    def settings(self) -> dict[str, str]:
        """What is asked for, by the names that Spark has for it."""
        found = {} if self.master is None else {"spark.master": self.master}
        if self.memory is not None:
            found["spark.driver.memory"] = f"{self.memory >> 10}k"
        pairs = (each.partition("=") for each in self.conf)
        return found | {name: value for name, _, value in pairs}


@dataclass(frozen=True)
class Source:
    """What is read: paths, and which columns are what."""

    paths: tuple[str, ...]
    form: InputForm | None = None
    key: str | None = None
    text: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that the column of keys may have, the first that is there counts."""
        return ("key", "id", "url") if self.key is None else (self.key,)

    @property
    def texts(self) -> tuple[str, ...]:
        """The names that the column of texts may have."""
        return ("text", "content", "body") if self.text is None else (self.text,)

    @property
    def format(self) -> InputForm:
        """The format, by the suffix of the first path if none was given."""
        return self.form or InputForm(_told(self.paths[0], set(InputForm)) or "parquet")


@dataclass(frozen=True)
class Making:
    """How texts become fingerprints."""

    recipe: str | None
    bits: int | None
    sketch: str | None = None

    def build(self) -> fpdb.Recipe:
        """Make the recipe."""
        return choose_recipe(self.recipe or DEFAULT_RECIPE, self.bits)


@dataclass(frozen=True)
class Target:
    """Where rows go: to a directory, or to standard output."""

    path: str | None
    form: OutputForm | None
    as_json: bool
    guard: bool

    def __post_init__(self) -> None:
        require(not (self.as_json and self.path), "--json is for standard output")
        require(self.path or not self.form, "--output-format is for --output DIR")

    @property
    def format(self) -> OutputForm:
        """The format, by the suffix of the directory if none was given."""
        return self.form or OutputForm(_told(self.path or "", set(OutputForm)) or "parquet")


def _told(path: str, known: set[str]) -> str | None:
    """Tell the format by a suffix."""
    words = PurePath(path).name.lower().split(".")
    if len(words) > 1 and words[-1] in _PACKED:
        words.pop()
    last = _SUFFIXES.get(words[-1], words[-1]) if len(words) > 1 else None
    return last if last in known else None
