"""The command that finds the stored documents near others."""

from typing import Annotated

import typer

from fpdb.cli import databases
from fpdb.cli.databases import require
from fpdb.cli.flow import Flow
from fpdb.cli.options import (
    AnyRecipeOption,
    DatabaseArgument,
    JobsOption,
    JsonOption,
    MaxBytesOption,
    MinJaccardOption,
)
from fpdb.cli.output import (
    Form,
    NoCsvGuardOption,
    Output,
    OutputFormatOption,
    OutputOption,
    key_type,
)
from fpdb.cli.questions import BLOCK, COLUMNS, Asker, from_files, from_numbers, from_texts
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
    Rejects,
    StrictOption,
    make_fields,
    make_markup,
    open_parts,
)
from fpdb.io import LARGEST_HTML
from fpdb.models import LARGEST_TEXT
from fpdb.preparing import Question, Refused


def query(
    path: DatabaseArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|DIR|-", help="Records to ask for; - is standard input."),
    ] = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", "-t", metavar="TEXT", help="A text to ask for.")
    ] = None,
    whole: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", metavar="FILE|-", help="A file that is one text."),
    ] = None,
    fingerprints: Annotated[
        list[str] | None,
        typer.Option("--fingerprint", metavar="HEX", help="A fingerprint to ask for."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of the records' files is a text.")
    ] = False,
    form: RecordFormatOption = None,
    markup: MarkupOption = MarkupKind.AUTO,
    html_text: HtmlTextOption = HtmlPart.MAIN,
    max_html: MaxHtmlOption = LARGEST_HTML,
    key: Annotated[
        str | None, typer.Option("--key-field", metavar="F", help="The field of a record's name.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text-field", metavar="F", help="The field of the text; several are joined."
        ),
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option("--fingerprint-field", metavar="F", help="The field of a fingerprint."),
    ] = None,
    base: BaseOption = Base.HEX,
    header: HeaderOption = None,
    strict: StrictOption = False,
    k: Annotated[
        int | None,
        typer.Option("--k", "-k", min=0, help="The largest distance; default the database's k."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="So many matches at most for each.")
    ] = None,
    min_jaccard: MinJaccardOption = None,
    recipe: AnyRecipeOption = None,
    jobs: JobsOption = 1,
    output: OutputOption = "-",
    output_form: OutputFormatOption = None,
    as_json: JsonOption = False,
    no_csv_guard: NoCsvGuardOption = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if anything matched.")
    ] = False,
    max_bytes: MaxBytesOption = LARGEST_TEXT,
) -> None:
    """Find the stored documents within k of texts, files, records or fingerprints.

    Each line holds what was asked for (a record's key or place, text, a file's path, a
    fingerprint), the key of a match, the distance and the similarity; near matches come first.
    With --json, every question gives one object, also when nothing matched. Standard input is
    read if nothing else is given. A text with too few features finds equal texts only.

    With --min-jaccard, the search looks wider, unless -k says how wide, and keeps what has that
    Jaccard similarity by its sketch. A further column holds it, and the most similar come first.

    CSV and Parquet have named columns, and one more that says whether an answer is complete.

    With --jobs, further processes read the records and make their fingerprints; the answers and
    their order are the same.

    --recipe is needed only for a database whose recipe has a secret.

    \b
    Example:
      fpdb query crawl.fpdb --text "A text that is long enough to have a fingerprint"
      fpdb query crawl.fpdb --lines titles.txt -k 5 --limit 1
      fpdb query crawl.fpdb pages.parquet --output matches.parquet
      fpdb query news.fpdb ready.tsv --key-field url --fingerprint-field fingerprint
    """
    require(not lines or form in (None, RecordFormat.LINES), "--lines is a format of its own")
    if lines:
        form = RecordFormat.LINES
    if not (files or texts or whole or fingerprints):
        files = ["-"]
    target = Output(output, output_form, Form.TSV, as_json=as_json, guard=not no_csv_guard)
    rejects = Rejects(strict=strict)
    questions: list[Question] = [*from_texts(texts or []), *from_numbers(fingerprints or [], base)]
    fields = make_fields(key, text, None, fingerprint, base, header, keyed=False)
    flow: Flow[list[Question | Refused]] = Flow(jobs)
    parts = open_parts(
        files or [],
        form,
        fields,
        max_bytes,
        markup=make_markup(markup, html_text, max_html),
        size=BLOCK,
        idle=flow.idle,
    )
    with databases.open_readonly(path, recipe) as database:
        databases.widen(database, max_bytes)
        asker = Asker(database, k, limit, rejects, min_jaccard=min_jaccard, target=target)
        with target.opened(COLUMNS | {"key": key_type(database.keys)}):
            asker.ask(questions)
            asker.ask(from_files(whole or [], max_bytes))
            asker.ask_parts(parts, flow)
        asker.summarise(rate=bool(files))
    if exit_code and asker.matched:
        raise typer.Exit(1)
