"""The command that adds documents to a database."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, portable, render
from fpdb.cli.databases import require
from fpdb.cli.follow import follow_source
from fpdb.cli.options import (
    AnyRecipeOption,
    BitsOption,
    CapacityOption,
    DatabaseArgument,
    JobsOption,
    JsonOption,
    KeysOption,
    MaxBytesOption,
    MemoryOption,
    MinJaccardOption,
    SketchOption,
    TablesOption,
)
from fpdb.cli.outcome import BadRecords, Progress, duplicates_printer
from fpdb.cli.sources import (
    Base,
    BaseOption,
    HeaderOption,
    HtmlPart,
    HtmlTextOption,
    MarkupKind,
    MarkupOption,
    MaxHtmlOption,
    RecordFormat,
    RecordFormatOption,
    StrictOption,
)
from fpdb.io import LARGEST_HTML, is_array
from fpdb.io.follow import require_followable
from fpdb.models import LARGEST_TEXT
from fpdb.storage.open_checks import is_vacant
from fpdb.tables.bulk_load import MEMORY


def ingest(
    context: typer.Context,
    path: DatabaseArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE|DIR|-", help="What to read; - or nothing means standard input."
        ),
    ] = None,
    form: RecordFormatOption = None,
    markup: MarkupOption = MarkupKind.AUTO,
    html_text: HtmlTextOption = HtmlPart.MAIN,
    max_html: MaxHtmlOption = LARGEST_HTML,
    key: Annotated[
        str | None, typer.Option("--key", metavar="F", help="The field or column of the key.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", metavar="F", help="The field of the text; several are joined."),
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="F", help="A field to keep as metadata; '*': all others."),
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option("--fingerprint", metavar="F", help="The field of a ready fingerprint."),
    ] = None,
    base: BaseOption = Base.HEX,
    fingerprints: Annotated[
        str | None,
        typer.Option(
            "--fingerprints",
            metavar="FILE|-",
            help="Load ready fingerprints in bulk: an array that numpy saved, or records.",
        ),
    ] = None,
    fingerprint_keys: Annotated[
        str | None,
        typer.Option(
            "--fingerprint-keys",
            metavar="FILE",
            help="The keys of such an array: another array, or a text file with a key a line.",
        ),
    ] = None,
    first_key: Annotated[
        int | None,
        typer.Option(
            "--first-key",
            min=0,
            max=2**64 - 1,
            metavar="N",
            help="Number the rows of such an array from N on.",
        ),
    ] = None,
    memory: MemoryOption = MEMORY,
    header: HeaderOption = None,
    skip_duplicates: Annotated[
        bool,
        typer.Option(
            "--skip-duplicates", help="Don't add what resembles a stored document; print it."
        ),
    ] = False,
    min_jaccard: MinJaccardOption = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Keep reading standard input, or the JSON lines that come into a directory, and "
            "answer each line with a JSON object once it is stored.",
        ),
    ] = False,
    strict: StrictOption = False,
    recipe: AnyRecipeOption = None,
    bits: BitsOption = None,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", min=0, help="The distance that counts as a match; default 3."),
    ] = None,
    capacity: CapacityOption = None,
    keys: KeysOption = None,
    tables: TablesOption = None,
    sketch: SketchOption = None,
    jobs: JobsOption = 1,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only what goes wrong.")] = False,
    max_bytes: MaxBytesOption = LARGEST_TEXT,
) -> None:
    """Add the documents of files, directories or standard input to a database.

    JSON lines, TSV and CSV hold a document a line; every file of a directory is one, and so is
    every line with --format lines. Suffixes tell formats; .gz and .zst are read through. Columns
    go by their names, or by their numbers from 1.

    Of HTML files the main content is taken, and so it is of WARC and ARC files, whose pages are
    stored by their URI, with date, status, digest, type and title. A page of an archive that is
    stored already isn't read again. HTML needs the extra `web`.

    If there is no database yet, it is created: with --recipe, --bits, -k, --capacity, --keys
    and --tables, or the defaults. If there is one, what is given and differs is an error; only
    the capacity may.

    A document whose key is stored already replaces the stored one, unless nothing has changed. So
    an ingest that was interrupted can be run again. With --skip-duplicates, each line printed
    holds the key of a document that wasn't added, the key of the stored one nearest to it, and
    their distance. Bad records are said with their file and line, counted and skipped.

    With --jobs, further processes do what precedes the storing. The results are the same, and in
    the same order, whatever their number.

    With --fingerprints, a database that isn't there yet appears when everything is in it. The keys
    of an array's rows are their numbers, from 0 or --first-key on, unless --fingerprint-keys names
    them. Records need a key and a fingerprint, in fields of these names unless --key and
    --fingerprint say otherwise.

    The portable form, which `fpdb export` writes, is recognised by its first line, or by the suffix
    .fpdb.jsonl. A database that isn't there is made like the one that was exported, and appears
    when everything is in it; one that is there must have the same recipe. Times of adding are
    kept. Only --capacity goes with it, and a damaged line is an error.

    With --follow, JSON lines are taken as they come, from standard input or from the files that
    grow in a directory, and each is answered with one line that says what became of it: the
    documentation has the protocol. It ends with standard input, with SIGTERM or with Ctrl-C.

    \b
    Example:
      fpdb ingest crawl.fpdb pages.jsonl.gz --skip-duplicates
      fpdb ingest news.fpdb news.tsv --key url --text title --text content --meta '*'
      fpdb ingest crawl.fpdb part-*.jsonl.zst --jobs 0
      fpdb ingest crawl.fpdb *.warc.gz --jobs 0
      fpdb ingest news.fpdb ready.tsv --key 1 --fingerprint 4 --fingerprint-base decimal
      fpdb ingest crawl.fpdb --follow crawled/ --skip-duplicates
      fpdb ingest copy.fpdb crawl.fpdb.jsonl.gz
    """
    require(skip_duplicates or min_jaccard is None, "--min-jaccard needs --skip-duplicates")
    wanted = databases.Wanted(recipe, bits, k, capacity, keys, tables, sketch)
    require(skip_duplicates or follow or not as_json, "--json needs --skip-duplicates")
    reading = fpdb.Reading(
        format=form,
        key_field=key,
        text_field=text or (),
        meta_field=meta or (),
        fingerprint_field=fingerprint,
        base=base.value,
        header=header,
        html=markup.value,
        html_text=html_text.value,
        max_html=max_html,
        max_bytes=max_bytes,
    )
    numbered = fingerprint_keys is not None or first_key is not None
    if fingerprints is not None:
        alone = not (files or text or meta or skip_duplicates or follow)
        require(alone, "--fingerprints FILE goes alone")
        require(jobs == 1, "--fingerprints leaves nothing to do for --jobs")
        require(first_key is None or fingerprint_keys is None, "give the keys in one way only")
        if is_array(fingerprints):
            described = key or fingerprint or form or header is not None or strict
            require(not described, "an array has neither fields nor bad records")
        else:
            require(not numbered, "--fingerprint-keys and --first-key go with an array")
            require(not os.path.isdir(fingerprints), "--fingerprints takes a file")
        new = wanted.given(path)
        created = is_vacant(path)
        progress = Progress(quiet=quiet, unit="fingerprints")
        with _interruptible("what was there is whole; run it again for the rest"):
            fpdb.load(
                path,
                fingerprints,
                reading,
                key_file=fingerprint_keys,
                first_key=first_key,
                memory=memory,
                strict=strict,
                on_bad=BadRecords(),
                on_progress=progress,
                **new,
            )
        if created and not quiet:
            with databases.open_readonly(path) as built:
                databases.note_created(built)
        progress.summarise()
        return
    require(not numbered, "--fingerprint-keys and --first-key go with --fingerprints")
    require(memory == MEMORY, "--memory goes with --fingerprints")
    require(files or not sys.stdin.isatty(), "name a file, or - for standard input")
    paths = files or ["-"]
    if follow:
        _require_followable(paths, form, jobs, strict)
        require_followable(paths[0])
        with (
            _interruptible("what was answered is stored; send the rest again"),
            databases.open_or_create(path, wanted, quiet=quiet) as database,
        ):
            follow_source(
                database,
                paths[0],
                reading,
                every=form is not None,
                skip_duplicates=skip_duplicates,
                min_jaccard=min_jaccard,
                quiet=quiet,
            )
        return
    if portable.took(context, path, paths, capacity, quiet=quiet):
        return
    reading.check(*paths)
    progress = Progress(quiet=quiet)
    with (
        databases.open_or_create(path, wanted, quiet=quiet) as database,
        contextlib.ExitStack() as ending,
    ):
        ending.callback(progress.summarise)
        with _interruptible("what was counted as added is stored; run it again for the rest"):
            fpdb.ingest(
                database,
                paths,
                reading,
                skip_duplicates=skip_duplicates,
                min_jaccard=min_jaccard,
                jobs=jobs,
                strict=strict,
                on_added=duplicates_printer(as_json=as_json),
                on_bad=BadRecords(),
                on_progress=progress,
            )


def _require_followable(
    paths: list[str], form: RecordFormat | None, jobs: int, strict: bool
) -> None:
    """Refuse what can't be followed, and what would mean nothing then."""
    require(len(paths) == 1, "--follow takes one directory, or - for standard input")
    require(form in (None, RecordFormat.JSONL), "--follow reads JSON lines")
    require(jobs == 1, "--follow answers line by line, and leaves nothing to do for --jobs")
    require(not strict, "--follow answers a bad record, and goes on")


@contextlib.contextmanager
def _interruptible(outcome: str) -> Iterator[None]:
    """Say what became of the database when the user stops it."""
    try:
        yield
    except KeyboardInterrupt:
        render.note(f"interrupted: {outcome}")
        raise typer.Exit(130) from None
