"""Copies under load: two processes write as fast as they can while a database is copied.

What the writers do follows from their seeds, so that each state of the database is known, and the
header counts all transactions. A copy that mixes two states can't go unnoticed.
"""

import contextlib
import copy
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from frame import ControlError, Figures, apart, command, going
from oracle import Contents, contents, flaws
from worker import Workers
from workload import KEYS, Operation, Script, key_of, perform

import fpdb
from fpdb.storage.format import Counters

WRITERS = 2
LONGEST_REST = 3600.0  # seconds
PAUSE = 0.1  # seconds of undisturbed writing before each copy
PLAIN, SLOW = "plain cp", "plain copy at the pace of a network"
KNOWN_BAD = (SLOW, PLAIN)  # their database is another, since a hold leaves many free pages
# Takes half a second.
SLOW_COPY = """
import os, sys, time
with open(sys.argv[1], 'rb') as source, open(sys.argv[2], 'xb') as copy:
    chunk = os.fstat(source.fileno()).st_size // 50
    while data := source.read(chunk):
        copy.write(data)
        time.sleep(0.5 / 50)
"""
# The ways to copy: commands and their words, to which the paths come.
COPIERS = [SLOW, PLAIN, "backup", "hold cp"]
COPIERS += ["hold rsync"] if shutil.which("rsync") else ["hold tar"] * bool(shutil.which("tar"))
# What becomes of a copy; the last three must not be.
WHOLE, REFUSED, REPORTED = "whole", "refused", "reported"
MISTAKEN, SERVED, DIED = "reported though whole", "served though broken", "killed its reader"
BAD = {MISTAKEN, SERVED, DIED}
_SHOWN = 5
# Transactions in a row after which nothing may be left of a version.
_FURTHER = 100


class States:
    """The states of one writer's documents, transaction by transaction, as its seed decides."""

    def __init__(self, seed: int, writer: int) -> None:
        self._script = Script(seed, writer=writer, skip="never")
        self._recipe = fpdb.recipe("web")
        self._version, self.done = 0, 0
        self.start = str(key_of("text", writer, 1))[:-1]
        self.documents: Contents = {}
        self.first = [self._script.document(key_of("text", writer, n)) for n in range(2, KEYS)]
        self._adopt({"documents": self.first})

    def step(self) -> Operation:
        """Do the next transaction that changes something."""
        while True:
            operation = next(iter(self._script))
            # A load may be several transactions.
            if operation["op"] != "load" and self._adopt(operation):
                self.done += 1
                return operation

    def reach(self, found: Contents) -> bool:
        """Go on to the state that was found in a copy, if there ever was one."""
        while self._version < max((meta["version"] for _, meta in found.values()), default=0):
            self.step()
        before = copy.deepcopy(self.__dict__)
        # A transaction that deletes writes no version, and may delete all that others have written.
        for _ in range(_FURTHER):
            if self.documents == found:
                return True
            self.step()
        self.__dict__ = before
        return False

    def _adopt(self, operation: Operation) -> bool:
        for key, text, ready, meta in operation.get("documents", ()):
            batch = self._recipe.batch([text]) if text else None
            short = batch is not None and batch.short[0]
            number = int(batch.fingerprints[0]) if batch and not short else ready
            self.documents[key] = number, meta
            self._version = max(self._version, meta["version"])
        removed = [self.documents.pop(key, None) for key in operation.get("keys", ())]
        return "documents" in operation or any(removed)


def copy_by(name: str, path: Path, target: Path) -> None:
    fpdb = (sys.executable, "-m", "fpdb")
    hold = (*fpdb, "backup", str(path), "--")
    match name:
        case "plain cp":
            command("cp", "-r", str(path), str(target))
        case "backup":
            command(*fpdb, "backup", str(path), "-o", str(target))
        case "hold cp":
            command(*hold, "cp", "-r", str(path), str(target))
        case "hold rsync":
            command(*hold, "rsync", "-a", f"{path}/", f"{target}/")
        case "hold tar":
            with contextlib.suppress(subprocess.CalledProcessError):  # the file changed meanwhile
                command(*hold, "tar", "-cf", f"{target}.tar", "-C", str(path), ".")
            target.mkdir()
            command("tar", "-xf", f"{target}.tar", "-C", str(target))
            Path(f"{target}.tar").unlink()
        case _:
            target.mkdir()
            files = [str(folder / "data.mdb") for folder in (path, target)]
            command(sys.executable, "-c", SLOW_COPY, *files)


