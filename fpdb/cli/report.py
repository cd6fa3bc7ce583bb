"""Write a page that shows the duplicates of a corpus."""

from pathlib import Path
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.ingest import ProgressLine
from fpdb.cli.inputs import BadRecords, StrictOption, choose_reading
from fpdb.cli.options import (
    AnyRecipeOption,
    JobsOption,
    QuietOption,
    SimilarityOption,
    bundled,
    choose_recipe,
    require,
    require_name,
    require_page,
)


@bundled(
    "key_field text_field input_format html max_bytes",
    reading=choose_reading,
)
def report(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|DIR", help="The documents, which are read twice.")
    ],
    reading: fpdb.Reading,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE.html", callback=require_page, help="The page to write."
        ),
    ] = Path("report.html"),
    db: Annotated[
        Path | None,
        typer.Option(
            "--db",
            metavar="DB",
            callback=require_name,
            help="Show the groups of a database; texts are found by their keys.",
        ),
    ] = None,
    similarity: SimilarityOption = None,
    top: Annotated[
        int, typer.Option("--top", metavar="N", min=1, help="The most groups to show.")
    ] = 500,
    date_field: Annotated[
        str | None,
        typer.Option("--date-field", metavar="F", help="Field of a date: when copies appeared."),
    ] = None,
    host_field: Annotated[
        str | None,
        typer.Option("--host-field", metavar="F", help="Field of a host or URL: who copied whom."),
    ] = None,
    recipe: AnyRecipeOption = None,
    jobs: JobsOption = 1,
    strict: StrictOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show duplicates on a page, side by side.

    Example:
      fpdb report news.jsonl -o report.html
      fpdb report news.csv --text-field body --date-field published --host-field url
      fpdb report pages/ --db crawl.fpdb -o report.html

    The page is one file of at most 5 MB: groups with the least similar texts first, what differs
    in each pair marked. Verdicts given there are saved as pairs for fpdb eval.
    """
    require(db is None or recipe is None, "--db has a recipe; --recipe is for texts without one")
    bad = BadRecords()
    progress = ProgressLine(quiet=quiet)
    database = None if db is None else fpdb.open(db, readonly=True)
    found = fpdb.report(
        files,
        output,
        reading,
        database=database,
        recipe="web" if recipe is None else choose_recipe(recipe),
        similarity=similarity,
        top=top,
        date_field=date_field,
        host_field=host_field,
        jobs=jobs,
        strict=strict,
        on_bad=bad,
        on_progress=progress,
    )
    if database:
        database.close()
    if not quiet:
        _summarise(found, bad.count, output)
    bad.settle(found.documents)


def _summarise(found: fpdb.Reported, bad: int, output: Path) -> None:
    """Print what is on the page."""
    names = ("documents", "groups", "identical", "edited")
    render.note(render.listed({name: getattr(found, name) for name in names}))
    if found.missing:
        render.note(f"texts that weren't found in the sources, or have changed: {found.missing:,}")
    if bad:
        render.note(f"bad records: {bad:,}")
    shown = render.plural(found.shown, "group")
    render.note(f"{output}: {shown}, {render.size(found.size)}")
