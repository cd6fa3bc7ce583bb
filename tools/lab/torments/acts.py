"""The acts of a database that change a disk, each on a small database that was made for it."""

import contextlib
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from oracle import Oracle, contents, flaws
from workload import BUILT, WORDS, Operation, Script, built, make, perform

import fpdb
from fpdb.load import load  # now: what is opened to import it is no call of the storage
from fpdb.storage.seal import seal

OTHER, DUMPED, PRINTS = "other", "dumped", "prints.tsv"


class Act(NamedTuple):
    """An act: an operation on a stored database, or the making of another one beside it."""

    name: str
    operation: Operation | None = None
    stage: str = "stored"

    @property
    def makes(self) -> bool:
        """Whether it makes another database."""
        return self.operation is None

    def do(self, folder: Path, *, split: bool = False) -> None:
        path, target = folder / "db", folder / "made"
        if self.operation is not None:
            with fpdb.open(path) as db:
                perform(db, self.operation, split=split)
        elif self.name == "load databases":
            # What another process calls would be counted as if it was called by this one.
            with mock.patch("fpdb.maintenance.rebuild.check", return_value=()):
                load(target, [path, folder.parent / OTHER])
        elif self.name == "load the portable form":
            with open(folder.parent / DUMPED, "rb") as file:
                load(target, file)
        elif self.name == "load fingerprints":
            load(target, str(folder.parent / PRINTS))
        elif self.name in {"compact", "backup"}:
            with fpdb.open(path, readonly=True) as db:
                make(self.name, db, target)
        else:
            make(self.name, None, target)

    def flaws(self, folder: Path) -> list[str]:
        """Compare the database that it made with what that must hold."""
        with fpdb.open(folder / "made", readonly=True) as made:
            problems, found = flaws(made), contents(made)
        expected: dict[Any, Any] = {}
        if self.name in {"build", "load fingerprints"}:
            expected = {key: (number, None) for key, number in built()}
        elif self.name != "create":
            others = [folder.parent / OTHER] * (self.name == "load databases")
            times: dict[Any, int] = {}
            for each in (folder / "db", *others):
                with fpdb.open(each, readonly=True) as db:
                    held = contents(db)
                    newer = {d.key: d.added for d in db.scan() if d.added > times.get(d.key, -1)}
                times |= newer
                expected |= {key: held[key] for key in newer}
        if found != expected:
            problems.append(f"found {len(found)} documents, expected {len(expected)}, or others")
        return problems


def acts(seed: int) -> list[Act]:
    script = Script(seed, start=10**9)
    stored = Script(seed)
    known = next(iter(row for op in stored for row in op.get("documents", ())))[0]
    text = " ".join(random.Random(seed).choices(WORDS.split(), k=40))
    numbers = random.Random(seed)
    rows = [[f"load {n}", None, numbers.getrandbits(64), None] for n in range(BUILT)]
    batch = [script.document() for _ in range(300)] + script.twins()
    return [
        Act("create"),
        Act("add", {"op": "add", "documents": [["new", text, None, "new"]], "skip": False}),
        Act("replace", {"op": "add", "documents": [[known, text, None, "other"]], "skip": False}),
        Act("add 302 at once", {"op": "add", "documents": batch, "skip": True}),
        Act("delete", {"op": "delete", "keys": [known]}),
        Act("delete 300", {"op": "delete", "keys": [row[0] for row in batch]}),
        Act("load into an empty database", {"op": "load", "documents": rows}, stage="empty"),
        Act("load into a filled database", {"op": "load", "documents": rows}),
        Act("compact in place", {"op": "compact", "keys": []}),
        *map(Act, ("build", "compact", "backup", "load databases")),
        *map(Act, ("load the portable form", "load fingerprints")),
    ]


class Place:
    """A folder in which an act takes place, again and again from the same beginning."""

    def __init__(self, work: Path, seed: int) -> None:
        self.work, self.folder = work, work / "place"
        self.path, self._oracles = self.folder / "db", dict[str, Oracle]()
        for stage, count, start in (("empty", 0, 0), ("stored", 60, 0), (OTHER, 40, 10)):
            with fpdb.create(work / stage) as db:
                self._oracles[stage] = oracle = Oracle(db)
                for operation, _ in zip(Script(seed, start=start), range(count), strict=False):
                    oracle.hear({"begin": operation})
                    oracle.hear({"done": perform(db, operation)})
        with fpdb.open(work / "stored") as db, open(work / DUMPED, "wb") as file:
            db.dump(file)
        lines = [f"{key}\t{number:016x}\n" for key, number in built()]
        (work / PRINTS).write_text("key\tfingerprint\n" + "".join(lines), "utf-8")

    def renew(self, act: Act) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        shutil.copytree(self.work / act.stage, self.path)
        seal(self.path)  # else another process would verify it, and its calls would be counted

    def oracle(self, act: Act) -> Oracle:
        """Return an oracle with what is stored before an act."""
        return self._oracles[act.stage].copy()

    def judge_made(self, act: Act, *, acknowledged: bool) -> list[str]:
        """Judge what a killed or failed act made: a whole database or nothing, and no litter."""
        problems = []
        if (self.folder / "made").exists():
            problems += act.flaws(self.folder)
        elif acknowledged:
            problems.append("what was acknowledged isn't there")
        with contextlib.suppress(fpdb.DatabaseExistsError):
            act.do(self.folder)
        return [*problems, *act.flaws(self.folder), *self.litter()]

    def judge_drafts(self) -> list[str]:
        """Compact the database in place, which removes what a killed process left."""
        with fpdb.open(self.path) as db:
            db.compact()
        return self.litter()

    def litter(self) -> list[str]:
        left = {path.name for path in self.folder.iterdir()} - {"db", "made"}
        return [f"left: {sorted(left)}"] * bool(left)


def outcome(work: Callable[[], object]) -> str:
    """Do something; return how it ended."""
    try:
        work()
    except fpdb.FpdbError as error:
        return type(error).__name__ if error.hint else f"{type(error).__name__} without a hint"
    except BaseException as error:
        return f"bare {type(error).__name__}: {error}"
    return "done"


def act(channel: Any, folder: str, name: str, operation: Operation | None, flaw: str) -> None:
    """Do an act, read, and do the act again, each at an order; report how each has ended.

    A `flaw` makes a known-bad process: "split" writes in several transactions, "deaf" doesn't hear
    errors.
    """
    place, own = Path(folder), Act(name, operation)

    def once() -> None:
        with contextlib.suppress(*[fpdb.FpdbError] * (flaw == "deaf")):
            own.do(place, split=flaw == "split")

    def read() -> None:
        with fpdb.open(place / "db", readonly=True) as db:
            assert len(list(db.scan())) == len(db)
            assert not list(db.check())

    channel.tell(ready=True)
    channel.hear()
    channel.tell(ended=outcome(once))
    channel.hear()
    channel.tell(read=outcome(read))
    channel.hear()
    channel.tell(again="done" if own.makes and (place / "made").exists() else outcome(once))
