"""Runs of dedupe with a database that are killed at any moment, and all ways to go on after that.

The corpus has texts that resemble no other, and copies. Whatever is done after a kill, each text is
in an output that is in its place, or the next run says why it doesn't write it.
"""

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from pathlib import Path
from types import CodeType
from typing import NamedTuple
from unittest import mock

import numpy as np
import pyarrow as pa
from frame import Ended, Figures, apart, caught, going

import fpdb
from fpdb.dedupe import decide
from fpdb.documents import writer
from fpdb.documents.runs import Runs
from fpdb.scratch import Drafts

CONTROL_ROUNDS = 50
RECORDS, COPIES, WORDS = 250, 50, 30
END = 150  # calls of a run that are made when its documents are stored, or nearly
TOGETHER = 40  # records that are decided, and stored, at a time

Run = Callable[[Path], None]
_LAST_STEPS = {Runs.begin.__code__, Runs.finish.__code__}
_MOVES = {Drafts.__exit__.__code__}


class Delivery(NamedTuple):
    """A folder with records, how far their killed run came there, and what is judged of it."""

    folder: Path
    records: list[dict[str, str]]
    state: str

    def judged(self, output: str, ended: Ended = Ended(None)) -> tuple[int, list[str]]:  # noqa: B008
        """Count the texts that aren't in an output; the database has each of them once."""
        texts = {each["text"] for each in self.records}
        problems = [how for how in (ended.died, ended.error) if how]
        if not problems:
            problems = self.audit()
            with fpdb.open(self.folder / "db") as db:
                if len(db) != len(texts):
                    problems.append(f"{len(db)} documents, expected {len(texts)}")
        if left := [path.name for path in self.folder.glob(f".{output}.*")]:
            problems.append(f"left {left}")
        return len(texts - self.texts(output)), problems

    def audit(self) -> list[str]:
        with fpdb.open(self.folder / "db") as db:
            unfinished = [f"{run}" for run in db.runs.known() if not run.finished]
            return [*map(str, db.check()), *unfinished]

    def texts(self, output: str) -> set[str]:
        path = self.folder / output
        return {each["text"] for each in _read(path)} if path.exists() else set()


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    records = corpus(seed)
    chance = random.Random(seed)
    figures.control = _control(chance, records, work)
    for name, (first, go_on) in WAYS.items():
        calls, last = _measure(first, records, work)
        for number in going(rounds):
            # In the whole run, in its last steps, or near its end.
            moment = chance.randint(chance.choice((1, last, calls - END)), calls)
            with _folder(work, records) as folder:
                state = _killed(first, folder, moment)
                figures.count(name, state)
                gone, problems = go_on(Delivery(folder, records, state))
            figures.add(f"{name}, round {number}", problems, lost=gone, acknowledged=len(records))


def corpus(seed: int) -> list[dict[str, str]]:
    chance = random.Random(seed)
    made = [" ".join(f"w{chance.randrange(200_000)}" for _ in range(WORDS)) for _ in range(RECORDS)]
    texts = made + chance.choices(made, k=COPIES)
    chance.shuffle(texts)
    return [{"key": f"k{number}", "text": text} for number, text in enumerate(texts)]


@contextlib.contextmanager
def _folder(work: Path, records: list[dict[str, str]]) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=work) as place:
        folder = Path(place) / "work"
        folder.mkdir()
        _write(folder / "in.jsonl", records)
        yield folder


