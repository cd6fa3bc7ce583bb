"""Show what becomes of documents while they are read and stored, and count it in the end."""

import time
from collections.abc import Callable

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.values import jaccard_cells, near_dict
from fpdb.errors import InputError

_PROGRESS_SECONDS = 0.1
_SHOWN = 100
_SKIPPED = {"status": "another status than 200", "type": "another type"}


class BadRecords:
    """Notes the records that can't be used: the first ones one by one, others are counted."""

    def __init__(self, *, strict: bool = False) -> None:
        self.count = 0
        self._strict = strict

    def __call__(self, bad: fpdb.Bad) -> None:
        """Note a bad record."""
        self.count += 1
        if self._strict:
            raise InputError(
                f"{bad.source}: {bad.reason}", hint=bad.hint or "leave --strict out to skip it"
            )
        if self.count <= _SHOWN:
            render.note(f"{bad.source}: {bad.reason}")
        elif self.count == _SHOWN + 1:
            render.note("further bad records are only counted")


class Progress:
    """Shows how many records were read, and remembers the counts for the summary."""

    def __init__(self, *, quiet: bool, unit: str = "documents") -> None:
        self.counts = fpdb.Ingested()
        self._quiet = quiet
        self._unit = unit
        self._watched = render.shows_progress() and not quiet
        self._shown = time.monotonic()

    def __call__(self, counts: fpdb.Ingested) -> None:
        """Show the counts so far, a few times a second."""
        self.counts = counts
        now = time.monotonic()
        if not self._watched or now - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        total = counts.bytes_total
        share = f", {min(counts.bytes_read / total, 1):.0%} of the bytes" if total else ""
        rate = counts.read / counts.seconds if counts.seconds else 0
        render.progress(f"{counts.read:,} {self._unit}{share}, {rate:,.0f} {self._unit}/s")

    def summarise(self) -> None:
        """Print what became of the records."""
        if self._quiet:
            return
        counts = self.counts
        seconds = counts.seconds
        numbers = {
            "read": counts.read,
            "added": counts.added,
            "replaced": counts.replaced,
            "unchanged": counts.unchanged,
            "duplicates": counts.duplicates,
            "short": counts.short,
            "bad": counts.bad,
        }
        listed = ", ".join(f"{name} {count:,}" for name, count in numbers.items())
        rate = (counts.read - counts.bad) / seconds if seconds else 0
        render.note(f"{listed}; {seconds:.2f} s, {rate:,.0f} {self._unit}/s")
        if counts.skipped:
            named = [f"{_SKIPPED.get(why, why)} {n:,}" for why, n in sorted(counts.skipped.items())]
            render.note(f"records of archives that hold no page: {', '.join(named)}")
        if counts.invalid_utf8:
            render.note(
                f"documents with bytes that are no UTF-8, replaced by U+FFFD: "
                f"{counts.invalid_utf8:,}"
            )


def duplicates_printer(*, as_json: bool) -> Callable[[fpdb.Added], None]:
    """Return a function that prints a document if it wasn't added, with what it resembles."""

    def show(added: fpdb.Added) -> None:
        if added.status != "duplicate":
            return
        try:
            if as_json:
                matches = list(map(near_dict, added.matches))
                render.record({"key": added.key, "status": added.status, "matches": matches})
            else:
                nearest = added.matches[0]
                render.row(added.key, nearest.key, nearest.distance, *jaccard_cells(nearest))
        except typer.Exit:
            # The reader of this output has ended; the documents still are to be added.
            return

    return show
