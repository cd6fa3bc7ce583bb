"""Add the documents that a crawler writes line by line, and answer each line."""

import contextlib
from pathlib import Path
from typing import Any

import typer

import fpdb
from fpdb.cli import end_by_sigterm, render
from fpdb.cli.create import open_or_create
from fpdb.cli.inputs import is_terminal, outcomes
from fpdb.cli.options import argument, require, takes
from fpdb.ingest import Answer
from fpdb.io.follow import require_followable


@takes(
    "key_field text_field meta_field html max_bytes",
    reading=fpdb.Reading,
    source=argument("DIR|-", "A directory of files that grow, or -."),
)
def follow(
    path: Path,
    source: str,
    reading: fpdb.Reading,
    skip_duplicates: bool = False,
    similarity: float | None = None,
    recipe: fpdb.Recipe | None = None,
) -> None:
    """Answer a crawler through a pipe or directory.

    Example:
      fpdb follow crawl.fpdb crawled/ --skip-duplicates

    Reads JSON lines, and answers each with a JSON object once its document is
    stored. It ends with standard input, with SIGTERM or with Ctrl-C.
    """
    require(skip_duplicates or similarity is None, "--similarity needs --skip-duplicates")
    require(source != "-" or not is_terminal(), "standard input is a terminal; name a DIR")
    require_followable(source)
    counts = fpdb.Ingested()
    # Ending between any two statements is safe: a line without an answer is sent again.
    end_by_sigterm(typer.Exit)  # with 0, as a service should end
    with contextlib.ExitStack() as ending:
        ending.callback(lambda: render.summarise(None, outcomes(counts)))
        render.now.left = "answered documents are stored"
        for answer in fpdb.follow(
            ending.enter_context(open_or_create(path, recipe)),
            source,
            reading,
            skip_duplicates=skip_duplicates,
            similarity=similarity,
            on_note=render.note,
        ):
            counts.tally(answer.status)
            counts.incomplete += not answer.matches.complete
            render.record(_describe(answer))
            render.deliver()


def _describe(answer: Answer) -> dict[str, Any]:
    """Return an answer as the protocol writes it."""
    plain: dict[str, Any] = {"key": answer.key, "status": answer.status}
    if not answer.matches.complete:
        plain["complete"] = False
    if answer.error:
        plain["error"] = answer.error
    if answer.matches:
        nearest = answer.matches[0]
        plain |= {"duplicate_of": nearest.key, "distance": nearest.distance}
        if nearest.similarity is not None:
            plain["similarity"] = nearest.similarity
    return plain | {"source": answer.source}
