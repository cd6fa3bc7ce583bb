"""Copy files without their near-duplicates."""

import signal
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.create import DEFAULT_RECIPE
from fpdb.cli.inputs import BadRecords, MarkupWarning, choose_reading
from fpdb.cli.options import (
    AnyRecipeOption,
    JobsOption,
    JsonOption,
    NewKOption,
    QuietOption,
    bundled,
    choose_recipe,
    require,
    require_name,
    require_page,
)

InputsArgument = Annotated[
    list[str], typer.Argument(metavar="FILE|-", help="What to read; - is standard input.")
]


@bundled("key_field text_field input_format html max_bytes", reading=choose_reading)
def dedupe(
    files: InputsArgument,
    reading: fpdb.Reading,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="OUT", callback=require_name, help="One file for what stays."
        ),
    ] = None,
    output_dir: Annotated[
        str | None,
        typer.Option("--output-dir", metavar="DIR", help="A folder for a file for each input."),
    ] = None,
    removed: Annotated[
        str | None,
        typer.Option("--removed", metavar="FILE", help="JSON lines about what was left out."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            callback=require_page,
            help="Then show the duplicates of the inputs on a page.",
        ),
    ] = None,
    similarity: Annotated[
        float | None,
        typer.Option(
            "--similarity", metavar="J", min=0.0, max=1.0, help="Least similarity; default 0.8."
        ),
    ] = None,
    k: NewKOption = None,
    recipe: AnyRecipeOption = None,
    keep: Annotated[
        str, typer.Option("--keep", metavar="WHICH", help="first, longest or newest:FIELD.")
    ] = "first",
    database: Annotated[
        Path | None,
        typer.Option("--db", metavar="DB", help="Compare with earlier files, and remember these."),
    ] = None,
    bad: Annotated[
        Literal["keep", "drop", "fail"],
        typer.Option("--bad", help="What to do with records that can't be compared."),
    ] = "keep",
    jobs: JobsOption = 1,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Copy files without near-duplicates.

    Example:
      fpdb dedupe pages.jsonl.gz -o clean.jsonl.gz
      fpdb dedupe part-*.parquet -o clean.parquet --removed removed.jsonl --jobs 0
      fpdb dedupe may.csv -o may-new.csv --text-field body --db corpus.fpdb
      fpdb dedupe a.jsonl b.jsonl --output-dir clean/ --keep newest:date

    Copies JSON lines, CSV, TSV, Parquet and Arrow; what stays is unchanged, in its order.
    With --db, a run that was interrupted goes on where it stopped.
    """
    require((output is None) != (output_dir is None), "give --output or --output-dir")
    require("-" not in files or not sys.stdin.isatty(), "standard input is a terminal")
    require(report is None or k is None, "--report shows what is similar, and takes no -k")
    require(report is None or "-" not in files, "--report reads files again, and no standard input")
    require(report is None or report.parent.is_dir(), f"there is no folder for {report}")
    outcome = "nothing was written"
    if database:
        outcome += "; run the same command again to go on"
    render.leave_if_interrupted(outcome)
    signal.signal(signal.SIGTERM, _end)
    chosen = None if recipe is None else choose_recipe(recipe)
    bad_records = BadRecords()
    counts = fpdb.dedupe(
        files,
        output,
        reading,
        output_dir=output_dir,
        database=database,
        similarity=similarity,
        k=k,
        recipe=chosen,
        keep=keep,
        bad=bad,
        removed=removed,
        jobs=jobs,
        on_bad=bad_records,
        on_progress=_StageLine(quiet=quiet),
    )
    if as_json:
        render.record(_described(counts))
    elif not quiet:
        render.note(_summary(counts))
    if report:
        render.leave_if_interrupted("what stays is written, but no report")
        field = keep.partition(":")[2] or None
        shown = fpdb.report(
            files,
            report,
            reading,
            recipe=chosen or DEFAULT_RECIPE,
            similarity=similarity,
            date_field=field,
            kept=counts.marks,
            jobs=jobs,
        )
        if not quiet:
            groups = render.plural(shown.groups, "group")
            render.note(f"{report}: {shown.shown:,} of {groups}")
    bad_records.settle(counts.read - counts.bad)


def _end(*_: object) -> None:
    """End as by Ctrl-C, so that what is temporary is removed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice
    raise KeyboardInterrupt


def _described(counts: fpdb.Deduplicated) -> dict[str, Any]:
    names = ("read", "kept", "removed", "short", "bad", "incomplete")
    return {name: getattr(counts, name) for name in names} | {"seconds": round(counts.seconds, 3)}


def _summary(counts: fpdb.Deduplicated) -> str:
    names = ("read", "kept", "removed", "short", "bad", "incomplete")
    shown = render.listed({name: getattr(counts, name) for name in names}, "removed")
    rate = counts.read / counts.seconds if counts.seconds else 0
    return f"{shown}; {counts.seconds:.2f} s, {rate:,.0f} records/s"


class _StageLine:
    """Shows on a terminal how far the run is, and warns once if most texts have tags."""

    def __init__(self, *, quiet: bool) -> None:
        self._progress = render.StepLine()
        self._warn = MarkupWarning(quiet=quiet)

    def __call__(self, counts: fpdb.Deduplicated) -> None:
        """Show the stage, its share and the time that is left."""
        self._warn(counts.markup, counts.read)
        removed = f", {counts.removed:,} removed"
        self._progress(counts.stage, counts.read, "records", counts.done, removed)
