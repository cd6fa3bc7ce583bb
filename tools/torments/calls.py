"""A kill, EIO and ENOSPC at every system call with which an act changes the disk."""

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import strace
from acts import Act, Place, acts
from frame import Figures, caught, going
from oracle import Verdict
from strace import Call
from worker import Worker, Workers

SECONDS = 60

_EXPECTED = {"EIO": {"done", "DamagedError"}, "ENOSPC": {"done", "DiskFullError"}}

missing = strace.missing
Strained = AbstractContextManager["subprocess.Popen[bytes] | None"]


class Outcome(NamedTuple):
    """What became of one act: how it ended ("" if it was killed), and what was wrong."""

    ended: str
    lost: int
    problems: list[str]


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Kill and fail at every call of all acts; `rounds` bounds the calls of each."""
    with Workers() as workers:
        torment = Torment(Place(work, seed), workers)
        figures.control = torment.control(acts(seed))
        for act in acts(seed):
            found = torment.calls(act)
            figures.count(f"calls of {act.name}", *(call.name for call in found))
            faults = [("KILL", call) for call in found]
            faults += [("EIO", call) for call in found if call.name not in strace.CREATES]
            grows = [*strace.WRITES, *strace.CREATES, "mkdir", "rename"]
            faults += [("ENOSPC", call) for call in found if call.name in grows]
            chosen = faults[:: max(1, -(-len(faults) // rounds))]  # spread over all of them
            for number in going(len(chosen)):
                fault, call = chosen[number]
                ended, lost, problems = torment.round(act, fault, call)
                done = ended == "done"
                figures.add(
                    f"{act.name}, {fault} at {call}", problems, lost=lost, acknowledged=done
                )
                figures.count(act.name, f"{fault}: {ended or 'killed'}")


class Torment:
    """Runs acts in a place, with processes to run them in."""

    def __init__(self, place: Place, workers: Workers) -> None:
        self._place, self._workers = place, workers

    def calls(self, act: Act) -> list[Call]:
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
        what = "signal=KILL" if fault == "KILL" else f"error={fault}"
        options = strace.injecting(call.name, what, str(call.number))

        def strain(worker: Worker) -> Strained:
            threads = call.name not in strace.CREATES
            return strace.traced(worker.pid, *options, threads=threads)

        return self.strained(act, fault, strain, flaw=flaw)

    def strained(
        self, act: Act, fault: str, strain: Callable[[Worker], Strained], *, flaw: str = "",
        reading: bool = False,
    ) -> Outcome:  # fmt: skip
        """Do an act while something strains its process; with `reading`, read meanwhile, too."""
        self._place.renew(act)
        worker = self._start(act, flaw)
        problems = []
        with strain(worker) as trace:
            worker.tell(go=True)
            message = worker.hear(SECONDS)
            if message is None and trace:
                trace.wait(SECONDS)
            if message and reading:
                problems += self._read(worker)
        ended = message["ended"] if message else ""
        if message and not reading:
            problems += self._read(worker)
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

    def _read(self, worker: Worker) -> list[str]:
        worker.tell(go=True)
        found = worker.hear(SECONDS)
        return [] if found == {"read": "done"} else [f"what was read then: {found}"]

    def _judge(self, act: Act, ended: str, times: int = 1) -> Verdict:
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
        path, target = str(self._place.path), str(self._place.target)
        worker.begin("acts.act", path, target, act.name, act.operation, flaw)
        worker.expect(ready=True)
        return worker

    def control(self, everything: list[Act]) -> str:
        """Run an act in processes with a known fault, until they are caught."""
        [act] = [act for act in everything if act.name == "add 302 at once"]
        small = act._replace(operation={**(act.operation or {}), "skip": False})
        assert small.operation is not None
        small.operation["documents"] = small.operation["documents"][-4:]

        def attempt(fault: str, flaw: str, number: int) -> str:
            call = Call("fdatasync", number + 1)
            problems = self.round(small, fault, call, flaw).problems
            return f"{fault} at {call}: {problems[0]:.60}" if problems else ""

        known_bad = (("KILL", "split"), ("EIO", "deaf"))
        return "; ".join(
            caught(f"a {flaw} writer", 19, partial(attempt, fault, flaw))
            for fault, flaw in known_bad
        )
