"""Acts under faults: a kill, EIO and ENOSPC at every system call that changes a disk; no room."""

import contextlib
import os
import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import disks
import strace
from acts import Act, Place, acts
from disks import Disk
from frame import Figures, caught, going
from oracle import Verdict
from strace import Call
from worker import Worker, Workers

SECONDS = 60
# The file systems that are filled up, and their mebibytes: in memory, and in a file.
SMALL = {"tmpfs": 48, "ext4": 64}
LIMITED = "file size limit"
_CHUNK = 1 << 12
_EXPECTED = {"EIO": {"done", "DamagedError"}, "ENOSPC": {"done", "DiskFullError"}}

Strain = Callable[[Worker], AbstractContextManager["subprocess.Popen[bytes] | None"]]


class Fault(NamedTuple):
    """A fault: its name, how processes may end, and a context manager that brings it about."""

    name: str
    kind: str
    strain: Strain


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Kill and fail at every call of all acts; `rounds` bounds the calls of each."""
    with Workers() as workers:
        torment = Torment(Place(work, seed), workers)
        figures.control = _control(torment, acts(seed))
        for act in acts(seed):
            found = torment.calls(act)
            figures.count(f"calls of {act.name}", *(call.name for call in found))
            faults = [_at_call("KILL", call) for call in found]
            faults += [_at_call("EIO", call) for call in found if call.name not in strace.CREATES]
            grows = [*strace.WRITES, *strace.CREATES, "mkdir", "rename"]
            faults += [_at_call("ENOSPC", call) for call in found if call.name in grows]
            chosen = faults[:: max(1, -(-len(faults) // rounds))]  # spread over all of them
            for number in going(len(chosen)):
                ended = torment.counted(figures, act, chosen[number])
                figures.count(act.name, f"{chosen[number].kind}: {ended or 'killed'}")


def run_without_room(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Do each act on two full file systems and under a limit, with no room and with some.

    What is read meanwhile goes on.
    """
    with Workers() as workers, contextlib.ExitStack() as mounted:
        (work / "control").mkdir()
        figures.control = _deaf(Torment(Place(work / "control", seed), workers), acts(seed))
        for way in (*SMALL, LIMITED):
            if way in SMALL and (lack := disks.missing(way)):
                figures.notes[way] = f"left out: {lack}"
                continue
            folder = work / way.replace(" ", "-")
            folder.mkdir()
            if way in SMALL:
                folder = mounted.enter_context(Disk(folder, way, SMALL[way])).place
            torment, chance = Torment(Place(folder, seed), workers), random.Random(seed)
            for act in acts(seed):
                most = torment.needed(act)
                for number in going(rounds):
                    room = chance.randrange(most) if number else 0
                    strain = partial(_limited if way == LIMITED else _filled, torment, act, room)
                    fault = Fault(f"{way}, {room:,} bytes", "ENOSPC", strain)
                    figures.count(way, torment.counted(figures, act, fault, reading=True))


def _at_call(kind: str, call: Call) -> Fault:
    what = "signal=KILL" if kind == "KILL" else f"error={kind}"
    options = strace.injecting(call.name, what, str(call.number))
    threads = call.name not in strace.CREATES
    return Fault(
        f"{kind} at {call}", kind,
        lambda worker: strace.traced(worker.pid, *options, threads=threads),
    )  # fmt: skip


@contextlib.contextmanager
def _filled(torment: "Torment", _: Act, room: int, __: Worker) -> Iterator[None]:
    ballast = torment.place.folder.with_name("ballast")
    size = 0
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            size += file.write(bytes(_CHUNK))
    os.truncate(ballast, max(size - room, 0))
    yield
    ballast.unlink()


@contextlib.contextmanager
def _limited(torment: "Torment", act: Act, room: int, worker: Worker) -> Iterator[None]:
    stored = 0 if act.makes else (torment.place.path / "data.mdb").stat().st_size
    before = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (stored + room, before[1]))
    yield
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)


