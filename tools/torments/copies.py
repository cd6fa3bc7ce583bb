"""Copies under load: two processes write as fast as they can while a database is copied.

What the writers do follows from their seeds, so that each state of the database is known: every
transaction has its number in a document of its own, and the header counts all transactions. A
copy that mixes two states can't go unnoticed.
"""

import contextlib
import copy
import os
import random
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
from workload import LARGEST_DELETION, TRANSACTION

import fpdb
from fpdb.storage.format import Counters

WRITERS = 2
KEYS = 5_000  # of each writer
LARGEST_BATCH = 30
LONGEST_META = 400
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

Step = tuple[list[fpdb.Document], list[str]]


class Script:
    """The states of one writer's documents, transaction by transaction, as its seed decides."""

    def __init__(self, seed: int, writer: int) -> None:
        self._chance = random.Random(f"{seed} {writer}")
        self._name = f"https://{writer}.example"
        self.head = f"{self._name}/head"
        self.done = 0
        self.documents: Contents = {}

    def first(self) -> list[fpdb.Document]:
        documents = [self._document(number) for number in range(KEYS)]
        self._adopt(documents, [])
        return documents

    def step(self) -> Step:
        self.done += 1
        chance = self._chance
        numbers = chance.sample(range(KEYS), chance.randint(1, LARGEST_BATCH))
        if chance.random() < 0.25:
            keys = [f"{self._name}/{number}" for number in numbers[:LARGEST_DELETION]]
            # One that is stored: a transaction that changes nothing couldn't be detected.
            while keys[0] not in self.documents:
                keys[0] = f"{self._name}/{chance.randrange(KEYS)}"
            self._adopt([], keys)
            return [], keys
        head = fpdb.Document(self.head, meta=self.done, fingerprint=chance.getrandbits(64))
        documents = [head, *map(self._document, numbers)]
        self._adopt(documents, [])
        return documents, []

    def _document(self, number: int) -> fpdb.Document:
        fingerprint = self._chance.getrandbits(64)
        meta = f"{self.done} {'-' * self._chance.randrange(LONGEST_META)}"
        return fpdb.Document(f"{self._name}/{number}", meta=meta, fingerprint=fingerprint)

    def _adopt(self, documents: list[fpdb.Document], keys: list[str]) -> None:
        for document in documents:
            self.documents[document.key] = document.fingerprint, document.meta
        for key in keys:
            self.documents.pop(key, None)


class Follower:
    """Knows the states that one writer's documents had, as far as copies have shown them."""

    def __init__(self, seed: int, writer: int) -> None:
        self._script = Script(seed, writer)
        self._script.first()

    def place(self, found: Contents, latest: int) -> int | None:
        """Return the number of the transaction after which the documents were these, or None.

        The writer has done `latest` by now, if not more.
        """
        script = self._script
        said = found.get(script.head, (None, 0))[1]
        while script.done < min(said, latest):
            script.step()
        before = copy.deepcopy(script)
        # A transaction that deletes doesn't write its number.
        while found != script.documents:
            documents, _ = script.step()
            if documents:
                self._script = before
                return None
        return script.done


def copy_by(name: str, path: Path, target: Path) -> None:
    fpdb = (sys.executable, "-m", "fpdb")
    hold = (*fpdb, "hold", str(path), "--")
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
        with fpdb.create(path.with_name(f"{path.name}-loaded")) as db:
            for _ in db.add_many(d for n in range(WRITERS) for d in Script(seed, n).first()):
                pass
            # Where many pages are free, it takes long until one is used again.
            db.compact(path)
        self._followers = [Follower(seed, writer) for writer in range(WRITERS)]
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
        return self._latest()

    def _latest(self) -> int:
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
        latest, done, strange = self._latest(), 0, []
        for writer, follower in enumerate(self._followers):
            own = f"https://{writer}.example/"
            place = follower.place({k: v for k, v in found.items() if k.startswith(own)}, latest)
            if place is None:
                strange.append(f"the documents of writer {writer} were never like that")
            done += place or 0
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
    script = Script(seed, writer)
    script.first()
    # The other writer may be stopped with the lock for as long as a copy is judged.
    with fpdb.open(path, timeout=LONGEST_REST) as db:
        channel.tell(began=True)
        while True:
            documents, keys = script.step()
            if documents:
                for _ in db.add_many(documents, transaction=TRANSACTION):
                    pass
            else:
                db.delete_many(keys)
