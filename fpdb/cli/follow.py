"""Keep reading what a crawler writes, and answer each line with what became of it."""

import os
import select
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Self

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.databases import Wanted, open_or_create, widen
from fpdb.io import BadRecord, Fields, Markup, Part, follow_parts
from fpdb.preparing import Taker

_STATUSES = ("added", "replaced", "unchanged", "duplicate", "short", "error")


class _Stop:
    """Turns Ctrl-C and SIGTERM into a wish to end, which is looked at between two parts.

    A second one ends at once.
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
        """Wait for a file, for some time, or for a signal; say whether to go on."""
        files = [self._woken] if number is None else [self._woken, number]
        while self.wanted is None:
            ready = select.select(files, [], [], seconds)[0]
            if self._woken not in ready:
                return True
            os.read(self._woken, 64)  # of a signal that may not be one of these
        return False


@dataclass
class Following:
    """One run of ingest that follows."""

    source: str
    fields: Fields
    max_bytes: int
    every: bool
    skip_duplicates: bool
    min_jaccard: float | None
    quiet: bool
    markup: Markup

    def run(self, path: Path, wanted: Wanted) -> None:
        """Store and answer what comes, until it ends or somebody ends it."""
        statuses: Counter[str] = Counter()
        with _Stop() as stop:
            parts = follow_parts(
                self.source,
                fields=self.fields,
                max_bytes=self.max_bytes,
                markup=self.markup,
                every=self.every,
                wait=stop.wait,
                tell=render.note,
            )
            with open_or_create(path, wanted, quiet=self.quiet) as database:
                widen(database, self.max_bytes)
                taker = Taker(database.preparer, database.keys, strict=False)
                for part in parts:
                    for verdict in self._store(database, taker, part):
                        statuses[verdict["status"]] += 1
                        render.record(verdict)
                    render.flush()
        if not self.quiet:
            counts = ", ".join(f"{name} {statuses[name]:,}" for name in _STATUSES)
            render.note(f"read {statuses.total():,}: {counts}")
        if stop.wanted == signal.SIGINT:  # SIGTERM is the usual way to end a service
            raise typer.Exit(130)

    def _store(self, database: fpdb.Database, taker: Taker, part: Part) -> Iterator[dict[str, Any]]:
        """Store the documents of a part; say of each line, in order, what became of it."""
        records = list(part())
        taken = taker(lambda: records)
        refused = {each.source: each.reason for each in taken.refused}
        stored = database.add_prepared(
            taken.prepared, skip_duplicates=self.skip_duplicates, min_jaccard=self.min_jaccard
        )
        for record in records:
            verdict: dict[str, Any]
            if record.source in refused:
                key = None if isinstance(record, BadRecord) else record.key
                verdict = {"key": key, "status": "error", "error": refused[record.source]}
            else:
                verdict = _verdict(next(stored))
            yield verdict | {"source": record.source}


def _verdict(added: fpdb.Added) -> dict[str, Any]:
    verdict: dict[str, Any] = {"key": added.key, "status": added.status}
    if added.matches:
        nearest = added.matches[0]
        verdict |= {"duplicate_of": nearest.key, "distance": nearest.distance}
        if nearest.jaccard is not None:
            verdict["jaccard"] = nearest.jaccard
    return verdict