class Torment:
    """Runs acts in a place, with processes to run them in."""

    def __init__(self, place: Place, workers: Workers) -> None:
        self.place, self._workers = place, workers

    def calls(self, act: Act) -> list[Call]:
        self.place.renew(act)
        log = self.place.work / "calls"
        worker = self._start(act)
        options = ["-o", str(log), "-e", f"trace={','.join(strace.STORAGE)}"]
        with strace.traced(worker.pid, *options):
            ended = worker.ask(SECONDS)
        self._workers.drop(worker)
        if ended != {"ended": "done"}:
            raise RuntimeError(f"{act.name} doesn't work: {ended}")
        return strace.calls(log, strace.STORAGE)

    def needed(self, act: Act) -> int:
        """Return about how many bytes an act makes files grow by."""
        self.place.renew(act)
        act.do(self.place.folder)
        return 2 * _CHUNK + sum(path.stat().st_size for path in self.place.folder.rglob("data.mdb"))

    def counted(self, figures: Figures, act: Act, fault: Fault, *, reading: bool = False) -> str:
        """Do an act with a fault, add what was wrong to the figures, and return how it ended."""
        ended, verdict = self.strained(act, fault, reading=reading)
        figures.add(
            f"{act.name}, {fault.name}", verdict.problems, lost=verdict.lost,
            acknowledged=ended == "done",
        )  # fmt: skip
        return ended

    def strained(
        self, act: Act, fault: Fault, *, flaw: str = "", reading: bool = False
    ) -> tuple[str, Verdict]:
        """Do an act with a fault, and judge what it leaves; return how it ended ("": killed).

        With `reading`, read during the fault, and else after it.
        """
        self.place.renew(act)
        worker, problems = self._start(act, flaw), []
        with fault.strain(worker) as trace:
            message = worker.ask(SECONDS)
            if message is None and trace:
                trace.wait(SECONDS)
            if message and reading:
                problems += self._read(worker)
        ended = message["ended"] if message else ""
        if message and not reading:
            problems += self._read(worker)
        if message is None and (fault.kind != "KILL" or worker.wait(SECONDS) != -9):
            problems.append(f"it died: {worker.errors()[-300:]}")
        elif message and fault.kind != "KILL":
            problems += [f"it ended with {ended}"] * (ended not in _EXPECTED[fault.kind])
            problems += self.place.litter() if act.makes and ended != "done" else []
        verdict = self._judge(act, ended)
        if message and not act.makes:
            problems += verdict.problems
            if (again := worker.ask(SECONDS)) != {"again": "done"}:
                problems.append(f"again it ended with {again}")
            # What may be skipped depends on what is stored, so to do it twice isn't to do it once.
            later = self._judge(act, "done", times=2 if ended == "done" else 1)
            verdict = Verdict(verdict.lost + later.lost, later.problems)
        self._workers.drop(worker)
        problems += verdict.problems
        if act.makes:
            problems += self.place.judge_made(act, acknowledged=ended == "done")
        elif act.name == "compact in place":
            problems += self.place.judge_drafts()
        return ended, Verdict(verdict.lost, problems)

    def _read(self, worker: Worker) -> list[str]:
        found = worker.ask(SECONDS)
        return [] if found == {"read": "done"} else [f"what was read then: {found}"]

    def _judge(self, act: Act, ended: str, times: int = 1) -> Verdict:
        oracle = self.place.oracle(act)
        for _ in range(times if act.operation else 0):
            oracle.hear({"begin": act.operation})
            if ended == "done":
                oracle.hear({"done": None})
        return oracle.judge_file(self.place.path)

    def _start(self, act: Act, flaw: str = "") -> Worker:
        worker = self._workers.take()
        worker.begin("acts.act", str(self.place.folder), act.name, act.operation, flaw)
        worker.expect(ready=True)
        return worker


# Known bad


def _control(torment: Torment, everything: list[Act]) -> str:
    """Run an act in processes with a known fault, until they are caught."""
    [act] = [act for act in everything if act.name == "add 302 at once"]
    rows = (act.operation or {})["documents"][-4:]
    small = act._replace(operation={"op": "add", "documents": rows, "skip": False})

    def attempt(kind: str, flaw: str, number: int) -> str:
        fault = _at_call(kind, Call("fdatasync", number + 1))
        problems = torment.strained(small, fault, flaw=flaw)[1].problems
        return f"{fault.name}: {problems[0]:.60}" if problems else ""

    return "; ".join(
        caught(f"a {flaw} writer", 19, partial(attempt, kind, flaw))
        for kind, flaw in (("KILL", "split"), ("EIO", "deaf"))
    )


def _deaf(torment: Torment, everything: list[Act]) -> str:
    """Do an act without room in a process that doesn't notice errors."""
    [act] = [act for act in everything if act.name == "load into a filled database"]
    fault = Fault("no room", "ENOSPC", partial(_limited, torment, act, 0))

    def attempt(_: int) -> str:
        lost = torment.strained(act, fault, flaw="deaf")[1].lost
        return f"{lost} documents lost" if lost else ""

    return caught("a writer that is deaf to errors", 1, attempt)
