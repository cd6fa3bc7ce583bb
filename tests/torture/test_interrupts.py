"""Exceptions out of signal handlers: no lock stays taken, nothing acknowledged is lost.

Python calls the handler of a signal after a call, at the beginning of a function, and where a loop
goes back. A `Tripwire` sets a signal off before the Nth of these places in fpdb's storage.
"""

import _thread
import contextlib
import dis
import functools
import signal
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import fpdb
from fpdb.storage import environment, lock, transactions

SIGNAL = int(signal.SIGUSR1)
WATCHED = {module.__file__ for module in (environment, lock, transactions, contextlib, weakref)}
TEXT = "Red kites nest above the quarry again: wardens counted nine pairs in April, two more."
OTHER = """
import sys
from fpdb.storage import Environment
env = Environment.open(sys.argv[1])
for line in sys.stdin:
    with env.write(timeout=1):
        print("wrote", flush=True)
"""


class SignalError(Exception):
    """What the handler of the signal raises."""


class Tripwire:
    """Runs a function, and sets off a signal before the Nth place where Python heeds one."""

    def __init__(self, place: int) -> None:
        self.places = 0
        self._place = place

    def run(self, act: Callable[[], object]) -> Any:
        sys.settrace(self._call)
        try:
            return act()
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, *_: object) -> Any:
        if frame.f_code.co_filename not in WATCHED:
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


@pytest.fixture
def write_elsewhere(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Begin a write in another process, which has one second for that."""
    fpdb.create(tmp_path / "db").close()
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(tmp_path / "db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout

        def write() -> str:
            print(file=process.stdin, flush=True)
            return process.stdout.readline()  # type: ignore[union-attr]

        yield write
        process.kill()


@pytest.mark.process
def test_an_interrupt_at_any_place_of_an_add_leaves_nobody_waiting(
    tmp_path: Path, write_elsewhere: Callable[[], str]
) -> None:
    place, kept = 0, None
    db = fpdb.open(tmp_path / "db", timeout=1)
    reopened = 0
    with raising():
        while True:
            place += 1
            wire = Tripwire(place)
            try:
                wire.run(lambda: db.add("a", f"{TEXT} {place}"))  # noqa: B023
            except SignalError as error:
                kept = error if place % 2 else None
                where = "".join(traceback.format_exception(error))
            else:
                break
            if kept:  # as a notebook keeps the last one
                try:
                    db.delete("nothing")
                except fpdb.LockTimeoutError as error:
                    if "close the database and open it again" not in error.hint:
                        raise
                    db.close()
                    db = fpdb.open(tmp_path / "db", timeout=1)
                    reopened += 1
            assert write_elsewhere() == "wrote\n", f"{place}: {where}"
            db.delete("nothing")
        assert place > wire.places > 50
        assert reopened < 20  # only where the end of the block hadn't begun
        assert not list(db.check())
        assert len(db) == 1
        db.close()


@pytest.mark.process
def test_an_interrupt_at_any_place_of_an_opening_leaves_nobody_waiting(
    tmp_path: Path, write_elsewhere: Callable[[], str]
) -> None:
    place, kept = 0, None

    def write() -> None:
        with fpdb.open(tmp_path / "db", timeout=1) as db:
            db.delete("nothing")

    with raising():
        while True:
            place += 1
            wire = Tripwire(place)
            try:
                wire.run(write)
            except SignalError as error:
                kept = error if place % 2 else None
                where = "".join(traceback.format_exception(error))
            else:
                break
            if kept:  # as a notebook keeps the last one
                write()
            assert write_elsewhere() == "wrote\n", f"{place}: {where}"
        assert place > wire.places > 100


@pytest.mark.process
def test_an_interrupt_at_any_place_of_a_read_keeps_no_snapshot(
    tmp_path: Path,
) -> None:
    place = 0
    with fpdb.create(tmp_path / "db") as db, raising():
        while True:
            place += 1
            wire = Tripwire(place)
            try:
                wire.run(lambda: len(db))
            except SignalError:
                pass
            else:
                break
            # The exception has gone, and with it all that it kept.
            assert db.stats().snapshots.open == 0
        assert place > wire.places > 10
