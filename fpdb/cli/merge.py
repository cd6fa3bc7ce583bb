"""The command that merges databases."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.options import JsonOption, MemoryOption
from fpdb.cli.values import parse_count
from fpdb.errors import FpdbError, LockTimeoutError
from fpdb.storage.drafts import place_of
from fpdb.tables.bulk_load import MEMORY

_BEGUN = {
    "resumed": "went on with the draft of a merge that was cut short",
    "anew": "began anew: a draft that was there is of another merge, or of databases as they were",
}


class Rule(StrEnum):
    """Which of several documents with the same key stays."""

    NEWEST = "newest"
    FIRST = "first"
    ERROR = "error"


def merge(
    sources: Annotated[
        list[Path], typer.Argument(metavar="DB...", help="The directories of the databases.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="NEW", help="The directory of the new database."),
    ],
    on_conflict: Annotated[
        Rule,
        typer.Option(
            "--on-conflict",
            help="Which document stays of those with the same key: the one that was added last, "
            "that of the first database, or none: it is an error if they differ.",
        ),
    ] = Rule.NEWEST,
    capacity: Annotated[
        int | None,
        typer.Option(
            "--capacity",
            metavar="N",
            parser=parse_count,
            help="For how many documents to choose the tables, as 5e7; default as needed.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", min=0, help="The distance that counts as a match from now on."),
    ] = None,
    memory: MemoryOption = MEMORY,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what goes wrong.")] = False,
) -> None:
    """Write the documents of several databases into a new one.

    All must have the same recipe, the same kind of keys, and sketches or none. They are only read,
    and others may write to them meanwhile, which isn't in the new one. It is checked before it
    appears. A merge that is cut short leaves a draft beside NEW, and the same command goes on from
    there, unless a database has been written to since.

    \b
    Example:
      fpdb merge north.fpdb south.fpdb --output all.fpdb
      fpdb merge crawler-*.fpdb -o all.fpdb --on-conflict first --capacity 1e8
    """
    databases.require(str(output) != "-", "--output is a directory")
    try:
        merged = fpdb.merge(
            sources, output, on_conflict=on_conflict.value, k=k, capacity=capacity, memory=memory
        )
    except LockTimeoutError:  # the draft is another's, who is at work on it
        raise
    except (KeyboardInterrupt, FpdbError):
        _note_draft(output)
        raise
    if as_json:
        render.record(
            {
                "path": str(merged.path),
                "documents": merged.documents,
                "begun": merged.begun,
                "sources": [
                    {**source._asdict(), "path": str(source.path)} for source in merged.sources
                ],
            }
        )
    if quiet:
        return
    if merged.begun in _BEGUN:
        render.note(_BEGUN[merged.begun])
    for source in merged.sources:
        render.note(f"{source.path}: {source.documents:,} taken, {source.dropped:,} dropped")
    with fpdb.open(output, readonly=True) as built:
        stats = built.stats()
    render.note(f"{output}: {stats.documents:,} documents, {stats.plan}, {stats.bytes:,} bytes")


def _note_draft(output: Path) -> None:
    """Say what is left to go on with."""
    draft = place_of(output.resolve())
    if draft.exists():
        render.note(f"{draft} holds what is done: the same command goes on, or delete it")
