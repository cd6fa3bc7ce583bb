"""Add what a crawler writes, line by line, and answer each line."""

import os
import select
import signal
import sys
from collections import Counter
from types import FrameType
from typing import Annotated, Any, Self

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.create import open_or_create
from fpdb.cli.ingest import SkipDuplicatesOption
from fpdb.cli.inputs import choose_reading
from fpdb.cli.options import (
    AnyRecipeOption,
    DatabaseArgument,
    QuietOption,
    SimilarityOption,
    bundled,
    require,
)
from fpdb.ingest import Answer
from fpdb.io import require_followable

# The name of each status in the summary, as ingest writes it.
_COUNTED = {
    "added": "added",
    "replaced": "replaced",
    "unchanged": "unchanged",
    "duplicate": "duplicates",
    "short": "short",
    "error": "bad",
}


@bundled(
    "key_field text_field meta_field fingerprint_field base html html_text max_html max_bytes",
    reading=choose_reading,
)
def follow(
    path: DatabaseArgument,
    source: Annotated[
        str, typer.Argument(metavar="DIR|-", help="A directory of files that grow, or -.")
    ],
    reading: fpdb.Reading,
    skip_duplicates: SkipDuplicatesOption = False,
    similarity: SimilarityOption = None,
    recipe: AnyRecipeOption = None,
    every: Annotated[
        bool, typer.Option("--all-files", help="Read all files of DIR, not only .jsonl.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Answer a crawler through a pipe or directory.

    Example:
      fpdb follow crawl.fpdb - --skip-duplicates
      fpdb follow crawl.fpdb crawled/ --skip-duplicates --meta-field title

    Reads JSON lines, and answers each with a JSON object once its document is stored.
    It ends with standard input, with SIGTERM or with Ctrl-C.
    """
    require(skip_duplicates or similarity is None, "--similarity needs --skip-duplicates")
    require(source != "-" or not sys.stdin.isatty(), "standard input is a terminal; name a DIR")
    require_followable(source)
    statuses: Counter[str] = Counter()
    sketched = similarity is not None
    with (
        render.interruptible("answered documents are stored; send the rest again"),
        open_or_create(path, recipe, sketched=sketched, quiet=quiet) as database,
        _Stop() as stop,
    ):
        for answer in fpdb.follow(
            database,
            source,
            reading,
            every=every,
            skip_duplicates=skip_duplicates,
            min_jaccard=similarity,
            wait=stop.wait,
            on_note=render.note,
        ):
            statuses[answer.status] += 1
            render.record(_describe(answer))
            render.flush()
    if not quiet:
        counts = [f"{name} {statuses[status]:,}" for status, name in _COUNTED.items()]
        render.note(", ".join([f"read {statuses.total():,}", *counts]))
    if stop.wanted == signal.SIGINT:  # SIGTERM is the usual way to end a service
        raise typer.Exit(130)


def _describe(answer: Answer) -> dict[str, Any]:
    """Return an answer as the protocol writes it."""
    plain: dict[str, Any] = {"key": answer.key, "status": answer.status}
    if answer.error:
        plain["error"] = answer.error
    if answer.matches:
        nearest = answer.matches[0]
        plain |= {"duplicate_of": nearest.key, "distance": nearest.distance}
        if nearest.jaccard is not None:
            plain["jaccard"] = nearest.jaccard
    return plain | {"source": answer.source}


class _Stop:
    """Turns Ctrl-C and SIGTERM into a request to end between two parts.

    A second signal ends at once.
    """

    wanted: int | None = None

    def __enter__(self) -> Self:
        # A signal that comes just before the waiting begins must end it as well.
        self._woken, self._waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waker, False)
        self._wakeup = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._handlers = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._woken)
        os.close(self._waker)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.wanted is not None:
            raise KeyboardInterrupt
        self.wanted = number

    def wait(self, number: int | None, seconds: float | None) -> bool:
        """Wait for a file, for a time, or for a signal; return whether to go on."""
        files = [self._woken] if number is None else [self._woken, number]
        while self.wanted is None:
            ready = select.select(files, [], [], seconds)[0]
            if self._woken not in ready:
                return True
            os.read(self._woken, 64)  # of a signal that may not be one of these
        return False
