"""A disk without room, four ways, under everything that writes."""

import contextlib
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import disks
import numpy as np
import strace
from acts import filled, flaws_of_made, outcome
from disks import Disk
from frame import Figures, caught, going
from oracle import Oracle
from worker import Worker, Workers
from workload import Script, make, perform

import fpdb

ACTS = ["add", "load", "build", "compact", "backup"]
MAKES = ["build", "compact", "backup"]
STORED, LOADED = 5_000, 60_000
SECONDS = 120
_MIB = 1 << 20
_WRITES = ",".join(strace.WRITES)
# The file systems and their mebibytes: in memory, and in a file.
SMALL = {"tmpfs": 16, "ext4": 24}
WAYS = (*SMALL, "file size limit", "injected ENOSPC")


def lacking(way: str) -> str:
    if way in SMALL:
        return disks.missing(way)
    return strace.missing() if way == "injected ENOSPC" else ""


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    with Workers() as workers:

        def attempt(number: int) -> str:
            with _way("file size limit", _new(work / f"control-{number}")) as way:
                _, lost, _ = _round(way, "add", workers, seed, "deaf")
            return f"{lost} documents lost" if lost else ""

        figures.control = caught("a writer that is deaf to errors", 1, attempt)
        for name in WAYS:
            if lack := lacking(name):
                figures.notes[name] = f"left out: {lack}"
                continue
            for number in going(rounds):
                for act in ACTS:
                    place = _new(work / f"{number}-{act}-{name.replace(' ', '-')}")
                    with _way(name, place) as way:
                        done, lost, problems = _round(way, act, workers, seed + number)
                    figures.add(f"{name}, {act}, {number}", problems, lost=lost, acknowledged=done)
                    shutil.rmtree(place)


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


class Way(NamedTuple):
    """A way to have no room: where it is, and how it begins for a process and ends."""

    folder: Path
    begin: Callable[[Worker, str], object]
    end: Callable[[], object]
    limited: bool = False


@contextlib.contextmanager
def _way(name: str, work: Path) -> Iterator[Way]:
    """Make a small file system, a limit on the size of files, or let writes fail in spite of room.

    A small disk is filled with a file that can be deleted, but for a little.
    """
    if name == "file size limit":
        yield Way(work, lambda *_: None, lambda: None, limited=True)
    elif name == "injected ENOSPC":
        with contextlib.ExitStack() as tracing:

            def trace(worker: Worker, act: str) -> None:
                when = "1+" if act == "backup" else "2+"  # all writes, or all but the first
                options = strace.injecting(_WRITES, "error=ENOSPC", when)
                tracing.enter_context(strace.traced(worker.pid, *options))

            yield Way(work, trace, tracing.close)
    else:
        with Disk(work, name, SMALL[name]) as disk:
            ballast = disk.place / "ballast"

            def fill(_: Worker, act: str) -> None:
                size = 0
                with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                    while True:
                        size += file.write(bytes(1 << 16))
                os.truncate(ballast, size - (_MIB // 8 if act in MAKES else 3 * _MIB))

            yield Way(disk.place, fill, ballast.unlink)


def _round(
    way: Way, act: str, workers: Workers, seed: int, flaw: str = ""
) -> tuple[int, int, list[str]]:
    """Return how many documents were acknowledged and lost, and what else is wrong."""
    path, target = way.folder / "db", way.folder / "made"
    oracle = filled(path, Script(seed), 20)
    rows = [[f"stored {n}", None, n * 0x9E3779B97F4A7C15 % 2**64, None] for n in range(STORED)]
    oracle.hear({"begin": {"op": "load", "documents": rows}})
    with fpdb.open(path) as db:
        oracle.hear({"done": perform(db, {"op": "load", "documents": rows})})
    before = oracle.acknowledged
    worker = workers.take()
    worker.begin("full.strain", str(path), str(target), act, seed, flaw, limited=way.limited)
    worker.expect(ready=True)
    way.begin(worker, act)
    problems = _expect(worker, oracle, "DiskFullError")
    litter = [name for name in os.listdir(way.folder) if name.endswith(".new")]
    problems += [f"it left {name}" for name in litter]
    if act in MAKES and target.exists():
        problems.append("it left an unfinished database")
    problems += _expect(worker, oracle, "reads go on")
    way.end()
    problems += _expect(worker, oracle, "done")
    if worker.wait(SECONDS) != 0:
        problems.append(f"it died: {worker.errors()[-300:]}")
    workers.drop(worker)
    if act in MAKES and not problems:
        problems += flaws_of_made(act, path, target)
    verdict = oracle.judge_file(path)
    return oracle.acknowledged - before, verdict.lost, problems + verdict.problems


def _expect(worker: Worker, oracle: Oracle, expected: str) -> list[str]:
    """Let a worker go on until an act has ended; it must have ended like this."""
    worker.tell(go=True)
    for message in worker.listen(SECONDS):
        if ended := message.get("ended"):
            return [] if ended == expected else [f"found {ended}, expected {expected}"]
        oracle.hear(message)
    return [f"it went silent: {worker.errors()[-300:]}"]


def strain(
    channel: Any, path: str, target: str, act: str, seed: int, flaw: str, *, limited: bool
) -> None:
    """Do an act until there is no room; then read; then, with room, do it again.

    The flaw "deaf" makes a process that acknowledges what has failed.
    """
    script = Script(seed, start=10**9)

    def add() -> None:
        documents = [script.document() for _ in range(100)]
        for document in documents:
            document[3] = {**document[3], "padding": "x" * 700}
        operation = {"op": "add", "documents": documents + script.twins(), "skip": False}
        channel.tell(begin=operation)
        try:
            done: Any = perform(db, operation)
        except fpdb.FpdbError:
            if flaw == "deaf":
                channel.tell(done=None)
            raise
        channel.tell(done=done)

    def fill_up() -> None:
        if act in MAKES:
            make(act, db, Path(target))
        elif act == "load":
            numbers = np.random.default_rng(seed).integers(0, 2**64, LOADED, np.uint64)
            db.add_fingerprints([f"load {n}" for n in range(LOADED)], numbers)
        else:
            for _ in range(2000):
                add()

    def read() -> None:
        keys = list(db)
        assert len(keys) == len(db)
        assert db.query_fingerprint(db["stored 1"].fingerprint, k=0)[0].key == "stored 1"
        assert not list(db.check())

    def again() -> None:
        channel.tell(begin={"op": "delete", "keys": ["stored 2"]})
        db.delete("stored 2")
        channel.tell(done=[])
        add()
        if act in MAKES:
            make(act, db, Path(target))

    with fpdb.open(path) as db:
        channel.tell(ready=True)
        channel.hear()
        if limited:
            size = (Path(path) / "data.mdb").stat().st_size
            allowed = min(size // 4, _MIB // 4) if act in MAKES else size + 2 * _MIB
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, hard))
        channel.tell(ended=outcome(fill_up))
        channel.hear()
        channel.tell(ended=outcome(read, "reads go on"))
        channel.hear()
        if limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        channel.tell(ended=outcome(again))
