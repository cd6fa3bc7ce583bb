"""Copies under load: two processes write as fast as they can while a database is copied.

What the writers do follows from their seeds, so that each state of the database is known: every
transaction has its number in a document of its own, and the header counts all transactions. A
copy that mixes two states can't go unnoticed.
"""

import itertools
import multiprocessing
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import ControlError, Figures
from oracle import Contents, contents, flaws
from worker import Workers

import fpdb
from fpdb.storage.counters import Counters

ROUNDS = 100  # of each kind
WRITERS = 2
KEYS = 10_000  # of each writer
LARGEST_BATCH = 60
LONGEST_META = 400
PLAIN = "plain cp"
# What becomes of a copy; the last three must not be.
WHOLE, REFUSED, REPORTED = "whole", "refused", "reported"
MISTAKEN, SERVED, DIED = "reported though whole", "served though broken", "killed its reader"
BAD = {MISTAKEN, SERVED, DIED}
_SHOWN = 5

Step = tuple[list[fpdb.Document], list[str]]


def missing() -> str:
    """Say what this torment lacks here: what copies is chosen from what there is."""
    return ""


class Script:
    """The states of one writer's documents, transaction by transaction, as its seed decides."""

    def __init__(self, seed: int, writer: int) -> None:
        self._chance = random.Random(f"{seed} {writer}")
        self._name = f"https://{writer}.example"
        self.head = f"{self._name}/head"
        self.done = 0
        self.documents: Contents = {}

    def first(self) -> list[fpdb.Document]:
        """Make the documents that are there before anything is written."""
        documents = [self._document(number) for number in range(KEYS)]
        self._adopt(documents, [])
        return documents

    def step(self) -> Step:
        """Make what the next transaction adds and replaces, or deletes."""
        self.done += 1
        chance = self._chance
        numbers = chance.sample(range(KEYS), chance.randint(1, LARGEST_BATCH))
        if chance.random() < 0.25:
            keys = [f"{self._name}/{number}" for number in numbers]
            self._adopt([], keys)
            return [], keys
        head = fpdb.Document(self.head, meta=self.done, fingerprint=chance.getrandbits(64))
        documents = [head, *map(self._document, numbers)]
        self._adopt(documents, [])
        return documents, []

    def state(self) -> tuple[Any, int, Contents]:
        """Give what `restore` takes."""
        return self._chance.getstate(), self.done, dict(self.documents)

    def restore(self, state: tuple[Any, int, Contents]) -> None:
        """Go back to an earlier state."""
        chance, self.done, self.documents = state
        self._chance.setstate(chance)

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
        """Give the number of the transaction after which the documents were these, or None.

        The writer has done `latest` by now, if not more.
        """
        script = self._script
        said = found.get(script.head, (None, 0))[1]
        while script.done < min(said, latest):
            script.step()
        before = script.state()
        # A transaction that deletes doesn't write its number.
        while found != script.documents:
            documents, _ = script.step()
            if documents:
                script.restore(before)
                return None
        return script.done


def copiers() -> dict[str, Callable[[Path, Path], None]]:
    """Give the ways to copy; the last one is the known-bad one."""
    found = {"backup": _back_up, "hold cp": _hold_cp}
    if shutil.which("rsync"):
        found["hold rsync"] = _hold_rsync
    elif shutil.which("tar"):
        found["hold tar"] = _hold_tar
    return {**found, PLAIN: _plain}


def _back_up(path: Path, copy: Path) -> None:
    _fpdb("backup", str(path), str(copy))


def _hold_cp(path: Path, copy: Path) -> None:
    _fpdb("hold", str(path), "--", "cp", "-r", str(path), str(copy))


def _hold_rsync(path: Path, copy: Path) -> None:
    _fpdb("hold", str(path), "--", "rsync", "-a", f"{path}/", f"{copy}/")


def _hold_tar(path: Path, copy: Path) -> None:
    packed = copy.with_suffix(".tar")
    # It ends with 1 because the file changed while it was read.
    tar = ["tar", "-cf", str(packed), "-C", str(path), "."]
    _fpdb("hold", str(path), "--", *tar, allowed=1)
    copy.mkdir()
    _command("tar", "-xf", str(packed), "-C", str(copy))
    packed.unlink()


def _plain(path: Path, copy: Path) -> None:
    _command("cp", "-r", str(path), str(copy))


def _fpdb(*words: str, allowed: int = 0) -> None:
    _command(sys.executable, "-m", "fpdb", *words, allowed=allowed)


