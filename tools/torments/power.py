"""Power cuts: a file system is shut down under a writer, and what was never synced is gone.

The database lies in an image file that is mounted; the shutdown throws away what the system has
not written yet. In half of the rounds a helper has random pieces of the data file written early,
so that what reaches the disk is neither all nor in order.
"""

import ctypes
import itertools
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import disks
from disks import Disk
from frame import ControlError, Figures, apart, going
from oracle import Contents, Oracle, Verdict, contents, flaws
from worker import Worker, Workers
from workload import built

import fpdb

SHORTEST, LONGEST = 0.02, 1.5  # seconds until the cut
_MOST_WAITS = 600
CONTROLS = 2  # for each file system, with and without the helper
DIED, REFUSED = "the judge died", "refused"
_PAGE = 4096
_WRITE_NOW = 1 | 2 | 4  # wait for earlier writes, write, wait

missing = disks.missing


def run(figures: Figures, rounds: int, seed: int, work: Path, only: str = "") -> None:
    systems = [only] if only else [kind for kind in disks.IMAGES if not disks.missing(kind)]
    cases = list(itertools.product(systems, (False, True)))
    with Workers() as workers:
        figures.control = _control(cases, workers, rounds, seed, work)
        for number in going(rounds):
            kind, pushed = cases[number % len(cases)]
            # Every fourth cut of each case follows a backup from the command line at once.
            in_backup = number // len(cases) % 4 == 3
            one = Round(work, workers, kind, seed + number, pushed=pushed, in_backup=in_backup)
            verdict = one.run()
            case = f"{kind}{', pushed' if pushed else ''}{', in a backup' if in_backup else ''}"
            figures.add(
                f"round {number}, {case}", verdict.problems, lost=verdict.lost,
                acknowledged=one.oracle.acknowledged,
            )  # fmt: skip
            figures.count("cuts", case)
            figures.count("acknowledged", *(copy.partition("-")[0] for copy in one.copies))


def _control(
    cases: list[tuple[str, bool]], workers: Workers, rounds: int, seed: int, work: Path
) -> str:
    """Cut the power of a writer that doesn't sync; it must lose or be damaged nearly always."""
    outcomes: Counter[str] = Counter()
    chosen = cases * (CONTROLS if rounds >= CONTROLS * len(cases) else 1)
    for number, (kind, pushed) in enumerate(chosen):
        verdict = Round(work, workers, kind, seed - 1 - number, pushed=pushed, sync=False).run()
        outcomes["passed" if verdict.good else _failure(verdict)] += 1
    if outcomes["passed"] * 2 > len(chosen):
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
        with self._disk as disk:
            path = disk.place / "db"
            with fpdb.create(path, similarity=self._chance.choice([0.8, None])) as db:
                self.oracle = Oracle(db)
            writer = self._workers.take()
            helper = self._workers.take() if self._pushed else None
            if helper:
                helper.begin("power.push_out", str(path / "data.mdb"), self._seed)
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
        writer.begin(
            *("workload.write", str(path), self._seed), count=count, copies=self._sync,
            flaw="" if self._sync else "careless",
        )  # fmt: skip
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
                new = ((key, (number, None)) for key, number in built())
                self._begun[name] = dict(new) if name.startswith("build") else {}
                if name.startswith("backup"):
                    self._begun[name] = dict(self.oracle.documents)
            elif name := message.get("copied"):
                self.copies[name] = self._begun[name]
            elif message.get("end"):
                return

    def _back_up(self, path: Path) -> None:
        copy = path.with_name("backup-printed")
        command = [sys.executable, "-m", "fpdb", "backup", str(path), "-o", str(copy)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            if process.stderr is None or not process.stderr.readline().startswith(f"{copy}: "):
                raise RuntimeError("the backup didn't say that it is complete")
        self._begun[copy.name] = self.copies[copy.name] = dict(self.oracle.documents)

    def _judge(self, path: Path) -> Verdict:
        # A damaged file may end the process that judges it.
        verdict, died, error = apart(lambda: self._judge_here(path))
        return verdict or Verdict(1, [f"{DIED} by {died}{error}"])

    def _judge_here(self, path: Path) -> Verdict:
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
        return verdict


def push_out(_: Any, path: str, seed: int) -> None:
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
