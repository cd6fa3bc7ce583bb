"""Export and ingest of the portable form, in which a database travels to other machines."""

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import require
from fpdb.errors import InputError, MissingExtraError
from fpdb.io import is_portable, portable_file, size_of
from fpdb.storage.preflight import is_vacant

SUFFIX = ".fpdb.jsonl"
_PROGRESS_SECONDS = 0.1
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
    created, started = is_vacant(path), time.monotonic()
    progress = _Progress(source) if render.shows_progress() and not quiet else None
    with portable_file(source, progress) as file, databases.explained(path):
        try:
            loaded = fpdb.load(path, file, capacity=capacity)
        except InputError as error:
            raise InputError(f"{source}: {error}", hint=error.hint) from None
    if quiet:
        return
    if created:
        with databases.open_readonly(path) as database:
            databases.note_created(database)
    seconds = time.monotonic() - started
    counts = ", ".join(f"{name} {count:,}" for name, count in loaded._asdict().items())
    rate = loaded.documents / seconds if seconds else 0
    render.note(f"read {loaded.documents:,}, {counts}; {seconds:.2f} s, {rate:,.0f} documents/s")


class _Progress:
    """Shows how much of a file was read."""

    def __init__(self, source: str) -> None:
        self._total = size_of(source)
        self._bytes = 0
        self._shown = time.monotonic()

    def __call__(self, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        if now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            share = f", {self._bytes / self._total:.0%} of the file" if self._total else ""
            render.progress(f"{self._bytes:,} bytes{share}")
