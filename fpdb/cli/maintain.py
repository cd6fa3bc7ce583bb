"""Check, repair, compact, merge and copy databases."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.create import choose_plan
from fpdb.cli.options import (
    MEMORY,
    CapacityOption,
    DatabaseArgument,
    JsonOption,
    MemoryOption,
    NewKOption,
    NewPathOption,
    QuietOption,
    TablesOption,
    hinting_at_order,
    open_readonly,
    require_directory,
)
from fpdb.errors import FpdbError


class ConflictRule(StrEnum):
    """Which of several documents with the same key a merge keeps."""

    NEWEST = "newest"
    FIRST = "first"
    ERROR = "error"


def check(
    path: DatabaseArgument,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also check every page of LMDB's own structure.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check a database; exit 1 on problems.

    Example:
      fpdb check crawl.fpdb
      fpdb check copy-of-unknown-origin.fpdb --deep
    """
    found = False
    with hinting_at_order(path):
        for problem in fpdb.check(path, deep=deep):
            found = True
            if as_json:
                render.record(problem._asdict())
            else:
                render.row(*problem)
            render.flush()
    if found:
        raise typer.Exit(1)
    if not quiet:
        render.note("no problems")


def repair(
    path: DatabaseArgument,
    output: NewPathOption,
    like: Annotated[
        Path | None,
        typer.Option(
            "--like",
            metavar="DB",
            help="A database created in the same way, if the header is lost.",
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    memory: MemoryOption = MEMORY,
) -> None:
    """Save what is intact of a damaged database.

    Example:
      fpdb repair crawl.fpdb --output repaired.fpdb
      fpdb repair crawl.fpdb --output repaired.fpdb --like other.fpdb
    """
    require_directory(output)
    with hinting_at_order(path):
        repaired = fpdb.repair(path, output, like=like, memory=memory)
    for where, what in (*repaired.problems, *(("lost", key) for key in repaired.lost)):
        if as_json:
            render.record({"where": where, "what": what})
        else:
            render.row(where, what)
    if not quiet:
        missing = "an unknown number" if repaired.missing is None else f"{repaired.missing:,}"
        render.note(f"{output}: {repaired.documents:,} documents; {missing} lost")
    if repaired.problems or repaired.lost or repaired.missing:
        raise typer.Exit(1)


def compact(
    path: DatabaseArgument,
    output: NewPathOption,
    capacity: CapacityOption = None,
    k: NewKOption = None,
    tables: TablesOption = None,
    memory: MemoryOption = MEMORY,
    quiet: QuietOption = False,
) -> None:
    """Rewrite a database, smaller or for more.

    Example:
      fpdb compact crawl.fpdb --output smaller.fpdb
      fpdb compact crawl.fpdb --output larger.fpdb --capacity 5e7
    """
    require_directory(output)
    with open_readonly(path) as database:
        old = database.stats()
        plan = None
        if tables is not None:
            distance = old.k if k is None else k
            plan = choose_plan(old.bits, distance, capacity or old.capacity, tables)
        database.compact(output, capacity=capacity, k=k, plan=plan, memory=memory)
    if not quiet:
        _note_new(output, f" instead of {old.bytes:,}")


def merge(
    sources: Annotated[
        list[Path], typer.Argument(metavar="DB...", help="The directories of the databases.")
    ],
    output: NewPathOption,
    on_conflict: Annotated[
        ConflictRule,
        typer.Option(
            "--on-conflict",
            help="What to keep of documents with the same key; error: fail if they differ.",
        ),
    ] = ConflictRule.NEWEST,
    capacity: CapacityOption = None,
    k: NewKOption = None,
    memory: MemoryOption = MEMORY,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Merge databases into a new one.

    Example:
      fpdb merge north.fpdb south.fpdb --output all.fpdb
      fpdb merge north.fpdb south.fpdb -o all.fpdb --on-conflict first --capacity 1e8
    """
    require_directory(output)
    merged = fpdb.merge(
        sources, output, on_conflict=on_conflict.value, k=k, capacity=capacity, memory=memory
    )
    if as_json:
        taken = [source._asdict() | {"path": str(source.path)} for source in merged.sources]
        render.record({"path": str(merged.path), "documents": merged.documents, "sources": taken})
    if quiet:
        return
    for source in merged.sources:
        render.note(f"{source.path}: {source.documents:,} taken, {source.dropped:,} dropped")
    _note_new(output)


def _note_new(path: Path, rest: str = "") -> None:
    """Print what a new database holds."""
    with fpdb.open(path, readonly=True) as database:
        stats = database.stats()
    render.note(f"{path}: {stats.documents:,} documents, {stats.plan}, {stats.bytes:,} bytes{rest}")


def backup(path: DatabaseArgument, output: NewPathOption) -> None:
    """Copy a database while it is in use.

    Example:
      fpdb backup crawl.fpdb --output /backup/crawl-monday.fpdb
    """
    require_directory(output)
    with open_readonly(path) as database:
        database.backup(output)
    render.row(output)


def hold(
    path: DatabaseArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="What copies the directory.")
    ],
) -> None:
    """Run a program that copies a database in use.

    Example:
      fpdb hold crawl.fpdb -- rsync -a crawl.fpdb/ backup:crawl.fpdb/
      fpdb hold crawl.fpdb -- cp -r crawl.fpdb /backup/crawl.fpdb
    """
    import subprocess

    with open_readonly(path) as database, database.hold():
        try:
            code = subprocess.call(command)  # noqa: S603 - the user's own command
        except OSError as error:
            raise FpdbError(
                f"{command[0]} can't be run: {error.strerror}",
                hint="write the command as in a shell, after --",
            ) from None
        except KeyboardInterrupt:
            code = 130
    raise typer.Exit(code if code >= 0 else 128 - code)
