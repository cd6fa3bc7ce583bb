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
from fpdb.storage.drafts import seal

OTHER, DUMPED, PRINTS = "other", "dumped", "prints.tsv"
COPIES = {"compact", "backup"}


class Act(NamedTuple):
    """An act: an operation on a stored database, or the making of another one beside it."""

    name: str
    operation: Operation | None = None
    stage: str = "stored"

    @property
    def makes(self) -> bool:
        """Whether it makes another database."""
        return self.operation is None


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
        Act("build"),
        Act("compact"),
        Act("backup"),
        Act("merge"),
        Act("load the portable form"),
        Act("load fingerprints"),
    ]


class Place:
    """A folder in which an act takes place, again and again from the same beginning."""

    def __init__(self, work: Path, seed: int) -> None:
        self.work, self.folder = work, work / "place"
        self._oracles: dict[str, Oracle] = {}
        for stage, count, start in (("empty", 0, 0), ("stored", 60, 0), (OTHER, 40, 10)):
            self._oracles[stage] = filled(work / stage, Script(seed, start=start), count)
        with fpdb.open(work / "stored") as db, open(work / DUMPED, "wb") as file:
            db.dump(file)
        lines = [f"{key}\t{number:016x}\n" for key, number in built()]
        (work / PRINTS).write_text("key\tfingerprint\n" + "".join(lines), "utf-8")

    @property
    def path(self) -> Path:
        return self.folder / "db"

    @property
    def target(self) -> Path:
        return self.folder / "made"

    def renew(self, act: Act) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        shutil.copytree(self.work / act.stage, self.path)
        seal(self.path)  # else another process would verify it, and its calls would be counted

    def do(self, act: Act) -> None:
        do(act.name, act.operation, self.path, self.target)

    def oracle(self, act: Act) -> Oracle:
        """Return an oracle with what is stored before an act."""
        return self._oracles[act.stage].copy()

    def judge_made(self, act: Act, *, acknowledged: bool) -> list[str]:
        """Judge what a killed or failed act made: a whole database or nothing, and no litter."""
        problems = []
        if self.target.exists():
            problems += self._flaws_of_made(act)
        elif acknowledged:
            problems.append("what was acknowledged isn't there")
        with contextlib.suppress(fpdb.DatabaseExistsError):
            make_at(act.name, self.path, self.target)
        problems += self._flaws_of_made(act)
        if drafts := self.drafts():
            problems.append(f"the next one left {[draft.name for draft in drafts]}")
            problems += [f"with {sorted(file.name for file in drafts[0].iterdir())}"]
        return problems

    def judge_drafts(self) -> list[str]:
        """Compact the database in place, which removes what a killed process left."""
        with fpdb.open(self.path) as db:
            db.compact()
        return [f"the next one left {draft.name}" for draft in self.drafts()]

    def drafts(self) -> list[Path]:
        return [file for file in self.folder.iterdir() if file not in (self.path, self.target)]

    def _flaws_of_made(self, act: Act) -> list[str]:
        return flaws_of_made(act.name, self.path, self.target)


def filled(path: Path, script: Script, count: int) -> Oracle:
    """Make a database by some operations; return an oracle that heard of them."""
    with fpdb.create(path) as db:
        oracle = Oracle(db)
        for operation, _ in zip(script, range(count), strict=False):
            oracle.hear({"begin": operation})
            oracle.hear({"done": perform(db, operation)})
    return oracle


def flaws_of_made(name: str, path: Path, target: Path) -> list[str]:
    """Compare the database that an act made with what it must hold."""
    with fpdb.open(target, readonly=True) as made:
        problems, found = flaws(made), contents(made)
    expected: dict[Any, Any] = {}
    if name in {"build", "load fingerprints"}:
        expected = {key: (number, None) for key, number in built()}
    elif name != "create":
        others = [path.parent.parent / OTHER] if name == "merge" else []
        for each in (*others, path):
            with fpdb.open(each, readonly=True) as db:
                expected |= contents(db)
    if found != expected:
        problems.append(f"found {len(found)} documents, expected {len(expected)}, or others")
    return problems


def make_at(name: str, path: Path, target: Path) -> None:
    if name == "merge":
        # What another process calls would be counted as if it was called by this one.
        with mock.patch("fpdb.maintenance.merge.check", return_value=()):
            fpdb.merge([path, path.parent.parent / OTHER], target, keep="first")
    elif name == "load the portable form":
        with open(path.parent.parent / DUMPED, "rb") as file:
            load(target, file)
    elif name == "load fingerprints":
        load(target, str(path.parent.parent / PRINTS))
    else:
        with fpdb.open(path, readonly=True) if name in COPIES else contextlib.nullcontext() as db:
            make(name, db, target)


def do(
    name: str, operation: Operation | None, path: Path, target: Path, *, split: bool = False
) -> None:
    if operation is None:
        make_at(name, path, target)
    else:
        with fpdb.open(path) as db:
            perform(db, operation, split=split)


def outcome(work: Callable[[], object]) -> str:
    """Do something; return how it ended."""
    try:
        work()
    except fpdb.FpdbError as error:
        return type(error).__name__ if error.hint else f"{type(error).__name__} without a hint"
    except BaseException as error:
        return f"bare {type(error).__name__}: {error}"
    return "done"


def act(
    channel: Any, path: str, target: str, name: str, operation: Operation | None, flaw: str
) -> None:
    """Do an act, read, and do the act again, each at an order; report how each has ended.

    A `flaw` makes a known-bad process: "split" writes in several transactions, "deaf" doesn't hear
    errors.
    """

    def once() -> None:
        with contextlib.suppress(*[fpdb.FpdbError] * (flaw == "deaf")):
            do(name, operation, Path(path), Path(target), split=flaw == "split")

    def read() -> None:
        with fpdb.open(path, readonly=True) as db:
            assert len(list(db.scan())) == len(db)
            assert not list(db.check())

    channel.tell(ready=True)
    channel.hear()
    channel.tell(ended=outcome(once))
    channel.hear()
    channel.tell(read=outcome(read))
    channel.hear()
    channel.tell(again="done" if operation is None and Path(target).exists() else outcome(once))
