"""The command that fingerprints texts."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import (
    BitsOption,
    Format,
    FormatOption,
    JobsOption,
    JsonOption,
    MaxBytesOption,
    RecipeOption,
    choose_recipe,
    written,
)
from fpdb.io import Text, is_table_file, read_lines, read_rows, read_text
from fpdb.models import LARGEST_TEXT
from fpdb.processes import Workers

_LABEL = 60
_BATCH = 256


def fingerprint(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to fingerprint.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("--file", "-f", help="A file to fingerprint, - for standard input."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of the files is a text of its own.")
    ] = False,
    recipe: RecipeOption = "web",
    bits: BitsOption = None,
    form: FormatOption = Format.HEX,
    jobs: JobsOption = 1,
    as_json: JsonOption = False,
    max_bytes: MaxBytesOption = LARGEST_TEXT,
) -> None:
    """Fingerprint texts, files, or the lines of files.

    Without texts and files, standard input is read. Of a file of Parquet or Arrow, each row is a
    text, in the column text, content or body. Each output line holds the fingerprint, a tab
    and where the text came from; the fingerprint of a text with too few features is the word
    short.

    \b
    Example:
      fpdb fingerprint "A text that is long enough to have a fingerprint of its own"
      fpdb fingerprint --lines --file titles.txt --recipe char-4
    """
    chosen = choose_recipe(recipe, bits, max_bytes)
    sources = _sources(texts or [], files or [], lines, max_bytes)
    short = replaced = 0
    blocks = iter(lambda: list(islice(sources, _BATCH)), [])
    for block, batch in Workers(partial(_batch, chosen), jobs).map(blocks):
        for index, text in enumerate(block):
            is_short = bool(batch.short[index])
            value = written(batch.fingerprints[index], chosen.bits, form)
            short += is_short
            replaced += text.replaced
            if as_json:
                number = int(value) if form is Format.DECIMAL else value
                render.record(
                    {
                        "source": text.source,
                        "fingerprint": None if is_short else number,
                        "features": int(batch.features[index]),
                        "short": is_short,
                    }
                )
            else:
                render.row("short" if is_short else value, text.source)
    if short:
        render.note(f"short texts: {short} (fewer than {chosen.grams.minimum} distinct features)")
    if replaced:
        render.note(f"texts with bytes that are no UTF-8, replaced by U+FFFD: {replaced}")


def _sources(
    texts: Iterable[str], files: list[str], by_line: bool, max_bytes: int
) -> Iterator[Text]:
    for text in texts:
        yield Text(text if len(text) <= _LABEL else text[: _LABEL - 1] + "…", text)
    if not texts and not files:
        files = ["-"]
    for path in files:
        if is_table_file(path):
            yield from read_rows(path, max_bytes)
        elif by_line:
            yield from read_lines(path, max_bytes)
        else:
            yield read_text(path, max_bytes)


def _batch(recipe: fpdb.Recipe, texts: Sequence[Text]) -> fpdb.Batch:
    return recipe.batch(text.text for text in texts)
