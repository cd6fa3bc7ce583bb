"""Power cuts: a file system is shut down under a writer, and what was never synced is gone.

The database lies in an image file that is mounted; the shutdown throws away what the system has
not written yet. In half of the rounds a helper has random pieces of the data file written early,
so that what reaches the disk is neither all nor in order.
"""

import contextlib
import ctypes
import fcntl
import itertools
import multiprocessing
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
from figures import ControlError, Figures, going
from oracle import Contents, Oracle, Verdict, contents, flaws
from worker import Worker, Workers
from workload import Script, perform

import fpdb

ROUNDS = 100
SHORTEST, LONGEST = 0.02, 1.5  # seconds until the cut
_MOST_WAITS = 600
SHUT_DOWN, WITHOUT_FLUSH = 0x8004587D, 2  # XFS_IOC_GOINGDOWN, also of ext4
IMAGES = {"ext4": 128 << 20, "xfs": 320 << 20}
BUILT = 3000
CONTROLS = 2  # for each file system, with and without the helper
DIED, REFUSED = "the judge died", "refused"
_PAGE = 4096
_WRITE_NOW = 1 | 2 | 4  # wait for earlier writes, write, wait


def missing() -> str:
    """Return what this torment lacks here."""
    if os.geteuid():
        return "only root may mount"
    if not shutil.which("mkfs.ext4"):
        return "there is no mkfs.ext4"
    try:
        with tempfile.TemporaryDirectory() as folder, Disk(Path(folder), "ext4"):
            return ""
    except (subprocess.CalledProcessError, OSError) as error:
        return f"no image file can be mounted: {error}"


def kinds() -> list[str]:
    """Name the file systems that can be made here."""
    return [kind for kind in IMAGES if shutil.which(f"mkfs.{kind}")]


