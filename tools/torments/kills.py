"""One writer, killed at random moments."""

import random
from pathlib import Path

from figures import ControlError, Figures
from oracle import Oracle, Verdict
from worker import Workers

import fpdb

ROUNDS = 1000
CONTROL_ROUNDS = 50
LONGEST = 0.25  # seconds until the kill
OPENING = 10


def missing() -> str:
    """Say what this torment lacks here: it needs nothing."""
    return ""


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Kill a writer again and again, and judge its database each time; half with integer keys."""
    control = _control(seed, work)
    total = {"acknowledged": 0, "lost": 0, "inconsistent": 0}
    notes: dict[str, object] = {}
    for kind, share in (("text", (rounds + 1) // 2), ("integer", rounds // 2)):
        path = work / kind
        with fpdb.create(path, keys=kind) as db:
            oracle = Oracle(db.recipe, db.k)
        chance, operations, idle = random.Random(f"{seed} {kind}"), 0, 0
        with Workers() as workers:
            for number in range(share):
                done, verdict = _round(
                    path, oracle, workers, seed, number, "", chance.random() * LONGEST
                )
                operations += done
                idle += not done
                total["lost"] += verdict.lost
                total["inconsistent"] += bool(verdict.problems)
                if not verdict.good:
                    notes[f"{kind} {number}"] = verdict.problems
        total["acknowledged"] += oracle.acknowledged
        notes[f"{kind} keys"] = {
            "kills": share,
            "operations": operations,
            "kills before the first": idle,
            "documents at the end": len(oracle.documents),
        }
    return Figures(rounds, **total, control=control, notes=notes)


def _round(
    path: Path, oracle: Oracle, workers: Workers, seed: int, number: int, flaw: str, seconds: float
) -> tuple[int, Verdict]:
    """Let a writer write for some time, kill it, and judge what it leaves."""
    worker = workers.take()
    worker.begin("workload.write", path=str(path), seed=seed, start=number * 100_000, flaw=flaw)
    # Some are killed while they open the database; of the rest, the clock starts at the first
    # operation, however slow the machine is.
    first = worker.hear(0 if number % OPENING == 0 else 60)
    done = oracle.hear_all([first] if first else [])
    done += oracle.hear_all(worker.listen(seconds))
    done += oracle.hear_all(worker.kill())
    if worker.errors():
        raise RuntimeError(worker.errors())
    workers.drop(worker)
    return done, oracle.judge_file(path)


def _control(seed: int, work: Path) -> str:
    """Kill a writer that acknowledges too early, until it loses something."""
    path = work / "control"
    with fpdb.create(path) as db:
        oracle = Oracle(db.recipe, db.k)
    chance = random.Random(seed)
    with Workers() as workers:
        for number in range(CONTROL_ROUNDS):
            seconds = chance.random() * LONGEST
            _, verdict = _round(path, oracle, workers, seed, number, "early", seconds)
            if verdict.lost:
                return (
                    f"a writer that acknowledges before it writes lost {verdict.lost} documents "
                    f"at kill {number + 1}"
                )
    raise ControlError(f"acknowledging too early lost nothing in {CONTROL_ROUNDS} kills")
