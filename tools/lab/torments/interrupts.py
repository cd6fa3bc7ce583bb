"""Exceptions out of signal handlers, such as Ctrl-C in a notebook, at random moments of calls.

After each, another process must be able to write, and so must the interrupted one, which may have
to open its database again if the error says so.
"""

import itertools
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from frame import Figures, caught, going
from worker import Channel, Workers

import fpdb
from fpdb.storage import lock

TIMEOUT = 5.0  # seconds after which a lock counts as stuck
SHORT = 0.3
THREADS = 2
ASKS = 20  # keys of each writer
Act = Callable[[], object]


class SignalError(Exception):
    """What the handler of the signal raises."""


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    work.mkdir(exist_ok=True)

    def attempt(_: int) -> str:
        result = _watch(work / "control", "random moments", seed, 1_000, "deaf")
        return f"stuck after {result['interrupts']} interrupts" if result["stuck"] else ""

    figures.control = caught("a lock that an exception doesn't release", 1, attempt)
    for name in ("random moments", "random moments, threads"):
        path = work / name.replace(",", "").replace(" ", "-")
        result = _watch(path, name, seed, rounds // 2)
        lost, problems = _judge(path, result.pop("documents"))
        figures.rounds += result["interrupts"]
        figures.acknowledged += result["acknowledged"]
        figures.lost += lost
        figures.inconsistent += result["stuck"] + len(result["errors"]) + len(problems)
        figures.notes[name] = result | {"problems": problems[:5]}


def _watch(path: Path, how: str, seed: int, rounds: int, flaw: str = "") -> dict[str, Any]:
    """Have a process interrupted, and write after each interrupt; return what it reports."""
    fpdb.create(path).close()
    stuck, numbers = 0, going(rounds + 1)
    with Workers() as workers:
        victim = workers.take()
        victim.begin("interrupts.suffer", str(path), how, seed, rounds, flaw)
        with fpdb.open(path, timeout=SHORT if flaw else TIMEOUT) as db:
            while message := victim.hear(120):
                if "interrupts" in message:
                    return message | {"stuck": stuck + message["stuck"]}
                number = next(numbers, None)
                try:
                    db.add(f"other {message['wrote'] % ASKS}", _text(message["wrote"]))
                except fpdb.LockTimeoutError:
                    stuck += 1
                victim.tell(last=number is None or bool(flaw and stuck))
    raise RuntimeError(f"the interrupted process says nothing: {victim.errors()}")


def _judge(path: Path, documents: dict[str, int | None]) -> tuple[int, list[str]]:
    """Return how many acknowledged documents aren't as they should be, and what a check finds."""
    with fpdb.open(path) as db:
        lost = 0
        for key, number in documents.items():
            stored = db.get(key)
            wanted = None if number is None else db.recipe.fingerprint(_text(number))
            lost += (stored and stored.fingerprint) != wanted
        return lost, [f"{problem.where}: {problem.what}" for problem in db.check()]


def suffer(channel: Channel, path: str, how: str, seed: int, rounds: int, flaw: str) -> None:
    if flaw:
        genuine = lock.WriteLock.release

        def release(self: lock.WriteLock, owner: object) -> None:
            if sys.exception() is None:
                genuine(self, owner)

        lock.WriteLock.release = release  # type: ignore[method-assign]
        lock.WriteLock._dropped = lambda *_: None  # type: ignore[method-assign]
    _Victim(channel, path, seed, SHORT if flaw else TIMEOUT).suffer(how, rounds)


class _Victim:
    """The interrupted process: what it does, and what was acknowledged to it."""

    def __init__(self, channel: Channel, path: str, seed: int, timeout: float) -> None:
        self._channel = channel
        self._open = partial(fpdb.open, path, timeout=timeout)
        self._db, self._chance = self._open(), random.Random(seed)
        self._documents: dict[str, int | None] = {}  # the versions, None of deleted ones
        self._doubtful, self._last = "", False
        self._counts, self._errors = Counter[str](), list[str]()
        self._kept: BaseException | None = None

    def suffer(self, how: str, rounds: int) -> None:
        """Interrupt acts after random times."""
        acts: list[Act] = [self._add, self._delete, self._query, self._read, self._snapshot]
        usual = dict.fromkeys(acts, 0.001)
        signal.signal(signal.SIGALRM, _raise)
        for number in range(THREADS if how.endswith("threads") else 0):
            threading.Thread(target=self._work, args=(number,), daemon=True).start()
        while self._counts["interrupts"] < rounds and not self._last:
            act, began = self._chance.choice(acts), time.perf_counter()
            delay = self._chance.uniform(5e-6, 1.2 * usual[act])
            if not self._interrupt(partial(_timed, act, delay)):
                took = min(time.perf_counter() - began, 0.1)
                usual[act] += (took - usual[act]) / 8
        self._last = True
        self._kept = None
        names = ("interrupts", "operations", "acknowledged", "reopened", "stuck")
        counts = {name: self._counts[name] for name in names}
        self._channel.tell(**counts, errors=self._errors, documents={**self._documents})

    def _interrupt(self, run: Act) -> bool:
        """Run an act; return whether it was interrupted, after both processes wrote."""
        self._counts["operations"] += 1
        self._doubtful = ""
        try:
            run()
        except SignalError as error:
            # A notebook keeps the last exception, with all that its frames refer to.
            self._kept = error if self._counts["interrupts"] % 2 else None
        except Exception as error:
            self._fail(error)
        else:
            return False
        self._counts["interrupts"] += 1
        self._documents.pop(self._doubtful, None)
        if self._kept is not None:
            self._write()
        self._channel.tell(wrote=self._counts["interrupts"])
        self._last = bool((self._channel.hear(120) or {"last": True}).get("last"))
        if self._kept is None and not self._last:
            self._write()
        return True

    def _write(self) -> None:
        """Write, and if the error says so, open the database again and write then."""
        try:
            try:
                self._change("after", self._counts["operations"])
            except fpdb.FpdbError as error:
                if "open it again" not in error.hint:
                    raise
                self._counts["reopened"] += 1
                self._db.close()
                self._db = self._open()
                self._change("after", self._counts["operations"])
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._counts["stuck"] += isinstance(error, fpdb.LockTimeoutError)
        self._errors.append(f"{type(error).__name__}: {error}")

    def _change(self, kind: str, number: int | None) -> None:
        """Add a version of some document, or delete it."""
        self._doubtful = key = f"{kind} {self._chance.randrange(ASKS)}"
        if number is None:
            self._db.delete(key)
        else:
            self._db.add(key, _text(number))
        self._documents[key] = number
        self._doubtful = ""
        self._counts["acknowledged"] += 1

    def _add(self) -> None:
        self._change("own", self._counts["operations"])

    def _delete(self) -> None:
        self._change("own", None)

    def _query(self) -> None:
        self._db.query(_text(self._chance.randrange(100)))

    def _read(self) -> None:
        with self._open() as db:
            len(db)

    def _snapshot(self) -> None:
        with self._db.snapshot() as snapshot:
            snapshot.query(_text(1))

    def _work(self, number: int) -> None:
        """Write and read in another thread meanwhile."""
        try:
            for turn in itertools.count(1):
                if self._last:
                    return
                key = f"thread {number} {turn % ASKS}"
                self._db.add(key, _text(turn))
                self._documents[key] = turn
                self._db.query(_text(turn))
        except Exception as error:
            self._fail(error)


def _raise(*_: object) -> None:
    raise SignalError


def _timed(act: Act, delay: float) -> None:
    """Interrupt an act after some time, unless it has ended by then."""
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        act()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _text(number: int) -> str:
    return f"Red kites nest above quarry {number} again: {number**2} pairs in April, they say."
