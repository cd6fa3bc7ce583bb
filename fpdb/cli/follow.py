"""Keep reading what a crawler writes, and answer each line with what became of it."""

import os
import select
import signal
from collections import Counter
from types import FrameType
from typing import Any, Self

import typer

import fpdb
from fpdb.cli import render

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


def follow_source(
    database: fpdb.Database,
    source: str,
    reading: fpdb.Reading,
    *,
    every: bool,
    skip_duplicates: bool,
    min_jaccard: float | None,
    quiet: bool,
) -> None:
    """Store and answer what comes, until it ends or a signal ends it."""
    statuses: Counter[str] = Counter()
    with _Stop() as stop:
        for answer in fpdb.follow(
            database,
            source,
            reading,
            every=every,
            skip_duplicates=skip_duplicates,
            min_jaccard=min_jaccard,
            wait=stop.wait,
            on_note=render.note,
        ):
            statuses[answer.status] += 1
            render.record(_verdict(answer))
            render.flush()
    if not quiet:
        counts = ", ".join(f"{name} {statuses[name]:,}" for name in _STATUSES)
        render.note(f"read {statuses.total():,}: {counts}")
    if stop.wanted == signal.SIGINT:  # SIGTERM is the usual way to end a service
        raise typer.Exit(130)


def _verdict(answer: fpdb.Answer) -> dict[str, Any]:
    verdict: dict[str, Any] = {"key": answer.key, "status": answer.status}
    if answer.error:
        verdict["error"] = answer.error
    if answer.matches:
        nearest = answer.matches[0]
        verdict |= {"duplicate_of": nearest.key, "distance": nearest.distance}
        if nearest.jaccard is not None:
            verdict["jaccard"] = nearest.jaccard
    return verdict | {"source": answer.source}
