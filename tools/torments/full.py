"""A disk without room, four ways, under everything that writes."""

import contextlib
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import strace
from acts import expected_of, make
from figures import ControlError, Figures, going
from oracle import Oracle, contents, flaws
from worker import Worker, Workers
from workload import SCALE, Script, perform

import fpdb

ROUNDS = 5
ACTS = ["add", "load", "build", "compact", "backup"]
MAKES = ["build", "compact", "backup"]
STORED, LOADED = 5_000, 60_000
SECONDS = 120
_MIB = 1 << 20
_WRITES = ",".join(strace.WRITES)


class Way(NamedTuple):
    """A way to have no room: where it is, and how it begins for a process and ends."""

    folder: Path
    begin: Callable[[Worker, str], None]
    end: Callable[[], None]
    limited: bool = False


@contextlib.contextmanager
def tmpfs(work: Path) -> Iterator[Way]:
    """A file system in memory, of 16 MiB."""
    with _mounted(["-t", "tmpfs", "-o", "size=16m", "fpdb-torture"], work / "tmpfs") as folder:
        yield _filled(folder)


@contextlib.contextmanager
def ext4(work: Path) -> Iterator[Way]:
    """A file system in a file, of 24 MiB."""
    image = work / "ext4.image"
    with image.open("wb") as file:
        file.truncate(24 * _MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    with _mounted(["-o", "loop", str(image)], work / "ext4") as folder:
        yield _filled(folder)


@contextlib.contextmanager
def limit(work: Path) -> Iterator[Way]:
    """A limit of the system on the size of files."""
    folder = work / "limit"
    folder.mkdir()
    yield Way(folder, lambda *_: None, lambda: None, limited=True)


@contextlib.contextmanager
def injected(work: Path) -> Iterator[Way]:
    """Every write but the first few fails, though there is room."""
    folder = work / "injected"
    folder.mkdir()
    with contextlib.ExitStack() as tracing:

        def begin(worker: Worker, act: str) -> None:
            options = strace.injecting(_WRITES, "error=ENOSPC", "1+" if act == "backup" else "2+")
            tracing.enter_context(strace.traced(worker.pid, *options))

        yield Way(folder, begin, tracing.close)


WAYS = {"tmpfs": tmpfs, "ext4": ext4, "file size limit": limit, "injected ENOSPC": injected}


@contextlib.contextmanager
def _mounted(options: list[str], folder: Path) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        # Lazily, since after a failure some process may still be there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def _filled(folder: Path) -> Way:
    """Fill a small disk with files that can be deleted, and leave a little."""
    ballast = folder / "ballast"

    def begin(_: Worker, act: str) -> None:
        size = 0
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                size += file.write(bytes(1 << 16))
        os.truncate(ballast, size - (_MIB // 8 if act in MAKES else 3 * _MIB))

    def end() -> None:
        ballast.unlink()

    return Way(folder, begin, end)


def missing() -> str:
    """Return what this torment lacks here: nothing, since it skips what this machine lacks."""
    return ""


def lacking(way: str) -> str:
    """Return what a way lacks here."""
    if way in ("tmpfs", "ext4") and os.geteuid():
        return "only root may mount"
    if way == "ext4" and not shutil.which("mkfs.ext4"):
        return "mkfs.ext4 isn't installed"
    return strace.missing() if way == "injected ENOSPC" else ""


def run(rounds: int, seed: int, work: Path, names: list[str] | None = None) -> Figures:
    """Do every act in every way, N rounds; check what is left."""
    control = _control(seed, work)
    count = acknowledged = lost = inconsistent = 0
    notes: dict[str, object] = {}
    with Workers() as workers:
        for name in names or WAYS:
            if lack := lacking(name):
                notes[name] = f"left out: {lack}"
                continue
            for number in going(rounds):
                for act in ACTS:
                    place = work / f"{number}-{act}-{name.replace(' ', '-')}"
                    place.mkdir()
                    with WAYS[name](place) as way:
                        result = _round(way, act, workers, seed + number)
                    count += 1
                    acknowledged += result.acknowledged
                    lost += result.lost
                    inconsistent += bool(result.problems)
                    if result.problems:
                        notes[f"{name}, {act}, {number}"] = result.problems
                    shutil.rmtree(place)
    return Figures(count, acknowledged, lost, inconsistent, control=control, notes=notes)


class Result(NamedTuple):
    """What became of one act on a full disk."""

    acknowledged: int
    lost: int
    problems: list[str]


def _round(way: Way, act: str, workers: Workers, seed: int, flaw: str = "") -> Result:
    path, target = way.folder / "db", way.folder / "made"
    with fpdb.create(path) as db:
        oracle = Oracle(db)
        for operation, _ in zip(Script(seed), range(20), strict=False):
            oracle.hear({"begin": operation})
            oracle.hear({"done": perform(db, operation)})
        rows = [[f"stored {n}", None, n * 0x9E3779B97F4A7C15 % 2**64, None] for n in range(STORED)]
        oracle.hear({"begin": {"op": "load", "documents": rows}})
        oracle.hear({"done": perform(db, {"op": "load", "documents": rows})})
    before = oracle.acknowledged
    worker = workers.take()
    places = {"path": str(path), "target": str(target)}
    worker.begin("full.strain", act=act, seed=seed, limited=way.limited, flaw=flaw, **places)
    worker.ready()
    way.begin(worker, act)
    worker.tell(go=True)
    problems = _expect(worker, oracle, ["DiskFullError"])
    litter = [name for name in os.listdir(way.folder) if name.endswith(".new")]
    problems += [f"it left {name}" for name in litter]
    if act in MAKES and target.exists():
        problems.append("it left an unfinished database")
    worker.tell(go=True)
    problems += _expect(worker, oracle, ["reads go on"])
    way.end()
    worker.tell(go=True)
    problems += _expect(worker, oracle, ["done"])
    if worker.wait(SECONDS) != 0:
        problems.append(f"it died: {worker.errors()[-300:]}")
    workers.drop(worker)
    if act in MAKES and not problems:
        with fpdb.open(target, readonly=True) as made:
            problems += flaws(made)
            if contents(made) != expected_of(act, path):
                problems.append("what it made holds something else")
    verdict = oracle.judge_file(path)
    return Result(oracle.acknowledged - before, verdict.lost, problems + verdict.problems)


def _expect(worker: Worker, oracle: Oracle, expected: list[str]) -> list[str]:
    """Listen until an act has ended; it must have ended like this."""
    for message in worker.listen(SECONDS):
        if "ended" in message:
            ended = message["ended"]
            return [] if ended in expected else [f"found {ended}, expected {expected[0]}"]
        oracle.hear(message)
    return [f"it went silent: {worker.errors()[-300:]}"]


def strain(
    channel: Any,
    path: str,
    target: str,
    *,
    act: str,
    seed: int,
    limited: bool,
    flaw: str,
) -> None:
    """Do an act until there is no room; then read; then, with room, do it again.

    The flaw "deaf" makes a process that acknowledges what has failed.
    """
    script = Script(seed, start=10**9)

    def add() -> None:
        documents = [script.document() for _ in range(100 * SCALE)]
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
            make(act, Path(path), Path(target))
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
            make(act, Path(path), Path(target))

    with fpdb.open(path) as db:
        channel.tell(ready=True)
        channel.hear()
        if limited:
            size = (Path(path) / "data.mdb").stat().st_size
            allowed = min(size // 4, _MIB // 4) if act in MAKES else size + 2 * _MIB
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, hard))
        channel.tell(ended=_outcome(fill_up, "done"))
        channel.hear()
        channel.tell(ended=_outcome(read, "reads go on"))
        channel.hear()
        if limited:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        channel.tell(ended=_outcome(again, "done"))


def _outcome(do: Callable[[], None], fine: str) -> str:
    try:
        do()
    except fpdb.FpdbError as error:
        return type(error).__name__ if error.hint else f"{type(error).__name__} without a hint"
    except BaseException as error:
        return f"bare {type(error).__name__}: {error}"
    return fine


def _control(seed: int, work: Path) -> str:
    """Make a process acknowledge what has failed."""
    place = work / "control"
    place.mkdir()
    with Workers() as workers, limit(place) as way:
        result = _round(way, "add", workers, seed, "deaf")
    if not result.lost:
        raise ControlError("a writer that is deaf to errors lost nothing")
    return f"a writer that is deaf to errors lost {result.lost} documents"
