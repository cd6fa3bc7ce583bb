"""Three writers and two readers of one database; a random one of the five is killed each round."""

import random
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from figures import ControlError, Figures, going
from oracle import Oracle, Verdict
from worker import Worker, Workers
from workload import LONGEST, MOST, key_of

import fpdb

ROUNDS = 1000
CONTROL_ROUNDS = 50
WRITERS, READERS = 3, 2


class Member(NamedTuple):
    """One of the five, and the keys that only it writes."""

    number: int
    worker: Worker

    @property
    def writes(self) -> bool:
        """Whether it is a writer."""
        return self.number < WRITERS


class Crowd:
    """The processes, and what they have said."""

    def __init__(self, path: Path, workers: Workers, *, seed: int, flaw: str = "") -> None:
        self.path, self.flaw = path, flaw
        self.checked = self.torn = self.operations = 0
        self.examples: list[str] = []
        self._workers, self._seed, self._starts = workers, seed, 0
        with fpdb.open(path) as db:
            self.oracle = Oracle(db, alone=False)
            self._kind = db.keys
        self.members = [self._start(number) for number in range(WRITERS + READERS)]

    def _start(self, number: int) -> Member:
        member = Member(number, self._workers.take())
        self._starts += 1
        path, seed = str(self.path), self._seed
        if member.writes:
            member.worker.begin(
                "workload.write",
                path=path,
                seed=seed,
                start=self._starts * 100_000,
                writer=number,
                skip="single",
                flaw=self.flaw,
            )
        else:
            member.worker.begin(
                "workload.read", path=path, seed=seed + self._starts, writers=WRITERS
            )
        return member

    def work(self, operations: int, seconds: float) -> None:
        """Collect all reports, until enough was done and for some seconds more."""
        wanted = self.operations + operations
        while self.operations < wanted:
            self.listen(0.02)
        self.listen(seconds)

    def listen(self, seconds: float) -> None:
        """Take down what all say for some time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ends = [member.worker.end for member in self.members]
            ready = select.select(ends, [], [], left)[0]
            for member in self.members:
                if member.worker.end in ready:
                    self._hear(member)

    def _hear(self, member: Member) -> None:
        while (message := member.worker.hear(0)) is not None:
            self._note(member, message)
        if member.worker.ended:
            raise RuntimeError(f"{member.number} ended by itself: {member.worker.errors()}")

    def _note(self, member: Member, message: dict[str, Any]) -> None:
        if member.writes:
            self.operations += self.oracle.hear(message, member.number)
            return
        self.checked += message["checked"]
        self.torn += message["torn"]
        self.examples += [message["example"]] * bool(message["torn"])

    def kill(self, place: int) -> Member:
        """Kill one of them."""
        member = self.members[place]
        for message in member.worker.kill():
            self._note(member, message)
        if member.worker.errors():
            raise RuntimeError(member.worker.errors())
        self._workers.drop(member.worker)
        return member

    def judge(self, db: fpdb.Database, member: Member) -> Verdict:
        """Judge what a killed writer has written, while the others go on."""
        # If it was killed between its commit and telling of it, which is a number in memory that
        # LMDB's readers share, then its commit shows with the next one. So let there be one.
        db.delete("nobody's")
        whose = self.owner(member.number)
        return self.oracle.judge(db, whose=whose, writers=[member.number])

    def replace(self, place: int) -> None:
        """Start another one in the place of one that was killed."""
        self.members[place] = self._start(self.members[place].number)

    def owner(self, number: int) -> Callable[[Any], bool]:
        """Return a function that returns whether a key is one of a writer's."""
        if self._kind == "integer":
            return lambda key: key // 1_000_000 == number
        start = str(key_of(self._kind, number, 1))[:-1]
        return lambda key: key.startswith(start)


def missing() -> str:
    """Return what this torment lacks here: nothing."""
    return ""


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Kill a random process each round, and judge what it has written while the others go on."""
    control = _early(seed, work) + "; " + _split(seed, work)
    chance = random.Random(seed)
    path = work / "crowd"
    lost = inconsistent = 0
    killed = {"writers": 0, "readers": 0}
    notes: dict[str, object] = {}
    fpdb.create(path).close()
    with Workers() as workers, fpdb.open(path) as db:
        crowd = Crowd(path, workers, seed=seed)
        for number in going(rounds):
            crowd.work(chance.randint(0, MOST), chance.random() * LONGEST)
            place = chance.randrange(WRITERS + READERS)
            member = crowd.kill(place)
            killed["writers" if member.writes else "readers"] += 1
            if member.writes:
                verdict = crowd.judge(db, member)
                lost += verdict.lost
                inconsistent += bool(verdict.problems)
                if not verdict.good:
                    notes[f"kill {number}"] = verdict.problems
            crowd.replace(place)
        for place in range(WRITERS + READERS):
            crowd.kill(place)
    verdict = crowd.oracle.judge_file(path)
    notes |= {
        "killed": killed,
        "operations": crowd.operations,
        "documents that readers looked at": crowd.checked,
        "torn views": crowd.torn,
        "wrong at the end": verdict.problems + crowd.examples[:3],
    }
    return Figures(
        sum(killed.values()),
        crowd.oracle.acknowledged,
        lost + verdict.lost,
        inconsistent + bool(verdict.problems) + crowd.torn,
        control=control,
        notes=notes,
    )


def _early(seed: int, work: Path) -> str:
    """Kill writers that acknowledge too early, until one of them loses something."""
    path = work / "early"
    fpdb.create(path).close()
    chance = random.Random(seed)
    with Workers() as workers, fpdb.open(path) as db:
        crowd = Crowd(path, workers, seed=seed, flaw="early")
        for number in range(CONTROL_ROUNDS):
            crowd.work(chance.randint(0, MOST), chance.random() * LONGEST)
            place = chance.randrange(WRITERS)
            if crowd.judge(db, crowd.kill(place)).lost:
                return f"writers that acknowledge before they write lost documents, kill {number}"
            crowd.replace(place)
    raise ControlError(f"acknowledging too early lost nothing in {CONTROL_ROUNDS} kills")


def _split(seed: int, work: Path) -> str:
    """Write in several transactions what belongs together, until a reader sees it."""
    path = work / "split"
    fpdb.create(path).close()
    with Workers() as workers:
        crowd = Crowd(path, workers, seed=seed, flaw="split")
        for _ in range(100):
            crowd.listen(0.2)
            if crowd.torn:
                return f"readers saw {crowd.torn} torn views of writers that write in two steps"
    raise ControlError("readers saw no torn view of writers that write in two steps")
