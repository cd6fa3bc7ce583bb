"""Exceptions out of signal handlers: no lock stays taken, nothing acknowledged is lost."""

import queue
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import _base, thread
from pathlib import Path
from types import ModuleType

import pytest

import fpdb
from fpdb import threads

CONCURRENT = [queue.__file__, threading.__file__, _base.__file__, thread.__file__]
TEXT = "Red kites nest above the quarry again: wardens counted nine pairs in April, two more."
OTHER = """
import sys
from fpdb.storage import Environment
env = Environment.open(sys.argv[1])
for line in sys.stdin:
    with env.write(timeout=1):
        print("wrote", flush=True)
"""


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
    torment: Callable[[str], ModuleType], tmp_path: Path, write_elsewhere: Callable[[], str]
) -> None:
    interrupts = torment("interrupts")
    place, kept = 0, None
    with fpdb.open(tmp_path / "db", timeout=1) as db, interrupts.raising():
        while True:
            place += 1
            wire = interrupts.Tripwire(place)
            try:
                wire.run(lambda: db.add("a", f"{TEXT} {place}"))  # noqa: B023
            except interrupts.SignalError as error:
                kept = error if place % 2 else None
                where = "".join(traceback.format_exception(error))
            else:
                break
            if kept:  # as a notebook keeps the last one: this thread's next write ends it
                db.delete("nothing")
            assert write_elsewhere() == "wrote\n", f"{place}: {where}"
            db.delete("nothing")
        assert place > wire.places > 50
        assert not list(db.check())
        assert len(db) == 1


@pytest.mark.process
def test_an_interrupt_at_any_place_of_a_read_keeps_no_snapshot(
    torment: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    interrupts = torment("interrupts")
    place = 0
    with fpdb.create(tmp_path / "db") as db, interrupts.raising():
        while True:
            place += 1
            wire = interrupts.Tripwire(place)
            try:
                wire.run(lambda: len(db))
            except interrupts.SignalError:
                pass
            else:
                break
            # The exception has gone, and with it all that it kept.
            assert db.stats().snapshots.open == 0
        assert place > wire.places > 10


def test_an_interrupt_at_any_place_of_a_map_ends_it(
    torment: Callable[[str], ModuleType],
) -> None:
    """It doesn't become another error, and no thread keeps the map from ending."""
    interrupts = torment("interrupts")
    place = 0
    with interrupts.raising():
        while True:
            place += 1
            wire = interrupts.Tripwire(place, {threads.__file__, *CONCURRENT})
            try:
                found = wire.run(lambda: list(threads.mapped(abs, [-1, 2, -3], 2)))
            except interrupts.SignalError:
                continue
            break
    assert found == [(-1, 1), (2, 2), (-3, 3)]
    assert place > 10