def run(
    figures: Figures, rounds: int, seed: int, work: Path, names: Iterable[str] = COPIERS
) -> None:
    """Copy a database in each way while it is written to, and judge each copy."""
    broken = dict.fromkeys(KNOWN_BAD, 0)
    done = 0
    with Workers() as workers:
        plain, other = (Source(workers, work / name, seed) for name in ("plain", "other"))
        for number in going(rounds):
            done += 1
            for name in names:
                source = plain if name in KNOWN_BAD else other
                made = work / f"copy-{number}"
                with source.busy() as path:
                    copy_by(name, path, made)
                outcome, problems = source.judge(made)
                figures.count(name, outcome)
                wrong = outcome in BAD or (outcome != WHOLE and name not in KNOWN_BAD)
                figures.add(f"{name} {number}", problems[:_SHOWN] * wrong)
                if wrong:
                    made.rename(work / f"bad-{name.replace(' ', '-')}-{number}")
                else:
                    shutil.rmtree(made)
                if name in KNOWN_BAD:
                    broken[name] += outcome != WHOLE
                    figures.refused += outcome == REFUSED
        figures.acknowledged = plain.end() + other.end()
    if broken[SLOW] * 2 < done:
        raise ControlError(f"of {done} plain copies only {broken[SLOW]} were broken")
    figures.control = f"without a hold were broken, of {done} each: {broken}"


class Source:
    """A database that is copied, its writers, and all that is known of its states."""

    def __init__(self, workers: Workers, path: Path, seed: int) -> None:
        self._path, self._workers = path, workers
        self._states = [States(seed, writer) for writer in range(WRITERS)]
        with fpdb.create(path.with_name(f"{path.name}-loaded")) as db:
            for own in self._states:
                perform(db, {"op": "add", "documents": own.first, "skip": False})
            # Where many pages are free, it takes long until one is used again.
            db.compact(path)
        with fpdb.open(path, readonly=True) as db:
            self._before = _writes(db)
        self._writers = [workers.take() for _ in range(WRITERS)]
        for number, writer in enumerate(self._writers):
            writer.begin("copies.write", str(path), seed, number)
            writer.expect(began=True)
        self._signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def busy(self) -> Iterator[Path]:
        """Run the writers during a block; they pause while a copy is checked."""
        self._signal(signal.SIGCONT)
        time.sleep(PAUSE)
        yield self._path
        for writer in self._writers:
            if writer.ended:
                raise RuntimeError(writer.errors())
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for writer in self._writers:
            os.kill(writer.pid, number)

    def end(self) -> int:
        """End the writers; give how many transactions there were."""
        for writer in self._writers:
            list(writer.kill())
            if writer.errors():
                raise RuntimeError(writer.errors())
            self._workers.drop(writer)
        with fpdb.open(self._path, readonly=True) as db:
            return _writes(db) - self._before

    def judge(self, made: Path) -> tuple[str, list[str]]:
        """Return what became of a copy; another process reads it, as reading may end that."""
        answer, died, error = apart(lambda: _read(made))
        if died or error:
            return DIED, [died or error]
        problems, found, writes = answer
        if writes is None:
            return REFUSED, problems
        if found is None:
            return REPORTED, problems
        strange = self._compare(found, writes)
        if problems:
            return (REPORTED if strange else MISTAKEN), [*problems, *strange]
        return (SERVED if strange else WHOLE), strange

    def _compare(self, found: Contents, writes: int) -> list[str]:
        strange = [
            f"the documents of {own.start} were never like that"
            for own in self._states
            if not own.reach({key: at for key, at in found.items() if key.startswith(own.start)})
        ]
        done = sum(own.done for own in self._states)
        if not strange and writes - self._before != done:
            strange.append(f"{writes - self._before} transactions counted, {done} found")
        return strange


def _writes(db: fpdb.Database) -> int:
    with db._environment.read() as txn:
        return Counters.unpack(txn.get("counters", b"counters")).writes


def _read(path: Path) -> tuple[list[str], Contents | None, int | None]:
    """Return the problems of a copy, its contents and its number of transactions."""
    try:
        db = fpdb.open(path)
    except fpdb.FpdbError as error:
        return [f"{type(error).__name__}: {error}"], None, None
    with db:
        try:
            return flaws(db), contents(db), _writes(db)
        except fpdb.FpdbError as error:
            return [f"{type(error).__name__}: {error}"], None, 0


def write(channel: Any, path: str, seed: int, writer: int) -> None:
    states = States(seed, writer)
    # The other writer may be stopped with the lock for as long as a copy is judged.
    with fpdb.open(path, timeout=LONGEST_REST) as db:
        channel.tell(began=True)
        while True:
            perform(db, states.step())
