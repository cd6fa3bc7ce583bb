"""Add the documents of files to a database."""

import contextlib
from functools import partial
from pathlib import Path
from typing import Literal

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.create import open_or_create
from fpdb.cli.inputs import BadRecords, ProgressLine, is_terminal
from fpdb.cli.options import require, takes
from fpdb.cli.output import likeness, near_dict, title_in
from fpdb.io.files import check_path, path_names


@takes(f"{options.READ} meta_field fingerprint_field base", reading=fpdb.Reading)
def ingest(
    path: Path,
    reading: fpdb.Reading,
    files: list[str] | None = None,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    recipe: fpdb.Recipe | None = None,
    jobs: int = 1,
    bad: Literal["drop", "fail"] = "drop",
) -> None:
    """Add documents, and skip near-duplicates.

    Example:
      fpdb ingest crawl.fpdb pages.jsonl.gz --skip-duplicates

    Prints each document that was skipped, the nearest stored one, and their
    similarity; with --json, also each one that was added after an incomplete
    search. Without --skip-duplicates, --json prints the summary.
    """
    require(
        skip_duplicates or similarity is None,
        "--similarity needs --skip-duplicates; fpdb create sets that of a database",
    )
    require(files or not is_terminal(), "name a file, or - for standard input")
    paths = path_names(files or ["-"])
    for each in paths:
        check_path(each, reading)
    progress, bad_records = ProgressLine(), BadRecords()
    with open_or_create(path, recipe) as database, contextlib.ExitStack() as ending:
        ending.callback(progress.summarise, listed=skip_duplicates)
        render.now.left = "documents that were counted are stored"
        bits = database.similarity is None
        near = "distance" if bits else "similarity"
        render.columns("skipped", "resembles", near, title="title")
        counts = fpdb.ingest(
            database,
            paths,
            reading,
            skip_duplicates=skip_duplicates,
            similarity=similarity,
            jobs=jobs,
            bad=bad,
            on_added=partial(_print_duplicate, bits=bits),
            on_bad=bad_records,
            on_progress=progress,
        )
        bad_records.settle(counts.read - counts.bad)


def _print_duplicate(added: fpdb.Added, *, bits: bool) -> None:
    """Print a document that wasn't added, and the stored one that it resembles.

    As JSON, also a document that was added after an incomplete search.
    """
    complete, as_json = added.matches.complete, render.now.json
    if added.status != "duplicate" and (complete or not as_json):
        return
    try:
        if as_json:
            matches = [near_dict(match) for match in added.matches]
            shown = {"key": added.key, "status": added.status, "complete": complete}
            render.record(shown | {"matches": matches})
        else:
            nearest = added.matches[0]
            title = partial(title_in, nearest.meta)
            render.row(added.key, nearest.key, likeness(nearest, bits=bits), title=title)
    except typer.Exit:
        # Nobody reads this output any more; the documents still are to be added.
        return
