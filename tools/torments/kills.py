"""Writers and readers of one database; a random one of them is killed each round, and judged.

Alone, a writer is killed with nobody to go on; in half of the rounds its database is one of bits.
"""

import random
import select
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from frame import Figures, caught, going
from oracle import Oracle, Verdict
from worker import Worker, Workers
from workload import LONGEST, MOST, SIMILARITIES, key_of

import fpdb

CONTROL_ROUNDS = 50
OPENING = 10  # one of N is killed while it opens the database, or soon after


class Crowd:
    """The processes, and what they have said."""

    def __init__(
        self, path: Path, kind: str, workers: Workers, seed: int, *, writers: int, readers: int = 0,
        flaw: str = "",
    ) -> None:  # fmt: skip
        self.path, self.flaw, self.kind = path, flaw, kind
        self.checked = self.torn = self.operations = 0
        self.examples: list[str] = []
        self.chance = random.Random(f"{seed} {kind}")
        self._workers, self._seed, self._starts, self._writers = workers, seed, 0, writers
        with fpdb.create(path, keys=kind, similarity=SIMILARITIES[kind]) as db:
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
                flaw=self.flaw,
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
                    self._note(ends[end], [message])
                if worker.ended:
                    raise RuntimeError(f"{ends[end]} ended by itself: {worker.errors()}")

    def _note(self, number: int, messages: Iterable[dict[str, Any]]) -> None:
        for message in messages:
            if self.writes(number):
                self.operations += self.oracle.hear(message, number)
            else:
                self.checked += message["checked"]
                self.torn += message["torn"]
                self.examples += [message["example"]] * bool(message["torn"])

    def kill(self, number: int) -> None:
        """Kill one, and take down what it had still said."""
        worker = self.members[number]
        self._note(number, worker.kill())
        if worker.errors():
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


def run(
    figures: Figures, rounds: int, seed: int, work: Path, writers: int = 1, readers: int = 0,
    kinds: Iterable[str] = ("text", "integer"),
) -> None:  # fmt: skip
    figures.control = _early(seed, work, writers)
    if readers:
        figures.control += f"; {_split(seed, work, writers, readers)}"
    kinds = list(kinds)
    for place, kind in enumerate(kinds):
        with Workers() as workers:
            crowd = Crowd(work / kind, kind, workers, seed, writers=writers, readers=readers)
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


def _early(seed: int, work: Path, writers: int) -> str:
    with Workers() as workers:
        crowd = Crowd(work / "early", "text", workers, seed, writers=writers, flaw="early")

        def attempt(number: int) -> str:
            verdict = crowd.round(number, crowd.chance.randrange(writers))
            return f"{verdict.lost} documents lost" if verdict.lost else ""

        return caught("acknowledging before writing", CONTROL_ROUNDS, attempt)


def _split(seed: int, work: Path, writers: int, readers: int) -> str:
    with Workers() as workers:
        crowd = Crowd(
            work / "split", "text", workers, seed, writers=writers, readers=readers, flaw="split"
        )

        def attempt(_: int) -> str:
            crowd.listen(0.2)
            return f"{crowd.torn} torn views" if crowd.torn else ""

        return caught("writing in two steps", 100, attempt)
