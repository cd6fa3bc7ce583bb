"""What all torments share: their figures, their rounds, their controls, and forked judges."""

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_SHOWN = 50


@dataclass
class Figures:
    """What a torment has counted; only `lost` and `inconsistent` of 0 are good.

    `acknowledged` counts documents that were added, replaced or deleted by calls that returned,
    `lost` those of them that weren't there afterwards, `inconsistent` the rounds after which
    anything else was wrong, `refused` damaged databases that were refused and not served. `control`
    says how the known-bad variant failed, which shows that the torment would notice.
    """

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    inconsistent: int = 0
    refused: int = 0
    control: str = ""
    notes: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, problems: list[str], *, lost: int = 0, acknowledged: int = 0) -> None:
        self.rounds += 1
        self.acknowledged += acknowledged
        self.lost += lost
        self.inconsistent += bool(problems)
        if lost or problems:
            self.notes[name] = problems

    def count(self, group: str, *names: str) -> None:
        """Count some kinds of rounds, in a group of the notes."""
        self.tally(group, dict.fromkeys(names, 1))

    def tally(self, group: str, counts: Mapping[str, int]) -> None:
        """Add counts to those of a group of the notes."""
        known = self.notes.setdefault(group, {})
        for name, count in counts.items():
            known[name] = known.get(name, 0) + int(count)

    @property
    def good(self) -> bool:
        return self.rounds > 0 and not self.lost and not self.inconsistent


class ControlError(Exception):
    """A known-bad variant passed: the torment is blind, and its figures mean nothing."""


def caught(what: str, rounds: int, attempt: Callable[[int], str]) -> str:
    """Try a known-bad variant until an attempt says how it was caught."""
    for number in range(rounds):
        if how := attempt(number):
            return f"{what} was caught in round {number + 1}: {how}"
    raise ControlError(f"{what} wasn't caught in {rounds} rounds")


def going(rounds: int) -> Iterator[int]:
    """Count rounds up to N, and show how many are done."""
    for number in range(rounds):
        yield number
        if (number + 1) % _SHOWN == 0:
            print(f"{number + 1} of {rounds} rounds", file=sys.stderr, flush=True)


class Ended(NamedTuple):
    """What a forked process gave, or the signal or the error with which it ended."""

    result: Any
    died: str = ""
    error: str = ""


def apart(work: Callable[[], Any], seconds: int = 60) -> Ended:
    """Do something in a forked process, because it may end that."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def run() -> None:
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(seconds)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            ended = Ended(work())
        except BaseException as error:
            ended = Ended(None, error=f"{type(error).__name__}: {error}")
        theirs.send(ended)

    process = context.Process(target=run)
    process.start()
    theirs.close()
    with ours, contextlib.suppress(EOFError):
        ended: Ended = ours.recv()
        process.join()
        return ended
    process.join()
    return Ended(None, signal.Signals(-(process.exitcode or 0)).name)


def command(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)
