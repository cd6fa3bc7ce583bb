"""Crashes of processes and of the machine: writers are killed, or the power of their disk is cut.

Of a crowd of writers and readers of one database, a random one is killed each round. A power cut
shuts down the file system of a writer, an image that is mounted, and throws away what the system
has not written yet. In half of the cuts a helper has random pieces of the data file written early,
so that what reaches the disk is neither all nor in order.
"""

import ctypes
import itertools
import os
import random
import select
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import disks
from disks import Disk
from frame import ControlError, Figures, apart, caught, going
from oracle import Contents, Oracle, Verdict, contents, flaws
from worker import Worker, Workers
from workload import LONGEST, MOST, SIMILARITIES, built, key_of

import fpdb

CONTROL_ROUNDS = 50
OPENING = 10  # one of N is killed while it opens the database, or soon after
SHORTEST_CUT, LONGEST_CUT = 0.02, 1.5  # seconds until the power is cut
CONTROL_CUTS = 2  # for each file system, with and without the helper
DIED, REFUSED = "the judge died", "refused"
_PAGE = 4096
_WRITE_NOW = 1 | 2 | 4  # wait for earlier writes, write, wait


class Crowd:
    """The processes, and what they have said."""

    def __init__(
        self, path: Path, kind: str, workers: Workers, seed: int, *, writers: int = 1,
        readers: int = 0, similarity: float | None = 0.8, **options: Any,
    ) -> None:  # fmt: skip
        self.path, self.kind, self.options = path, kind, options
        self.checked = self.torn = self.operations = 0
        self.examples: list[str] = []
        self.begun: dict[str, Contents] = {}  # the other databases, by their names
        self.made: list[str] = []
        self.chance = random.Random(f"{seed} {kind}")
        self._workers, self._seed, self._starts, self._writers = workers, seed, 0, writers
        grouped = similarity is not None
        with fpdb.create(path, keys=kind, similarity=similarity, groups=grouped) as db:
            self.oracle = Oracle(db, alone=writers == 1)
        self.members = {number: self._start(number) for number in range(writers + readers)}

    def writes(self, number: int) -> bool:
        """Whether a member writes; its keys are only its own."""
        return number < self._writers

    def _start(self, number: int) -> Worker:
        worker = self._workers.take()
        self._starts += 1
        path, seed = str(self.path), self._seed
        if self.writes(number):
            worker.begin(
                *("workload.write", path, seed),
                start=self._starts * 100_000,
                writer=number,
                skip="batches" if self._writers == 1 else "single",
                **self.options,
            )
        else:
            worker.begin("workload.read", path, seed + self._starts, self._writers)
        return worker

    def work(self, number: int) -> None:
        """Take down all reports until enough was done, and for a moment more."""
        # Operations are counted, and seconds only within the last: a slow machine has no say.
        most = 0 if number % OPENING == 0 else self.chance.randint(1, MOST)
        wanted = self.operations + most
        while self.operations < wanted:
            self.listen(0.02)
        self.listen(self.chance.random() * LONGEST)

    def listen(self, seconds: float) -> None:
        """Take down what all say for some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ends = {worker.end: number for number, worker in self.members.items()}
            for end in select.select(list(ends), [], [], left)[0]:
                worker = self.members[ends[end]]
                while (message := worker.hear(0)) is not None:
                    self._note(ends[end], message)
                if worker.ended:
                    raise RuntimeError(f"{ends[end]} ended by itself: {worker.errors()}")

    def _note(self, number: int, message: dict[str, Any]) -> None:
        if not self.writes(number):
            self.checked += message["checked"]
            self.torn += message["torn"]
            self.examples += [message["example"]] * bool(message["torn"])
        elif name := message.get("copying"):
            new = {key: (number, None) for key, number in built()} if "build" in name else {}
            self.begun[name] = dict(self.oracle.documents) if "backup" in name else new
        elif name := message.get("copied"):
            self.made.append(name)
        else:
            self.operations += self.oracle.hear(message, number)

    def kill(self, number: int, *, failed: bool = False) -> None:
        """Kill one, and take down what it had still said; its disk may have `failed` it."""
        worker = self.members[number]
        for message in worker.kill():
            self._note(number, message)
        if worker.errors() and not failed:
            raise RuntimeError(worker.errors())
        self._workers.drop(worker)

    def judge(self, number: int) -> Verdict:
        """Judge what a killed writer has written, while the others go on."""
        with fpdb.open(self.path) as db:
            if len(self.members) == 1:
                return self.oracle.judge(db)
            # If it was killed between its commit and telling of it, which is a number in memory
            # that LMDB's readers share, then its commit shows with the next one. So make one.
            db.delete("nobody's")
            start = str(key_of(self.kind, number, 1))[:-1]
            return self.oracle.judge(db, whose=lambda key: key.startswith(start), writers=[number])

    def round(self, turn: int, killed: int) -> Verdict:
        """Let all work, kill one, judge it if it wrote, and start another one in its place."""
        self.work(turn)
        self.kill(killed)
        verdict = self.judge(killed) if self.writes(killed) else Verdict()
        self.members[killed] = self._start(killed)
        return verdict

    def judge_cut(self) -> Verdict:
        """Judge what is there after a power cut: the database, and the others that were made."""
        try:
            verdict = self.oracle.judge_file(self.path)
        except fpdb.FpdbError as error:
            problem = f"{REFUSED}: {type(error).__name__}: {error}"
            verdict = Verdict(len(self.oracle.documents), [problem])
        for name, expected in self.begun.items():
            try:
                with fpdb.open(self.path.with_name(name)) as copy:
                    problems = flaws(copy)
                    if contents(copy) != expected:
                        problems.append("it holds something else")
            except fpdb.DatabaseNotFoundError:
                problems = ["it isn't there"] * (name in self.made)
            except fpdb.FpdbError as error:
                problems = [f"{type(error).__name__}: {error}"]
            verdict.lost += bool(problems) and name in self.made
            verdict.problems += [f"{name}: {problem}" for problem in problems]
        return verdict


def run(
    figures: Figures, rounds: int, seed: int, work: Path, writers: int = 1, readers: int = 0,
    kinds: Iterable[str] = ("text", "integer"),
) -> None:  # fmt: skip
    """Kill a member of a crowd each round; alone, in half of the rounds, of a database of bits."""
    sizes = {"writers": writers, "readers": readers}
    figures.control = _known_bad("early", seed, work, **sizes)
    if readers:
        figures.control += f"; {_known_bad('split', seed, work, **sizes)}"
    kinds = list(kinds)
    for place, kind in enumerate(kinds):
        with Workers() as workers:
            own = {"similarity": SIMILARITIES[kind], **sizes}
            crowd = Crowd(work / kind, kind, workers, seed, **own)
            for number in going((rounds + place) // len(kinds)):
                before = crowd.operations
                killed = crowd.chance.randrange(writers + readers)
                verdict = crowd.round(number, killed)
                figures.add(f"{kind} {number}", verdict.problems, lost=verdict.lost)
                idle = ["before the first operation"] * (crowd.operations == before)
                figures.count("killed", "writers" if crowd.writes(killed) else "readers", *idle)
            for member in range(writers + readers):
                crowd.kill(member)
        verdict = crowd.oracle.judge_file(crowd.path)
        figures.lost += verdict.lost
        figures.inconsistent += bool(verdict.problems) + crowd.torn
        figures.acknowledged += crowd.oracle.acknowledged
        figures.notes[f"{kind} keys"] = {
            "operations": crowd.operations,
            "documents at the end": len(crowd.oracle.documents),
            "documents that readers looked at": crowd.checked,
            "torn views": crowd.torn,
            "wrong at the end": verdict.problems + crowd.examples[:3],
        }


def _known_bad(flaw: str, seed: int, work: Path, writers: int, readers: int) -> str:
    """Let writers acknowledge before they write, or write in two steps, until it shows."""
    with Workers() as workers:
        readers = readers if flaw == "split" else 0
        own = {"writers": writers, "readers": readers, "flaw": flaw}
        crowd = Crowd(work / flaw, "text", workers, seed, **own)

        def attempt(number: int) -> str:
            if flaw == "split":
                crowd.listen(0.2)
                return f"{crowd.torn} torn views" if crowd.torn else ""
            lost = crowd.round(number, crowd.chance.randrange(writers)).lost
            return f"{lost} documents lost" if lost else ""

        return caught(f"a writer with the flaw {flaw!r}", 2 * CONTROL_ROUNDS, attempt)


def run_cuts(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Cut the power of a writer, which also makes other databases, on each kind of file system."""
    systems = [kind for kind in disks.IMAGES if not disks.missing(kind)]
    cases = list(itertools.product(systems, (False, True)))
    with Workers() as workers:
        figures.control = _without_sync(cases, workers, rounds, seed, work)
        for number in going(rounds):
            kind, pushed = cases[number % len(cases)]
            verdict, crowd = _cut(work, workers, kind, seed + number, pushed=pushed)
            case = f"{kind}{', pushed' if pushed else ''}"
            figures.add(
                f"round {number}, {case}", verdict.problems, lost=verdict.lost,
                acknowledged=crowd.oracle.acknowledged,
            )  # fmt: skip
            figures.count("cuts", case)
            figures.count("acknowledged", *(name.partition("-")[0] for name in crowd.made))


