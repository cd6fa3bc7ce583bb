"""One writer, killed at random moments."""

import random
from pathlib import Path

from figures import ControlError, Figures, going
from oracle import Oracle, Verdict
from worker import Workers
from workload import LONGEST, MOST, SIMILARITIES

import fpdb

ROUNDS = 1000
CONTROL_ROUNDS = 50
OPENING = 10  # one of N is killed while it opens the database, or soon after


def missing() -> str:
    """Return what this torment lacks here: nothing."""
    return ""


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Kill a writer again and again, and judge its database each time; half of them of bits."""
    control = _control(seed, work)
    total = {"rounds": 0, "acknowledged": 0, "lost": 0, "inconsistent": 0}
    notes: dict[str, object] = {}
    for kind, share in (("text", (rounds + 1) // 2), ("integer", rounds // 2)):
        path = work / kind
        with fpdb.create(path, keys=kind, similarity=SIMILARITIES[kind]) as db:
            oracle = Oracle(db)
        chance, kills, operations, idle = random.Random(f"{seed} {kind}"), 0, 0, 0
        with Workers() as workers:
            for number in going(share):
                done, verdict = _round(path, oracle, workers, seed, number, "", chance)
                kills += 1
                operations += done
                idle += not done
                total["lost"] += verdict.lost
                total["inconsistent"] += bool(verdict.problems)
                if not verdict.good:
                    notes[f"{kind} {number}"] = verdict.problems
        total["acknowledged"] += oracle.acknowledged
        total["rounds"] += kills
        notes[f"{kind} keys"] = {
            "kills": kills,
            "operations": operations,
            "kills before the first": idle,
            "documents at the end": len(oracle.documents),
        }
    return Figures(**total, control=control, notes=notes)


def _round(
    path: Path,
    oracle: Oracle,
    workers: Workers,
    seed: int,
    number: int,
    flaw: str,
    chance: random.Random,
) -> tuple[int, Verdict]:
    """Run some operations in a writer, kill it in the next one, and check what it leaves."""
    worker = workers.take()
    worker.begin("workload.write", path=str(path), seed=seed, start=number * 100_000, flaw=flaw)
    # Operations are counted, and seconds only within the last, so that a slow machine has no say.
    wanted = 0 if number % OPENING == 0 else chance.randint(1, MOST)
    done = 0
    while done < wanted:
        message = worker.hear(60)
        if message is None:
            raise RuntimeError(f"a writer ended by itself: {worker.errors()}")
        done += oracle.hear(message)
    done += oracle.hear_all(worker.listen(chance.random() * LONGEST))
    done += oracle.hear_all(worker.kill())
    if worker.errors():
        raise RuntimeError(worker.errors())
    workers.drop(worker)
    return done, oracle.judge_file(path)


def _control(seed: int, work: Path) -> str:
    """Kill a writer that acknowledges too early, until it loses something."""
    path = work / "control"
    with fpdb.create(path) as db:
        oracle = Oracle(db)
    chance = random.Random(seed)
    with Workers() as workers:
        for number in range(CONTROL_ROUNDS):
            _, verdict = _round(path, oracle, workers, seed, number, "early", chance)
            if verdict.lost:
                return (
                    f"a writer that acknowledges before it writes lost {verdict.lost} documents "
                    f"at kill {number + 1}"
                )
    raise ControlError(f"acknowledging too early lost nothing in {CONTROL_ROUNDS} kills")
