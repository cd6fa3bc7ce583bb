"""Find the stored documents near others."""

import re
import time
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.inputs import BadRecords, FilesArgument, StrictOption, choose_reading
from fpdb.cli.options import (
    AnyRecipeOption,
    Base,
    DatabaseArgument,
    JobsOption,
    KOption,
    QuietOption,
    SimilarityOption,
    bundled,
    open_readonly,
    require,
)
from fpdb.cli.output import Output, OutputFormat, jaccard_cells, key_column, near_dict
from fpdb.ingest import Asked

_COLUMNS = {
    "query": "string",
    "key": "string",
    "distance": "int32",
    "similarity": "double",
    "jaccard": "double",
    "complete": "bool",
}
_SHOWN = 100
_DIGITS = {
    Base.HEX: (16, re.compile(r"(0[xX])?[0-9a-fA-F]{1,64}")),
    Base.DECIMAL: (10, re.compile(r"[0-9]{1,64}")),
}


@bundled(
    "key_field text_field fingerprint_field base input_format html html_text max_html "
    "max_bytes output output_format as_json no_csv_guard",
    reading=choose_reading,
    target=Output,
)
def query(
    path: DatabaseArgument,
    reading: fpdb.Reading,
    target: Output,
    files: FilesArgument = None,
    texts: Annotated[
        list[str] | None, typer.Option("--text", "-t", metavar="TEXT", help="A text to look for.")
    ] = None,
    fingerprints: Annotated[
        list[str] | None,
        typer.Option("--fingerprint", metavar="DIGITS", help="A fingerprint to look for."),
    ] = None,
    similarity: SimilarityOption = None,
    k: KOption = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="At most N matches of each."),
    ] = None,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if anything matched.")
    ] = False,
    recipe: AnyRecipeOption = None,
    jobs: JobsOption = 1,
    strict: StrictOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find stored documents like these.

    Example:
      fpdb query crawl.fpdb page.txt
      fpdb query crawl.fpdb --text "A text that is long enough to have a fingerprint"
      fpdb query crawl.fpdb titles.txt --format lines -k 5 --limit 1
      fpdb query crawl.fpdb pages.parquet --output matches.parquet

    Each line holds a query, the key of a match, their distance and the share of equal bits.
    """
    require(similarity is None or not fingerprints, "--similarity compares texts")
    given = bool(texts or fingerprints)
    bad = BadRecords()
    answers = _Answers(target)
    with open_readonly(path, recipe) as database:
        numbers = [_parse_fingerprint(digits, Base(reading.base)) for digits in fingerprints or ()]
        found = fpdb.query_files(
            database,
            files or ([] if given else ["-"]),
            reading,
            k=k,
            limit=limit,
            min_jaccard=similarity,
            jobs=jobs,
            strict=strict,
            on_bad=bad,
        )
        with target.opened(_COLUMNS | {"key": key_column(database)}):
            for number, text in enumerate(texts or (), 1):
                matches = database.query(text, k=k, limit=limit, min_jaccard=similarity)
                short = bool(database.recipe.batch([text]).short[0])
                name = "text" if number == 1 else f"text:{number}"
                answers.show(Asked(name, matches, short=short))
            for digits, value in zip(fingerprints or (), numbers, strict=True):
                matches = database.query_fingerprint(value, k=k, limit=limit)
                answers.show(Asked(digits, matches))
            for answer in found:
                answers.show(answer)
        answers.summarise(database, bad.count, rate=not quiet and (bool(files) or not given))
    if exit_code and answers.matched:
        raise typer.Exit(1)


def _parse_fingerprint(digits: str, base: Base) -> int:
    radix, pattern = _DIGITS[base]
    if not pattern.fullmatch(digits):
        raise typer.BadParameter(f"found {digits!r}, expected a fingerprint in {base} digits")
    return int(digits, radix)


class _Answers:
    """Prints answers, and counts what is to be noted about all of them."""

    def __init__(self, target: Output) -> None:
        self.matched = 0
        self._target = target
        self._asked = self._short = self._cut = self._replaced = 0
        self._started = time.monotonic()

    def show(self, answer: Asked) -> None:
        """Print the matches of a query."""
        found = answer.matches
        self._asked += 1
        self._short += answer.short
        self._replaced += answer.invalid_utf8
        self.matched += len(found)
        if self._target.form is OutputFormat.JSONL:
            matches = [near_dict(match) for match in found]
            render.record({"query": answer.name, "complete": found.complete, "matches": matches})
        else:
            for match in found:
                near = (match.key, match.distance, match.similarity, match.jaccard)
                shown = (match.key, match.distance, f"{match.similarity:.4f}")
                self._target.write(
                    {},
                    (str(answer.name), *near, found.complete),
                    (answer.name, *shown, *jaccard_cells(match)),
                )
        if not found.complete:
            self._cut += 1
            if self._cut <= _SHOWN:
                render.note(f"{answer.name}: incomplete, because too many documents are that near")

    def summarise(self, database: fpdb.Database, bad: int, *, rate: bool) -> None:
        """Print what holds for all answers, and if wanted how fast they came."""
        if rate:
            seconds = time.monotonic() - self._started
            render.note(
                f"queries {self._asked:,}, matches {self.matched:,}; "
                f"{seconds:.2f} s, {self._asked / seconds:,.0f} queries/s"
            )
        if self._cut > _SHOWN:
            render.note(f"incomplete answers: {self._cut}")
        if self._short:
            minimum = database.recipe.grams.minimum
            render.note(
                f"short texts: {self._short} (fewer than {minimum} distinct features: "
                "they match equal texts only)"
            )
        if self._replaced:
            render.note(f"texts with invalid UTF-8, replaced by U+FFFD: {self._replaced}")
        if bad:
            render.note(f"bad records: {bad}")