def _command(*words: str, allowed: int = 0) -> None:
    done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode not in {0, allowed}:
        done.check_returncode()


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Copy a database in each way while it is written to, and judge each copy."""
    path = work / "db"
    with fpdb.create(path) as db:
        for _ in db.add_many(d for n in range(WRITERS) for d in Script(seed, n).first()):
            pass
    source = Source(path, seed)
    outcomes: dict[str, dict[str, int]] = {name: {} for name in copiers()}
    wrong: dict[str, object] = {}
    with Workers(0) as workers:
        writers = [workers.take() for _ in range(WRITERS)]
        for number, writer in enumerate(writers):
            writer.begin("copies.write", path=str(path), seed=seed, writer=number)
        for writer in writers:
            writer.hear(60)
        for number, (name, copier) in itertools.product(range(rounds), copiers().items()):
            copy = work / f"copy-{number}"
            copier(path, copy)
            for writer in writers:  # the judge has the machine for itself
                writer.process.send_signal(signal.SIGSTOP)
            outcome, problems = source.judge(copy)
            for writer in writers:
                writer.process.send_signal(signal.SIGCONT)
            outcomes[name][outcome] = outcomes[name].get(outcome, 0) + 1
            if outcome != WHOLE and (name != PLAIN or outcome in BAD):
                wrong[f"{name} {number}"] = problems[:_SHOWN]
                copy.rename(work / f"bad-{name.replace(' ', '-')}-{number}")
            else:
                shutil.rmtree(copy)
        for writer in writers:
            list(writer.kill())
            if writer.errors():
                raise RuntimeError(writer.errors())
            workers.drop(writer)
    return _figures(rounds, outcomes, wrong, source)


def _figures(
    rounds: int, outcomes: dict[str, dict[str, int]], wrong: dict[str, object], source: "Source"
) -> Figures:
    plain = outcomes[PLAIN]
    broken = rounds - plain.get(WHOLE, 0)
    if broken * 2 < rounds:
        raise ControlError(f"of {rounds} plain copies only {broken} were broken")
    return Figures(
        rounds * len(outcomes),
        acknowledged=source.latest(),
        lost=0,
        inconsistent=len(wrong),
        refused=plain.get(REFUSED, 0),
        control=f"of {rounds} plain copies {broken} were broken",
        notes={**outcomes, **wrong},
    )


class Source:
    """The database that is copied, and all that is known of its states."""

    def __init__(self, path: Path, seed: int) -> None:
        self._path = path
        self._followers = [Follower(seed, writer) for writer in range(WRITERS)]
        self._heads = [Script(seed, writer).head for writer in range(WRITERS)]
        with fpdb.open(path, readonly=True) as db:
            self._writes = _writes(db)

    def latest(self) -> int:
        """Give how many transactions there were."""
        with fpdb.open(self._path, readonly=True) as db:
            return _writes(db) - self._writes

    def judge(self, copy: Path) -> tuple[str, list[str]]:
        """Say what became of a copy; it is read in a process of its own, which it may end."""
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_read, args=(copy, theirs))
        process.start()
        theirs.close()
        try:
            answer = ours.recv()
        except EOFError:
            answer = None
        process.join()
        if answer is None:
            return DIED, [f"exit code {process.exitcode}"]
        if isinstance(answer, str):
            return REFUSED, [answer]
        problems, found, writes = answer
        if found is None:
            return REPORTED, problems
        strange = self._compare(found, writes)
        if problems:
            return (REPORTED if strange else MISTAKEN), [*problems, *strange]
        return (SERVED if strange else WHOLE), strange

    def _compare(self, found: Contents, writes: int) -> list[str]:
        latest, done, strange = self.latest(), 0, []
        for writer, follower in enumerate(self._followers):
            own = f"https://{writer}.example/"
            place = follower.place({k: v for k, v in found.items() if k.startswith(own)}, latest)
            if place is None:
                strange.append(f"the documents of writer {writer} were never like that")
            done += place or 0
        if not strange and writes - self._writes != done:
            strange.append(f"{writes - self._writes} transactions counted, {done} found")
        return strange


def _writes(db: fpdb.Database) -> int:
    with db._environment.read() as txn:
        return Counters.unpack(txn.get("header", b"counters")).writes


def _read(copy: Path, end: Any) -> None:
    try:
        db = fpdb.open(copy)
    except fpdb.FpdbError as error:
        end.send(f"{type(error).__name__}: {error}")
        return
    problems: list[str] = []
    found, writes = None, 0
    with db:
        try:
            problems, found, writes = flaws(db), contents(db), _writes(db)
        except fpdb.FpdbError as error:
            problems = [f"{type(error).__name__}: {error}"]
    end.send((problems, found, writes))


def write(channel: Any, path: str, *, seed: int, writer: int) -> None:
    """Write as fast as possible until killed."""
    script = Script(seed, writer)
    script.first()
    with fpdb.open(path) as db:
        channel.tell(began=True)
        while True:
            documents, keys = script.step()
            if documents:
                for _ in db.add_many(documents):
                    pass
            else:
                db.delete_many(keys)
