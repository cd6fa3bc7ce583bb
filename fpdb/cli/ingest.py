"""Bring documents into a database: from files, line by line from a crawler, or ready ones."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import typer

import fpdb
from fpdb.cli import end_by_sigterm, options, render
from fpdb.cli.inputs import (
    BadRecords,
    ProgressLine,
    about_meta,
    is_terminal,
    outcomes,
    require_record,
)
from fpdb.cli.maintain import open_or_create
from fpdb.cli.options import argument, option, require, takes
from fpdb.cli.output import likeness, near_dict, title_in
from fpdb.ingest import Answer
from fpdb.io.files import check_path
from fpdb.io.paths import files_of, path_names
from fpdb.io.streams import packed, suffix_of
from fpdb.scratch import require_output
from fpdb.storage.open_checks import is_vacant


@takes(
    f"{options.READ} meta_field fingerprint_field base",
    reading=fpdb.Reading,
    groups_out=option("--groups-out FILE", "Write the key, group and status of each."),
)
def ingest(
    path: Path,
    reading: fpdb.Reading,
    files: list[str] | None = None,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    recipe: fpdb.Recipe | None = None,
    jobs: int = 0,
    bad: Literal["drop", "fail"] = "drop",
    groups_out: str | None = None,
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
    for source in paths:
        check_path(source, reading)
    progress, bad_records = ProgressLine(), BadRecords()
    if is_vacant(path):  # a database would be in the way of another attempt
        require_record(paths, reading, bad_records)
    with open_or_create(path, recipe, similarity) as database, contextlib.ExitStack() as ending:
        ending.callback(progress.summarise, listed=skip_duplicates)
        render.now.left = "documents that were counted are stored"
        bits = database.similarity is None
        near = "distance" if bits else "similarity"
        render.columns("skipped", "resembles", near, titled=True)
        with _groups_written(database, groups_out, paths) as write:
            counts = fpdb.ingest(
                database,
                paths,
                reading,
                skip_duplicates=skip_duplicates,
                similarity=similarity,
                jobs=jobs,
                bad=bad,
                on_added=partial(_print_added, bits=bits, write=write),
                on_bad=bad_records,
                on_progress=progress,
            )
            if counts.read == counts.bad:
                bad_records.settle(0)  # an error, before the file takes the place of an older one
        bad_records.settle(counts.read - counts.bad)


@contextlib.contextmanager
def _groups_written(
    database: fpdb.Database, path: str | None, inputs: Sequence[str]
) -> Iterator[Callable[[fpdb.Added], object] | None]:
    """Yield what writes the group of an added document to a file, as a line of JSON or of TSV."""
    if path is None:
        yield None
        return
    require(path != "-", "--groups-out names a file")
    if not database.has_groups:
        raise fpdb.InputError(
            f"found a file for groups, but {database.path} keeps none",
            hint="create it with --groups, or compact it with --groups",
        )
    require_output(path, files_of(inputs))
    as_json = suffix_of(path) == ".jsonl"
    with render.opened(path) as raw, packed(raw, path) as file:

        def write(added: fpdb.Added) -> None:
            row = {"key": added.key, "group": added.group, "status": added.status}
            cells = "\t".join(render.safe(str(cell)) for cell in row.values())
            file.write(f"{render.as_json(row) if as_json else cells}\n".encode())

        yield write


def _print_added(
    added: fpdb.Added, *, bits: bool, write: Callable[[fpdb.Added], object] | None
) -> None:
    if write:
        write(added)
    _print_duplicate(added, bits=bits)


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


@takes("key_field text_field meta_field html max_bytes", reading=fpdb.Reading)
def follow(
    path: Path,
    reading: fpdb.Reading,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    recipe: fpdb.Recipe | None = None,
) -> None:
    """Answer a crawler through a pipe.

    Example:
      tail -n +1 -F crawled.jsonl | fpdb follow crawl.fpdb --skip-duplicates

    Reads JSON lines of standard input, and answers each with a JSON object once its
    document is stored. It ends with standard input, with SIGTERM or with Ctrl-C.
    """
    require(skip_duplicates or similarity is None, "--similarity needs --skip-duplicates")
    require(not is_terminal(), "standard input is a terminal, expected JSON lines through a pipe")
    counts = fpdb.Ingested()
    # Ending between any two statements is safe: a line without an answer is sent again.
    end_by_sigterm(typer.Exit)  # with 0, as a service should end
    with contextlib.ExitStack() as ending:
        ending.callback(lambda: render.summarise(None, outcomes(counts), about_meta(counts)))
        render.now.left = "answered documents are stored"
        for answer in fpdb.follow(
            ending.enter_context(open_or_create(path, recipe, similarity)),
            reading=reading,
            skip_duplicates=skip_duplicates,
            similarity=similarity,
        ):
            counts.tally(answer.status)
            counts.incomplete += not answer.matches.complete
            counts.lost_meta += answer.lost_meta
            render.record(_describe(answer))
            render.deliver()


def _describe(answer: Answer) -> dict[str, Any]:
    plain: dict[str, Any] = {"key": answer.key, "status": answer.status}
    if not answer.matches.complete:
        plain["complete"] = False
    if answer.group is not None:
        plain["group"] = answer.group
    if answer.error:
        plain["error"] = answer.error
    if answer.matches:
        nearest = answer.matches[0]
        plain |= {"duplicate_of": nearest.key, "distance": nearest.distance}
        if nearest.similarity is not None:
            plain["similarity"] = nearest.similarity
    return plain | {"source": answer.source}


@takes(
    "format key_field fingerprint_field base",
    reading=fpdb.Reading,
    sources=argument(
        "DB|FILE|-", "Databases, arrays, or one file; - is an export on standard input."
    ),
    k=options.NEW_K,
    fingerprint_field=option("--fingerprint-field F", "Field of a ready fingerprint."),
    format=option("--format FORMAT", "portable, as exports are; jsonl, tsv, csv or parquet."),
    memory=option(
        "--memory N",
        "Memory to sort in, beside 500 MB; default 1G.",
        rare=True,
        parser=options.parse_bytes,
    ),
)
def load(
    path: Path,
    sources: list[str],
    reading: fpdb.Reading,
    recipe: fpdb.Recipe | None = None,
    k: int | None = None,
    key_type: options.KeyType | None = None,
    bad: Literal["drop", "fail"] = "drop",
    memory: int | None = None,
) -> None:
    """Load fingerprints, exports and databases.

    Example:
      fpdb load all.fpdb north.fpdb south.fpdb
      fpdb load crawl.fpdb prints-1.npy prints-2.npy
      fpdb load crawl.fpdb prints.tsv --key-field 1 --fingerprint-field 4 --base decimal

    A new database appears once everything is in it. If documents of databases have
    the same key, the newest stays. Without --recipe, fingerprints count as made by
    another program, and texts are refused.
    """
    settings: dict[str, Any] = {"recipe": recipe, "k": k, "keys": key_type, "memory": memory}
    progress, bad_records = ProgressLine("fingerprint"), BadRecords()
    render.now.left = "a new database isn't there, an old one is intact; run it again"
    counts = fpdb.load(
        path,
        sources,
        reading,
        bad=bad,
        on_bad=bad_records,
        on_progress=progress,
        **{name: value for name, value in settings.items() if value is not None},
    )
    progress.summarise()
    bad_records.settle(counts.read - counts.bad)
