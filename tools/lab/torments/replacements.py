"""Databases that are compacted in place, moved and removed under those who use them.

Servers open a database, fork workers again and again, and run threads. All add documents, query and
keep snapshots, while other processes replace the database, some of which are killed in the middle.
"""

import contextlib
import itertools
import os
import random
import shutil
import threading
import time
from pathlib import Path

from frame import Figures, caught, going
from oracle import flaws
from worker import Channel, Worker, Workers

import fpdb
from fpdb.storage import Environment

CONTROL_ROUNDS = 20
FORKING, THREADED = 2, 1  # servers
CHILDREN = 2  # of a forking server at a time
LIFE = 20  # documents that a child adds before another one takes its place
THREADS = 3
SETTLING = 0.05  # seconds that a state lasts
LONGEST = 0.25  # seconds until a process that replaces the database is killed
_SHOWN = 5

_refusal: type[fpdb.FpdbError] = fpdb.MovedError


def serve(channel: Channel, path: str, name: str, flaw: str = "") -> None:
    """Open a database and fork workers that use it, without ever using it itself again."""
    db, children, server = _opened(channel, path, flaw), set[int](), os.getpid()
    for number in itertools.count():
        while len(children) >= CHILDREN:
            pid, status = os.wait()
            children.remove(pid)
            if status:
                raise RuntimeError(f"a child ended with {os.waitstatus_to_exitcode(status)}")
        if pid := os.fork():
            children.add(pid)
            continue
        for count in range(LIFE):
            if os.getppid() != server:
                break
            _use(db, channel, f"{name}/{number}/{count}")
        os._exit(0)


def serve_threads(channel: Channel, path: str, name: str, flaw: str = "") -> None:
    db = _opened(channel, path, flaw)

    def work(thread: int) -> None:
        try:
            for count in itertools.count():
                _use(db, channel, f"{name}/{thread}/{count}")
        except BaseException as error:
            print(f"a thread ended: {error!r}", flush=True)
            os._exit(1)

    for thread in range(1, THREADS):
        threading.Thread(target=work, args=(thread,)).start()
    work(0)


def replace(channel: Channel, path: str) -> None:
    """Compact a database in its place."""
    with fpdb.open(path) as db:
        channel.tell(ready=True)
        db.compact()
    channel.tell(done=True)


def _opened(channel: Channel, path: str, flaw: str) -> fpdb.Database:
    """Open a database; with a flaw, don't compare what is at its path, as the control does."""
    global _refusal  # noqa: PLW0603 - a process is blind or not
    if flaw:
        Environment.is_at_path = lambda *_: True  # type: ignore[method-assign]
        _refusal = fpdb.FpdbError
    db = fpdb.open(path)
    channel.tell(ready=True)
    return db


def _use(db: fpdb.Database, channel: Channel, key: str) -> None:
    """Add one document, however often the database is replaced or moved away, and look at it."""
    document = fpdb.Document(key, fingerprint=random.Random(key).getrandbits(64))
    refused = torn = 0
    while True:
        began = time.monotonic()
        try:
            list(db.add_many([document]))
            break
        except _refusal:
            refused += 1
            time.sleep(0.002)
            with contextlib.suppress(_refusal):
                db.reopen()
    ended = time.monotonic()
    with contextlib.suppress(_refusal):
        db.query_fingerprint(document.fingerprint or 0)
    if random.random() < 0.1:
        with contextlib.suppress(_refusal), db.snapshot() as snapshot:
            before = len(snapshot), sum(1 for _ in snapshot.scan(prefix=key[:1]))
            time.sleep(SETTLING * random.random())
            torn = before != (len(snapshot), sum(1 for _ in snapshot.scan(prefix=key[:1])))
    channel.tell(key=key, began=began, ended=ended, refused=refused, torn=int(torn))


