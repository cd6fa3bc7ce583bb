"""A kill, EIO and ENOSPC at every system call with which an act changes the disk."""

from pathlib import Path
from typing import NamedTuple

import strace
from acts import Act, Place, acts
from figures import ControlError, Figures, going
from oracle import Verdict
from strace import Call
from worker import Worker, Workers

ROUNDS = 1_000_000  # more calls than there are: all of them
SECONDS = 60

_EXPECTED = {"EIO": {"done", "DamagedError"}, "ENOSPC": {"done", "DiskFullError"}}


class Outcome(NamedTuple):
    """What became of one act: how it ended ("" if it was killed), and what was wrong."""

    ended: str
    lost: int
    problems: list[str]


def missing() -> str:
    """Return what this torment lacks here."""
    return strace.missing()


def run(rounds: int, seed: int, work: Path, names: list[str] | None = None) -> Figures:
    """Kill and fail at every call of all acts, or of some; `rounds` bounds the calls of each."""
    with Workers() as workers:
        torment = Torment(Place(work, seed), workers)
        control = torment.control(acts(seed))
        lost = inconsistent = acknowledged = total = 0
        notes: dict[str, object] = {}
        for act in acts(seed):
            if names and act.name not in names:
                continue
            found = torment.calls(act)
            faults = [("KILL", call) for call in found]
            faults += [("EIO", call) for call in found if call.name not in strace.CREATES]
            grows = [*strace.WRITES, *strace.CREATES, "mkdir", "rename"]
            faults += [("ENOSPC", call) for call in found if call.name in grows]
            counts: dict[str, int] = {}
            chosen = _spread(faults, rounds)
            for place in going(len(chosen)):
                fault, call = chosen[place]
                total += 1
                outcome = torment.round(act, fault, call)
                ended = f"{fault}: {outcome.ended or 'killed'}"
                counts[ended] = counts.get(ended, 0) + 1
                lost += outcome.lost
                inconsistent += bool(outcome.problems)
                acknowledged += outcome.ended == "done"
                if outcome.problems:
                    notes[f"{act.name}, {fault} at {call}"] = outcome.problems
            called = [call.name for call in found]
            notes[act.name] = {
                "calls": {name: called.count(name) for name in dict.fromkeys(called)},
                **counts,
            }
    return Figures(total, acknowledged, lost, inconsistent, control=control, notes=notes)


def _spread(faults: list[tuple[str, Call]], rounds: int) -> list[tuple[str, Call]]:
    """Choose N, spread over all of them."""
    step = max(1, -(-len(faults) // rounds))
    return faults[::step]


class Torment:
    """Runs acts in a place, with processes to run them in."""

    def __init__(self, place: Place, workers: Workers) -> None:
        self._place, self._workers = place, workers

    def calls(self, act: Act) -> list[Call]:
        """List the calls of an act that change the disk."""
        self._place.renew(act)
        log = self._place.work / "calls"
        worker = self._start(act)
        options = ["-o", str(log), "-e", f"trace={','.join(strace.STORAGE)}"]
        with strace.traced(worker.pid, *options):
            worker.tell(go=True)
            ended = worker.hear(SECONDS)
        self._workers.drop(worker)
        if ended != {"ended": "done"}:
            raise RuntimeError(f"{act.name} doesn't work: {ended}")
        return strace.calls(log, strace.STORAGE)

    def round(self, act: Act, fault: str, call: Call, flaw: str = "") -> Outcome:
        """Do an act with a fault at one call, and judge what it leaves."""
        self._place.renew(act)
        worker = self._start(act, flaw)
        what = "signal=KILL" if fault == "KILL" else f"error={fault}"
        options = strace.injecting(call.name, what, str(call.number))
        with strace.traced(worker.pid, *options, threads=call.name not in strace.CREATES) as trace:
            worker.tell(go=True)
            message = worker.hear(SECONDS)
            if message is None:
                trace.wait(SECONDS)
        ended = message["ended"] if message else ""
        problems = []
        if message is None and (fault != "KILL" or worker.wait(SECONDS) != -9):
            problems.append(f"it died: {worker.errors()[-300:]}")
        elif message and fault != "KILL":
            problems += self._unexpected(act, fault, ended)
        verdict = self._judge(act, ended)
        if message and not act.makes:
            problems += verdict.problems
            worker.tell(go=True)
            again = worker.hear(SECONDS)
            if again != {"again": "done"}:
                problems.append(f"again it ended with {again}")
            # What may be skipped depends on what is stored, so to do it twice isn't to do it once.
            later = self._judge(act, "done", times=2 if ended == "done" else 1)
            verdict = Verdict(verdict.lost + later.lost, later.problems)
        self._workers.drop(worker)
        problems += verdict.problems
        if act.makes:
            problems += self._place.judge_made(act, acknowledged=ended == "done")
        elif act.name == "compact in place":
            problems += self._place.judge_drafts()
        return Outcome(ended, verdict.lost, problems)

    def _judge(self, act: Act, ended: str, times: int = 1) -> Verdict:
        """Judge the database of an act; what isn't done may be there or not."""
        oracle = self._place.oracle(act)
        for _ in range(times if act.operation else 0):
            oracle.hear({"begin": act.operation})
            if ended == "done":
                oracle.hear({"done": None})
        return oracle.judge_file(self._place.path)

    def _unexpected(self, act: Act, fault: str, ended: str) -> list[str]:
        problems = []
        if ended not in _EXPECTED[fault]:
            problems.append(f"it ended with {ended}")
        clean = act.makes
        if clean and ended != "done" and (drafts := self._place.drafts()):
            problems.append(f"it left {[draft.name for draft in drafts]}")
        return problems

    def _start(self, act: Act, flaw: str = "") -> Worker:
        worker = self._workers.take()
        worker.begin(
            "acts.act",
            path=str(self._place.path),
            target=str(self._place.target),
            name=act.name,
            operation=act.operation,
            flaw=flaw,
        )
        worker.ready()
        return worker

    def control(self, everything: list[Act]) -> str:
        """Run an act in processes with a known fault, until they are caught."""
        [act] = [act for act in everything if act.name == "add 302 at once"]
        small = act._replace(operation={**(act.operation or {}), "skip": False})
        assert small.operation is not None
        small.operation["documents"] = small.operation["documents"][-4:]
        said = []
        for fault, flaw in (("KILL", "split"), ("EIO", "deaf")):
            for number in range(1, 20):
                call = Call("fdatasync", number)
                outcome = self.round(small, fault, call, flaw)
                if outcome.problems:
                    said.append(
                        f"a writer that is {flaw} was caught by {fault} at {call}: "
                        f"{outcome.problems[0]:.60}"
                    )
                    break
            else:
                raise ControlError(f"a writer that is {flaw} wasn't caught by {fault}")
        return "; ".join(said)