def _write(path: Path, records: Iterable[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(each) + "\n" for each in records)


def _read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _measure(
    first: Run, records: list[dict[str, str]], work: Path, steps: Set[CodeType] = _LAST_STEPS
) -> tuple[int, int]:
    """Count the calls of a run in a process of its own, and those until its last steps."""
    codes: list[CodeType] = []

    def run() -> tuple[int, int]:
        _profiled(lambda: first(folder), codes.append)
        return len(codes), next(at for at, code in enumerate(codes, 1) if code in steps)

    with _folder(work, records) as folder:
        return _forked(run).result


def _profiled(work: Callable[[], object], called: Callable[[CodeType], object]) -> None:
    """Do something, and report each call of a function."""
    sys.setprofile(lambda frame, event, _: called(frame.f_code) if event == "call" else None)
    work()
    sys.setprofile(None)


def _killed(first: Run, folder: Path, moment: int) -> str:
    """Run a first run until a call; return how far it came."""
    calls = itertools.count(1)

    def end(_: CodeType) -> None:
        if next(calls) == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    _forked(lambda: _profiled(lambda: first(folder), end))
    if not (folder / "db" / "data.mdb").exists():
        return "not begun"
    with fpdb.open(folder / "db") as db:
        known = db.runs.known()
    return "not begun" if not known else "finished" if known[0].finished else "unfinished"


def _forked(work: Callable[[], object]) -> Ended:
    def run() -> object:
        decide.GATHERED = decide.TOGETHER = decide.STORED = writer.ADDED_TOGETHER = TOGETHER
        return work()

    return apart(run)


def _refused(ended: Ended) -> bool:
    return "removed for itself" in ended.error


# The first run of each way.


def _by_file(folder: Path, output: str = "out.jsonl") -> None:
    options = {"database": folder / "db", "removed": folder / f"{output}.removed"}
    fpdb.dedupe(folder / "in.jsonl", folder / output, **options)


def _by_table(folder: Path) -> None:
    table = pa.Table.from_pylist(_read(folder / "in.jsonl"))
    _write(folder / "out.jsonl", fpdb.dedupe(table, database=folder / "db").to_pylist())


def _by_records(folder: Path) -> None:
    _write(folder / "out.jsonl", fpdb.dedupe(_read(folder / "in.jsonl"), database=folder / "db"))


# What is done after the kill; each returns how many texts are missing, and what else is wrong.


def _other_output(after: Delivery) -> tuple[int, list[str]]:
    ended = _forked(lambda: _by_file(after.folder, "other.jsonl"))
    if _refused(ended) and after.state == "finished":
        # The next run there removes what is left beside the output.
        with contextlib.suppress(fpdb.InputError):
            _by_file(after.folder)
        return after.judged("out.jsonl")
    return after.judged("other.jsonl", ended)


def _moved(after: Delivery) -> tuple[int, list[str]]:
    return _again(after._replace(folder=after.folder.rename(after.folder.with_name("renamed"))))


def _copied(after: Delivery) -> tuple[int, list[str]]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        return _again(after._replace(folder=shutil.copytree(after.folder, Path(place) / "copy")))


def _again(after: Delivery) -> tuple[int, list[str]]:
    if after.state != "finished":
        return after.judged("out.jsonl", _forked(lambda: _by_file(after.folder)))
    # The very same run is refused, because its output is there.
    with contextlib.suppress(fpdb.InputError):
        _by_file(after.folder)
        return 0, ["a finished run was run again"]
    return after.judged("out.jsonl")


def _in_memory(first: Run, after: Delivery) -> tuple[int, list[str]]:
    ended = _forked(lambda: first(after.folder))
    if after.state == "finished":
        # What the first run returned is gone with its process, and the second says so.
        return 0, [] if _refused(ended) else [f"{ended}, expected a refusal"]
    return after.judged("out.jsonl", ended)


def _abandoned(after: Delivery) -> tuple[int, list[str]]:
    """Give up the run for another delivery, which has a half of its records and others."""
    records = after.records[: len(after.records) // 2] + [
        {"key": f"other {each['key']}", "text": " ".join(each["text"].split()[::-1])}
        for each in after.records
    ]
    _write(after.folder / "next.jsonl", records)

    def dedupe(*, abandon: bool) -> None:
        fpdb.dedupe(
            after.folder / "next.jsonl", after.folder / "next", fpdb.Reading(format="jsonl"),
            database=after.folder / "db", abandon=abandon,
        )  # fmt: skip

    problems = []
    if after.state == "unfinished" and not _forked(lambda: dedupe(abandon=False)).error:
        problems.append("another run wasn't refused")
    ended = _forked(lambda: dedupe(abandon=True))
    if ended.died or ended.error:
        return 0, [*problems, str(ended)]
    found = after.texts("next")
    if after.state == "finished":
        found |= after.texts("out.jsonl")
    return len({each["text"] for each in records} - found), problems + after.audit()


# The run that is killed, and what is done then.
WAYS = {
    "another output": (_by_file, _other_output),
    "a renamed folder": (_by_file, _moved),
    "a copy on another device": (_by_file, _copied),
    "tables": (_by_table, partial(_in_memory, _by_table)),
    "records": (_by_records, partial(_in_memory, _by_records)),
    "abandoned": (_by_file, _abandoned),
}


def _control(chance: random.Random, records: list[dict[str, str]], work: Path) -> str:
    """Kill runs that add what they keep before their output is in its place."""
    finish, none = decide.Decider.finish, np.empty(0, np.bool_)
    early = {"begin": lambda decider: finish(decider, none), "finish": lambda *_: None}
    with mock.patch.multiple(decide.Decider, **early):
        _, last = _measure(_by_file, records, work, _MOVES)

        def attempt(_: int) -> str:
            with _folder(work, records) as folder:
                state = _killed(_by_file, folder, last + chance.randint(-5, 15))
                gone, _problems = _other_output(Delivery(folder, records, state))
            return f"{gone} texts lost" if gone else ""

        return caught("a run that adds too early", CONTROL_ROUNDS, attempt)