class Stage:
    """The database, and what the servers have said."""

    def __init__(self, work: Path, workers: Workers, seed: int, flaw: str = "") -> None:
        self.work, self.workers, self.chance = work, workers, random.Random(seed)
        self.pending: dict[str, tuple[float, float]] = {}
        self.stored: set[str] = set()
        # When a database was there that was removed with all in it, and when there was none.
        self.excused: list[tuple[float, float]] = []
        self.absent: list[tuple[float, float]] = []
        self.acknowledged = self.refused = self.torn = self.kills = self.lost = 0
        self.problems: list[str] = []
        self.work.mkdir()
        names = ("db", "copy", "stranger", "aside")
        self.path, self.copy, self.stranger, self.aside = (work / name for name in names)
        fpdb.create(self.path).close()
        with fpdb.create(self.stranger, recipe="char-4", k=5) as db:
            db.add("its own", "the only document that it may have")
        jobs = ["replacements.serve"] * FORKING + ["replacements.serve_threads"] * THREADED
        self.servers = [self._begin(job, str(number), flaw) for number, job in enumerate(jobs)]

    def _begin(self, job: str, *words: str) -> Worker:
        worker = self.workers.take()
        worker.begin(job, str(self.path), *words)
        worker.expect(ready=True)
        return worker

    def listen(self, seconds: float = SETTLING) -> None:
        """Take down what the servers say for some time, and everything that they said before."""
        ends = time.monotonic() + seconds
        time.sleep(seconds)
        for server in self.servers:
            while (message := server.hear(0.001)) is not None:
                self.pending[message["key"]] = message["began"], message["ended"]
                self.acknowledged += 1
                self.refused += message["refused"]
                self.torn += message["torn"]
                if message["ended"] > ends + 1:
                    break
            if server.ended:
                raise RuntimeError(f"a server ended by itself: {server.errors()}")

    def compacted(self) -> None:
        """Let another process compact the database in its place; kill every second one."""
        worker = self._begin("replacements.replace")
        if self.chance.random() < 0.5:
            time.sleep(self.chance.random() * LONGEST)
            list(worker.kill())
            self.kills += 1
        else:
            worker.expect(done=True)
        if worker.errors():
            raise RuntimeError(worker.errors())
        self.workers.drop(worker)
        self.judge()

    def estranged(self) -> None:
        """Put a database of another recipe in its place for a moment."""
        self.path.rename(self.aside)
        gone = time.monotonic()
        self.stranger.rename(self.path)
        self.listen()
        self.path.rename(self.stranger)
        with fpdb.open(self.stranger, readonly=True) as db:
            if foreign := set(db) - {"its own"}:
                self.problems.append(f"{len(foreign)} documents were written by another recipe")
        self._bring_back(gone)

    def moved(self) -> None:
        """Move the database away for a moment, without waiting for writers."""
        self.path.rename(self.aside)
        self._bring_back(time.monotonic())

    def removed(self) -> None:
        """Put a copy in the place of the database, remove it, and move the database back."""
        with fpdb.open(self.path, readonly=True) as db:
            db.compact(self.copy)
        self.path.rename(self.aside)
        came = time.monotonic()
        self.copy.rename(self.path)
        time.sleep(SETTLING * self.chance.random())
        (self.path / "data.mdb").unlink()
        gone = time.monotonic()
        while self.path.exists():  # somebody may be opening it, which makes a lock file
            shutil.rmtree(self.path, ignore_errors=True)
        self.excused.append((came, gone))
        self._bring_back(gone)

    def _bring_back(self, gone: float) -> None:
        time.sleep(SETTLING * self.chance.random())
        back = time.monotonic()
        self.aside.rename(self.path)
        self.absent.append((gone, back))
        self.judge()

    def judge(self) -> None:
        """Compare what is stored with what was acknowledged, by now or by a late message.

        What a copy got that was removed is `excused`. While there was no database, or a stranger,
        nothing may be acknowledged.
        """
        self.listen()
        with fpdb.open(self.path, readonly=True) as db:
            found = {str(key) for key in db}
            self.problems += flaws(db)
        wrong = [key for key in self.stored if key not in found]
        for key, (began, ended) in self.pending.items():
            if any(gone < began and ended < back for gone, back in self.absent):
                wrong.append(f"{key} (acknowledged while there was no database)")
            if key in found:
                self.stored.add(key)
            elif not any(ended >= came and began <= gone for came, gone in self.excused):
                wrong.append(key)
        self.pending = {}
        self.stored -= set(wrong)
        self.lost += len(wrong)
        self.problems += [f"lost: {key}" for key in wrong[:_SHOWN]]

    def finish(self) -> None:
        """End the servers, and find drafts that the next maker doesn't remove."""
        for server in self.servers:
            server.kill()
        time.sleep(SETTLING)  # children end by themselves
        with fpdb.open(self.path) as db:
            db.compact()
        if left := [draft.name for draft in self.work.glob(".*")]:
            self.problems.append(f"left: {left}")


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    with Workers() as workers:
        blind = Stage(work / "control", workers, seed, "blind")

        def attempt(_: int) -> str:
            blind.removed()
            return f"{blind.lost} documents lost" if blind.lost else ""

        what = "a server that doesn't compare what is at its path"
        figures.control = caught(what, CONTROL_ROUNDS, attempt)
    acts = (Stage.compacted, Stage.estranged, Stage.moved, Stage.removed)
    with Workers() as workers:
        stage = Stage(work / "stage", workers, seed)
        for number in going(rounds):
            act = stage.chance.choice(acts)
            act(stage)
            figures.count("acts", act.__name__)
            figures.add(f"round {number}", stage.problems[:_SHOWN])
            stage.problems = []
        stage.finish()
    figures.lost, figures.acknowledged = stage.lost, stage.acknowledged
    figures.inconsistent += bool(stage.problems) + stage.torn
    figures.notes |= {
        "kills": stage.kills,
        "calls refused": stage.refused,
        "torn snapshots": stage.torn,
        "wrong at the end": stage.problems,
    }