def _cut(
    work: Path, workers: Workers, kind: str, seed: int, *, pushed: bool, sync: bool = True
) -> tuple[Verdict, Crowd]:
    """Cut the power of a writer once; return what it acknowledged, judged."""
    chance = random.Random(seed)
    with Disk(work, kind) as disk:
        path = disk.place / "db"
        crowd = Crowd(
            path, "text", workers, seed, similarity=chance.choice([0.8, None]), copies=sync,
            flaw="" if sync else "careless",
        )  # fmt: skip
        helper = workers.take()
        helper.begin("crashes.push_out", str(path / "data.mdb"), seed, on=pushed)
        try:
            crowd.listen(chance.uniform(SHORTEST_CUT if sync else LONGEST_CUT / 2, LONGEST_CUT))
            while not crowd.operations:  # on a busy machine, the first document may take longer
                crowd.listen(SHORTEST_CUT)
            disk.cut()
        finally:  # what is open can't be unmounted
            crowd.kill(0, failed=True)
            workers.drop(helper)
        disk.restart()
        # A damaged file may end the process that judges it.
        verdict, died, error = apart(crowd.judge_cut)
        return verdict or Verdict(1, [f"{DIED} by {died}{error}"]), crowd


def _without_sync(
    cases: list[tuple[str, bool]], workers: Workers, rounds: int, seed: int, work: Path
) -> str:
    """Cut the power of a writer that doesn't sync; it must lose or be damaged nearly always."""
    outcomes: Counter[str] = Counter()
    chosen = cases * (CONTROL_CUTS if rounds >= CONTROL_CUTS * len(cases) else 1)
    for number, (kind, pushed) in enumerate(chosen):
        verdict, _ = _cut(work, workers, kind, seed - 1 - number, pushed=pushed, sync=False)
        how = "passed" if verdict.good else "lost documents"
        for start, named in ((DIED, "killed who read the file"), (REFUSED, "were refused")):
            if verdict.problems and verdict.problems[0].startswith(start):
                how = named
        outcomes[how] += 1
    shown = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    shown = f"without sync, of {len(chosen)} power cuts: {shown}"
    if outcomes["passed"] * 2 > len(chosen):
        raise ControlError(shown)
    return shown


def push_out(_: Any, path: str, seed: int, *, on: bool) -> None:
    chance, libc = random.Random(seed), ctypes.CDLL(None, use_errno=True)
    offset = ctypes.c_int64
    descriptor = os.open(path, os.O_RDWR)
    while on:
        pages = max(os.fstat(descriptor).st_size // _PAGE, 1)
        first, length = chance.randrange(pages), chance.randint(1, 8)
        libc.sync_file_range(
            descriptor, offset(first * _PAGE), offset(length * _PAGE), ctypes.c_uint(_WRITE_NOW)
        )
        if chance.random() < 0.05:
            time.sleep(0.001)