class Disk:
    """A file system in an image file, mounted until the end of a block."""

    def __init__(self, work: Path, kind: str) -> None:
        self.place = work / "mounted"
        self._image, self._kind = work / f"{kind}.image", kind

    def __enter__(self) -> "Disk":
        self.place.mkdir(exist_ok=True)
        with self._image.open("wb") as image:
            image.truncate(IMAGES[self._kind])
        _command(f"mkfs.{self._kind}", "-q", str(self._image))
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.place.is_mount():
                self._unmount()
        finally:
            self._image.unlink(missing_ok=True)

    def cut(self) -> None:
        """Shut the file system down: nothing more reaches the image."""
        descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("=I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Mount what the image has, as after the power has come back."""
        self._unmount()
        self._mount()

    def _mount(self) -> None:
        _command("mount", "-t", self._kind, "-o", "loop", str(self._image), str(self.place))

    def _unmount(self) -> None:
        for attempt in itertools.count(1):
            try:
                _command("umount", str(self.place))
            except subprocess.CalledProcessError:  # a process that was killed may still be there
                if attempt == 50:
                    raise
                time.sleep(0.1)
            else:
                return


def _command(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def run(rounds: int, seed: int, work: Path, only: str = "") -> Figures:
    """Cut the power again and again, on each file system, with and without the helper."""
    cases = list(itertools.product([only] if only else kinds(), (False, True)))
    with Workers() as workers:
        return _cut_again_and_again(cases, workers, rounds, seed, work)


def _cut_again_and_again(
    cases: list[tuple[str, bool]], workers: Workers, rounds: int, seed: int, work: Path
) -> Figures:
    control = _control(cases, workers, rounds, seed, work)
    totals = {"rounds": 0, "acknowledged": 0, "lost": 0, "inconsistent": 0}
    notes: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for number in going(rounds):
        kind, pushed = cases[number % len(cases)]
        # Every fourth cut of each case follows a backup from the command line at once.
        in_backup = number // len(cases) % 4 == 3
        one = Round(work, workers, kind, seed + number, pushed=pushed, in_backup=in_backup)
        verdict = one.run()
        totals["rounds"] += 1
        totals["acknowledged"] += one.oracle.acknowledged
        totals["lost"] += verdict.lost
        totals["inconsistent"] += bool(verdict.problems)
        case = f"{kind}{', pushed' if pushed else ''}{', in a backup' if in_backup else ''}"
        counts[case] = counts.get(case, 0) + 1
        for copy in one.copies:
            what = f"{copy.partition('-')[0]} acknowledged"
            counts[what] = counts.get(what, 0) + 1
        if not verdict.good:
            notes[f"round {number}, {case}"] = verdict.problems
    return Figures(**totals, control=control, notes={**counts, **notes})


def _control(
    cases: list[tuple[str, bool]], workers: Workers, rounds: int, seed: int, work: Path
) -> str:
    """Cut the power of a writer that doesn't sync; it must lose or be damaged nearly always."""
    outcomes: dict[str, int] = {}
    chosen = cases * (CONTROLS if rounds >= CONTROLS * len(cases) else 1)
    for number, (kind, pushed) in enumerate(chosen):
        one = Round(work, workers, kind, seed - 1 - number, pushed=pushed, sync=False)
        verdict = one.run()
        outcome = "passed" if verdict.good else _failure(verdict)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    if outcomes.get("passed", 0) * 2 > len(chosen):
        raise ControlError(f"without sync, of {len(chosen)} power cuts: {outcomes}")
    shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    return f"without sync, of {len(chosen)} power cuts: {shown}"


def _failure(verdict: Verdict) -> str:
    if verdict.problems[0].startswith(DIED):
        return "killed who read the file"
    return "were refused" if verdict.problems[0].startswith(REFUSED) else "lost documents"


class Round:
    """One power cut: a writer, what it acknowledged, and what is there afterwards."""

    def __init__(
        self,
        work: Path,
        workers: Workers,
        kind: str,
        seed: int,
        *,
        pushed: bool,
        sync: bool = True,
        in_backup: bool = False,
    ) -> None:
        self._disk, self._workers, self._seed = Disk(work, kind), workers, seed
        self._pushed, self._sync, self._in_backup = pushed, sync, in_backup
        self._chance = random.Random(seed)
        self.copies: dict[str, Contents] = {}  # acknowledged
        self._begun: dict[str, Contents] = {}

    def run(self) -> Verdict:
        """Write, cut, mount again and judge."""
        with self._disk as disk:
            path = disk.place / "db"
            with fpdb.create(path, similarity=self._chance.choice([0.8, None])) as db:
                self.oracle = Oracle(db)
            writer = self._workers.take()
            helper = self._workers.take() if self._pushed else None
            if helper:
                helper.begin("power.push_out", path=str(path / "data.mdb"), seed=self._seed)
            try:
                self._write_until_cut(path, writer)
            finally:  # what is open can't be unmounted
                for worker in (writer, helper):
                    if worker:
                        self._workers.drop(worker)
            disk.restart()
            return self._judge(path)

    def _write_until_cut(self, path: Path, writer: Worker) -> None:
        count = self._chance.randint(5, 60) if self._in_backup else None
        writer.begin("power.write", path=str(path), seed=self._seed, sync=self._sync, count=count)
        if self._in_backup:
            self._hear(writer.listen(60))
            self._back_up(path)
        else:
            shortest = SHORTEST if self._sync else LONGEST / 2
            self._hear(writer.listen(self._chance.uniform(shortest, LONGEST)))
            # On a busy machine, the first document may take longer.
            for _ in range(_MOST_WAITS):
                if self.oracle.acknowledged:
                    break
                self._hear(writer.listen(SHORTEST))
        self._disk.cut()
        self._hear(writer.kill())

    def _hear(self, messages: Iterator[dict[str, Any]]) -> None:
        for message in messages:
            self.oracle.hear(message)
            if name := message.get("copying"):
                self._begun[name] = _built() if name.startswith("build") else {}
                if name.startswith("backup"):
                    self._begun[name] = dict(self.oracle.documents)
            elif name := message.get("copied"):
                self.copies[name] = self._begun[name]
            elif message.get("end"):
                return

    def _back_up(self, path: Path) -> None:
        """Make a backup from the command line, until its path is printed."""
        copy = path.with_name("backup-printed")
        command = [sys.executable, "-m", "fpdb", "backup", str(path), "-o", str(copy)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            if process.stdout is None or process.stdout.readline().strip() != str(copy):
                raise RuntimeError("the backup printed no path")
        self._begun[copy.name] = self.copies[copy.name] = dict(self.oracle.documents)

    def _judge(self, path: Path) -> Verdict:
        """Judge in a process of its own, because a damaged file may end it."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=self._judge_here, args=(path, theirs))
        process.start()
        theirs.close()
        with contextlib.suppress(EOFError):
            verdict: Verdict = ours.recv()
            process.join()
            return verdict
        process.join()
        return Verdict(1, [f"{DIED} with exit code {process.exitcode}"])

    def _judge_here(self, path: Path, end: Any) -> None:
        try:
            verdict = self.oracle.judge_file(path)
        except fpdb.FpdbError as error:
            problem = f"{REFUSED}: {type(error).__name__}: {error}"
            verdict = Verdict(len(self.oracle.documents), [problem])
        for name, expected in self._begun.items():
            try:
                with fpdb.open(path.with_name(name)) as copy:
                    problems = flaws(copy)
                    if contents(copy) != expected:
                        problems.append("it holds something else")
            except fpdb.DatabaseNotFoundError:
                problems = ["it isn't there"] if name in self.copies else []
            except fpdb.FpdbError as error:
                problems = [f"{type(error).__name__}: {error}"]
            verdict.lost += bool(problems) and name in self.copies
            verdict.problems += [f"{name}: {problem}" for problem in problems]
        end.send(verdict)


def _built() -> Contents:
    chance = random.Random(BUILT)
    return {f"built {number}": (chance.getrandbits(64), None) for number in range(BUILT)}


def write(channel: Any, path: str, *, seed: int, sync: bool, count: int | None) -> None:
    """Write, back up, build and create, each acknowledged when it is done."""
    if not sync:
        _forget_to_sync()
    place = Path(path)
    makers = itertools.cycle(["backup", "build", "create"])
    with fpdb.open(place) as db:
        for number, operation in enumerate(itertools.islice(Script(seed), count)):
            channel.tell(begin=operation)
            channel.tell(done=perform(db, operation))
            if sync and number % 10 == 9:
                what = next(makers)
                copy = place.with_name(f"{what}-{number}")
                channel.tell(copying=copy.name)
                _make(what, db, copy)
                channel.tell(copied=copy.name)
    channel.tell(end=True)


def _forget_to_sync() -> None:
    """Open LMDB without syncing from now on, in this process."""
    careful = lmdb.open

    def careless(*arguments: Any, **options: Any) -> Any:
        return careful(*arguments, **{**options, "sync": False})

    lmdb.open = careless


def _make(what: str, db: fpdb.Database, copy: Path) -> None:
    if what == "backup":
        db.backup(copy)
    elif what == "create":
        fpdb.create(copy).close()
    else:
        documents = _built()
        with fpdb.build(copy) as built:
            numbers = [number for number, _ in documents.values()]
            built.add_fingerprints(documents, numbers)


def push_out(_: Any, path: str, *, seed: int) -> None:
    """Write random pieces of a file to the disk until killed."""
    chance, libc = random.Random(seed), ctypes.CDLL(None, use_errno=True)
    offset = ctypes.c_int64
    descriptor = os.open(path, os.O_RDWR)
    while True:
        pages = max(os.fstat(descriptor).st_size // _PAGE, 1)
        first, length = chance.randrange(pages), chance.randint(1, 8)
        libc.sync_file_range(
            descriptor, offset(first * _PAGE), offset(length * _PAGE), ctypes.c_uint(_WRITE_NOW)
        )
        if chance.random() < 0.05:
            time.sleep(0.001)
