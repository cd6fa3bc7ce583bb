"""Exceptions out of signal handlers, at each place where Python calls one and at random moments.

Python calls the handler of a signal after a call, at the beginning of a function, and where a loop
goes back. A `Tripwire` sets a signal off before the Nth of these places in fpdb's storage. After
each interrupt another process must be able to write, and so must the interrupted one.
"""

import _thread
import contextlib
import dis
import functools
import random
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
        lost, problems = _judge(path, result)
        figures.rounds += result["interrupts"]
        figures.acknowledged += result["acknowledged"]
        figures.lost += lost
        figures.inconsistent += result["stuck"] + len(result["errors"]) + len(problems)
        told = ("interrupts", "operations", "places", "stuck", "errors")
        figures.notes[name] = {each: result[each] for each in told} | {"problems": problems[:5]}


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


def _judge(path: Path, result: dict[str, Any]) -> tuple[int, list[str]]:
    """Return how many acknowledged documents aren't as they should be, and what a check finds."""
    with fpdb.open(path) as db:
        lost = 0
        for key, number in result["documents"].items():
            stored = db.get(key)
            if number is None:
                lost += stored is not None
            else:
                wanted = int(db.recipe.batch([_text(number)]).fingerprints[0])
                lost += stored is None or stored.fingerprint != wanted
        return lost, [f"{problem.where}: {problem.what}" for problem in db.check()]


def suffer(channel: Channel, path: str, how: str, seed: int, rounds: int, flaw: str) -> None:
    if flaw:
        lock.WriteLock._dropped = lambda *_: None  # type: ignore[method-assign]
    victim = _Victim(channel, path, seed, SHORT if flaw else TIMEOUT)
    with raising(), victim.threads(THREADS if how.endswith("threads") else 0):
        if how == "every place":
            victim.go_through_places(rounds)
        else:
            victim.wait_for_timers(rounds)
    victim.report()


class _Victim:
    """The interrupted process: what it does, and what was acknowledged to it."""

    def __init__(self, channel: Channel, path: str, seed: int, timeout: float) -> None:
        self._channel, self._path, self._timeout = channel, path, timeout
        self._db = fpdb.open(path, timeout=timeout)
        self._chance = random.Random(seed)
        self._documents: dict[str, int | None] = {}  # the versions, None of deleted ones
        self._counts = dict.fromkeys(("interrupts", "operations", "acknowledged", "places"), 0)
        self._stuck, self._errors, self._last = 0, list[str](), False
        self._kept: BaseException | None = None
        self._stop = threading.Event()

    def go_through_places(self, rounds: int) -> None:
        """Interrupt each act at each place where a signal is heeded, again and again."""
        acts = (self._add, self._delete, self._query, self._open, self._snapshot)
        place = dict.fromkeys(acts, 0)
        while self._counts["interrupts"] < rounds and not self._last:
            for act in acts:
                if self._counts["interrupts"] == rounds or self._last:
                    break
                place[act] += 1
                wire = Tripwire(place[act])
                if not self._interrupt(lambda wire=wire, act=act: wire.run(act)):
                    self._counts["places"] = max(self._counts["places"], wire.places)
                    place[act] = 0  # it has fewer places than that

    def wait_for_timers(self, rounds: int) -> None:
        signal.signal(signal.SIGALRM, signal.getsignal(SIGNAL))
        acts = (self._add, self._add, self._delete, self._query, self._open, self._snapshot)
        usual = dict.fromkeys(acts, 0.001)
        while self._counts["interrupts"] < rounds and not self._last:
            act = self._chance.choice(acts)
            began = time.perf_counter()
            delay = self._chance.uniform(5e-6, 1.2 * usual[act])
            if not self._interrupt(lambda act=act, delay=delay: _timed(act, delay)):
                took = time.perf_counter() - began
                usual[act] += (min(took, 0.1) - usual[act]) / 8

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Have other threads of this process write and read meanwhile."""
        with ThreadPoolExecutor(max(count, 1)) as pool:
            for number in range(count):
                pool.submit(self._work, number)
            try:
                yield
            finally:
                self._stop.set()

    def report(self) -> None:
        self._kept = None
        self._db.close()
        self._channel.tell(
            **self._counts, stuck=self._stuck, errors=self._errors, documents=self._documents
        )

    def _interrupt(self, run: Act) -> bool:
        """Run an act; return whether it was interrupted, after both processes wrote."""
        self._counts["operations"] += 1
        self._doubtful: str | None = None
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
        if self._doubtful is not None:
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
        self._stuck += isinstance(error, fpdb.LockTimeoutError)
        self._errors.append(f"{type(error).__name__}: {error}")

    def _change(self, kind: str, number: int | None) -> None:
        """Add a version of some document, or delete it."""
        self._doubtful = key = f"{kind} {self._chance.randrange(ASKS)}"
        if number is None:
            self._db.delete(key)
        else:
            self._db.add(key, _text(number))
        self._documents[key] = number
        self._doubtful = None
        self._counts["acknowledged"] += 1

    def _add(self) -> None:
        self._change("own", self._counts["operations"])

    def _delete(self) -> None:
        self._change("own", None)

    def _query(self) -> None:
        self._db.query(_text(self._chance.randrange(100)))

    def _open(self) -> None:
        with fpdb.open(self._path, timeout=self._timeout) as db:
            len(db)

    def _snapshot(self) -> None:
        with self._db.snapshot() as snapshot:
            snapshot.query(_text(1))

    def _work(self, number: int) -> None:
        keys, turn = [f"thread {number} {key}" for key in range(ASKS)], 0
        try:
            while not self._stop.is_set():
                turn += 1
                self._db.add(keys[turn % ASKS], _text(turn))
                self._documents[keys[turn % ASKS]] = turn
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
    return (
        f"Red kites nest above quarry {number} again: {number * number} pairs in April, they say."
    )
