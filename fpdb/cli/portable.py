"""Export and ingest of the portable form, in which a database travels to other machines."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import require
from fpdb.cli.outcome import Progress
from fpdb.errors import MissingExtraError
from fpdb.io import is_portable
from fpdb.storage.open_checks import is_vacant

SUFFIX = ".fpdb.jsonl"
_WITH = {"path", "files", "capacity", "quiet", "strict"}


def told(path: str) -> bool:
    """Tell by its suffix whether a file has the portable form, or is to have it."""
    return path.lower().removesuffix(".gz").removesuffix(".zst").endswith(SUFFIX)


def write(path: Path, output: str, prefix: str | None) -> int:
    """Write a database, to a file that its suffix packs or to standard output."""
    with (
        databases.open_readonly(path) as database,
        render.binary(output) as raw,
        _packed(raw, output.lower()) as file,
    ):
        return database.dump(file, prefix=prefix or "")


@contextmanager
def _packed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    if name.endswith(".gz"):
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6) as packed:
            yield packed  # type: ignore[misc]
    elif name.endswith(".zst"):
        try:
            import zstandard
        except ImportError:
            raise MissingExtraError(
                "zstd is written by the package zstandard, which isn't installed",
                hint="pip install 'fpdb[zstd]'",
            ) from None
        with zstandard.ZstdCompressor().stream_writer(file, closefd=False) as packed:
            yield packed
    else:
        yield file


def took(
    context: typer.Context, path: Path, sources: list[str], capacity: int | None, *, quiet: bool
) -> bool:
    """Bring files into a database if they have the portable form; say whether they do.

    Such files go alone, and hardly an option goes with them.
    """
    # One that is cut at its very beginning is still no other.
    named = context.params["form"] is None
    found = [(named and told(source)) or is_portable(source) for source in sources]
    if not any(found):
        return False
    require(all(found), "the portable form of a database goes alone, without other files")
    databases.require_alone(context, _WITH, "the portable form, which says all of that")
    try:
        for source in sources:
            _read(path, source, capacity, quiet=quiet)
    except KeyboardInterrupt:
        render.note("interrupted: a new database isn't there; run it again")
        raise typer.Exit(130) from None
    return True


def _read(path: Path, source: str, capacity: int | None, *, quiet: bool) -> None:
    """Bring a file into a database, which is made like the exported one if there is none."""
    created = is_vacant(path)
    progress = Progress(quiet=quiet)
    new: dict[str, Any] = {} if capacity is None else {"capacity": capacity}
    with databases.explained(path):
        fpdb.load(
            path,
            source,
            fpdb.Reading(format="portable"),
            on_progress=progress,
            **new,
        )
    if created and not quiet:
        with databases.open_readonly(path) as database:
            databases.note_created(database)
    progress.summarise()
