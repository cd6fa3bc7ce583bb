"""The command that finds the stored documents near others."""

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import require
from fpdb.cli.options import (
    AnyRecipeOption,
    DatabaseArgument,
    JobsOption,
    JsonOption,
    MaxBytesOption,
    MinJaccardOption,
)
from fpdb.cli.outcome import BadRecords
from fpdb.cli.output import (
    Form,
    NoCsvGuardOption,
    Output,
    OutputFormatOption,
    OutputOption,
    key_type,
)
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
from fpdb.cli.values import jaccard_cells, near_dict
from fpdb.ingest import query_records
from fpdb.io import LARGEST_HTML, Record, read_text
from fpdb.models import LARGEST_TEXT

_COLUMNS = {
    "query": "string",
    "key": "string",
    "distance": "int32",
    "similarity": "double",
    "jaccard": "double",
    "complete": "bool",
}
_SHOWN = 100
_NUMBERS = {
    Base.HEX: (16, re.compile(r"(0[xX])?[0-9a-fA-F]{1,64}")),
    Base.DECIMAL: (10, re.compile(r"[0-9]{1,64}")),
}


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
    reading = fpdb.Reading(
        format=form,
        key_field=key,
        text_field=text or (),
        fingerprint_field=fingerprint,
        base=base.value,
        header=header,
        keyed=False,
        html=markup.value,
        html_text=html_text.value,
        max_html=max_html,
        max_bytes=max_bytes,
    )
    given = [*_texts(texts or []), *_fingerprints(fingerprints or [], base)]
    bad = BadRecords()
    with databases.open_readonly(path, recipe) as database:
        shown = _Answers(target)
        with target.opened(_COLUMNS | {"key": key_type(database.keys)}):
            for records in (iter(given), _files(whole, max_bytes)):
                for answer in query_records(
                    database,
                    records,
                    k=k,
                    limit=limit,
                    min_jaccard=min_jaccard,
                    max_bytes=max_bytes,
                ):
                    shown.show(answer)
            asked = fpdb.query_files(
                database,
                files or [],
                reading,
                k=k,
                limit=limit,
                min_jaccard=min_jaccard,
                jobs=jobs,
                strict=strict,
                on_bad=bad,
            )
            with closing(asked) as answers:  # which ends its workers
                for answer in answers:
                    shown.show(answer)
        shown.summarise(database, bad.count, rate=bool(files))
    if exit_code and shown.matched:
        raise typer.Exit(1)


def _texts(texts: list[str]) -> Iterator[Record]:
    for number, text in enumerate(texts, 1):
        yield Record("", "text" if number == 1 else f"text:{number}", text)


def _fingerprints(written: list[str], base: Base) -> Iterator[Record]:
    radix, pattern = _NUMBERS[base]
    for digits in written:
        if not pattern.fullmatch(digits):
            raise typer.BadParameter(f"{digits!r} is no fingerprint in {base} digits")
        yield Record("", digits, None, int(digits, radix))


def _files(paths: Iterable[str] | None, max_bytes: int) -> Iterator[Record]:
    for path in paths or ():
        found = read_text(path, max_bytes)
        yield Record("", path, found.text, replaced=found.replaced)


class _Answers:
    """Prints answers, and counts what is to be noted about all of them."""

    def __init__(self, target: Output) -> None:
        self.matched = 0
        self._target = target
        self._asked = self._short = self._cut = self._replaced = 0
        self._started = time.monotonic()

    def show(self, answer: fpdb.Asked) -> None:
        """Print the matches of a question."""
        found = answer.matches
        self._asked += 1
        self._short += answer.short
        self._replaced += answer.invalid_utf8
        self.matched += len(found)
        if self._target.form is Form.JSONL:
            matches = list(map(near_dict, found))
            render.record({"query": answer.name, "complete": found.complete, "matches": matches})
        elif self._target.cells:
            for match in found:
                near = (match.key, match.distance, match.similarity, match.jaccard)
                self._target.add(str(answer.name), *near, found.complete)
        else:
            for match in found:
                shown = (answer.name, match.key, match.distance, f"{match.similarity:.4f}")
                render.row(*shown, *jaccard_cells(match))
        if not found.complete:
            self._cut += 1
            if self._cut <= _SHOWN:
                render.note(f"{answer.name}: incomplete, because too many documents are that near")

    def summarise(self, database: fpdb.Database, bad: int, *, rate: bool) -> None:
        """Note what holds for all answers, and if wanted how fast they came."""
        if rate:
            seconds = time.monotonic() - self._started
            render.note(
                f"asked {self._asked:,}, matches {self.matched:,}; "
                f"{seconds:.2f} s, {self._asked / seconds:,.0f} questions/s"
            )
        if self._cut > _SHOWN:
            render.note(f"incomplete answers: {self._cut}")
        if self._short:
            minimum = database.recipe.grams.minimum
            render.note(
                f"short texts: {self._short} (fewer than {minimum} distinct features: "
                "they find equal texts only)"
            )
        if self._replaced:
            render.note(f"texts with bytes that are no UTF-8, replaced by U+FFFD: {self._replaced}")
        if bad:
            render.note(f"bad records: {bad}")
