"""Exceptions out of signal handlers, at each place where Python calls one and at random moments.

Python calls the handler of a signal after a call, at the beginning of a function, and where a loop
goes back. A `Tripwire` sets a signal off before the Nth of these places in fpdb's storage. After
each interrupt another process must be able to write, and so must the interrupted one.
"""

import _thread
import contextlib
import dis
import functools
import itertools
import random
import signal
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from frame import Figures, caught, going
from worker import Channel, Workers

import fpdb
from fpdb.storage import environment, lock, transactions

TIMEOUT = 5.0  # seconds after which a lock counts as stuck
SHORT = 0.3
THREADS = 2
SIGNAL = int(signal.SIGUSR1)
WATCHED = {module.__file__ for module in (environment, lock, transactions, contextlib, weakref)}
ASKS = 20  # keys of each writer
Act = Callable[[], object]


class SignalError(Exception):
    """What the handler of the signal raises."""


class Tripwire:
    """Runs a function, and sets off a signal before the Nth place where Python heeds one."""

    def __init__(self, place: int = 0, files: set[str | None] = WATCHED) -> None:
        self.places = 0
        self._place, self._files = place, files

    def run(self, act: Act) -> Any:
        sys.settrace(self._call)
        try:
            return act()
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, *_: object) -> Any:
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        fuse = self._count()  # noqa: F841 - it sets off the signal when this function has ended
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Any:
        fuse = None
        if event == "opcode" and frame.f_lasti in _heeding(frame.f_code):
            fuse = self._count()  # noqa: F841
        return self._step

    def _count(self) -> Any:
        self.places += 1
        if self.places != self._place:
            return None
        fuse = type("Fuse", (), {})()
        self._number = _Number(fuse, _thread.interrupt_main)
        return fuse


class _Number(weakref.ref):  # type: ignore[type-arg]
    """Calls a function of C with the number of the signal when its fuse has gone.

    No code of Python runs between this and the place, at which the handler would be called, too.
    """

    def __index__(self) -> int:
        return SIGNAL


@functools.cache
def _heeding(code: CodeType) -> frozenset[int]:
    names = "CALL", "JUMP_BACKWARD", "RESUME"
    found = [each.offset for each in dis.get_instructions(code) if each.opname.startswith(names)]
    return frozenset(found)


@contextlib.contextmanager
def raising() -> Iterator[None]:
    def raise_it(*_: object) -> None:
        raise SignalError

    before = signal.signal(SIGNAL, raise_it)
    try:
        yield
    finally:
        signal.signal(SIGNAL, before)


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    work.mkdir(exist_ok=True)

    def attempt(_: int) -> str:
        result = _watch(work / "control", "every place", seed, 1_000, "kept")
        return f"stuck after {result['interrupts']} interrupts" if result["stuck"] else ""

    figures.control = caught("a lock that outlives its owner", 1, attempt)
    shares = {"every place": 4, "random moments": 3, "random moments, threads": 3}
    for name, tenths in shares.items():
        path = work / name.replace(",", "").replace(" ", "-")
        result = _watch(path, name, seed, rounds * tenths // 10)
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
        """Interrupt acts at each place where a signal is heeded, or after random times."""
        acts: list[Act] = [self._add, self._delete, self._query, self._read, self._snapshot]
        place, usual = dict.fromkeys(acts, 0), dict.fromkeys(acts, 0.001)
        with raising():
            signal.signal(signal.SIGALRM, signal.getsignal(SIGNAL))
            for number in range(THREADS if how.endswith("threads") else 0):
                threading.Thread(target=self._work, args=(number,), daemon=True).start()
            while self._counts["interrupts"] < rounds and not self._last:
                if how != "every place":
                    act, began = self._chance.choice(acts), time.perf_counter()
                    delay = self._chance.uniform(5e-6, 1.2 * usual[act])
                    if not self._interrupt(partial(_timed, act, delay)):
                        took = min(time.perf_counter() - began, 0.1)
                        usual[act] += (took - usual[act]) / 8
                    continue
                act = acts[self._counts["operations"] % len(acts)]
                place[act] += 1
                wire = Tripwire(place[act])
                if not self._interrupt(partial(wire.run, act)):
                    self._counts["places"] = max(self._counts["places"], wire.places)
                    place[act] = 0  # it has fewer places than that
            self._last = True
        self._kept = None
        names = ("interrupts", "operations", "acknowledged", "places", "stuck")
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
        try:
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


def _timed(act: Act, delay: float) -> None:
    """Interrupt an act after some time, unless it has ended by then."""
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        act()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _text(number: int) -> str:
    return f"Red kites nest above quarry {number} again: {number**2} pairs in April, they say."
