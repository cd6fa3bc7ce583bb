"""Runs of dedupe with a database that are killed at any moment, and all ways to go on after that.

The corpus has texts that resemble no other, and copies. Whatever is done after a kill, each text is
in an output that is in its place, or the next run says why it doesn't write it.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
from frame import Figures, caught, going

import fpdb
from fpdb.dedupe import decide
from fpdb.documents.runs import Runs
from fpdb.scratch import Drafts

CONTROL_ROUNDS = 50
RECORDS, COPIES, WORDS = 250, 50, 30
END = 150  # calls of a run that are made when its documents are stored, or nearly
TOGETHER = 40  # records that are decided, and stored, at a time
_ENDED, _REFUSED = 0, 3

Run = Callable[[Path], None]
_LAST_STEPS = {Runs.begin.__code__, Runs.finish.__code__}
_MOVES = {Drafts.__exit__.__code__}


class Moments(NamedTuple):
    """How many calls of functions a whole run makes, and with which it begins its last steps."""

    calls: int
    last: int


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Kill runs and go on, in each way N times, and look for texts that are nowhere."""
    records = corpus(seed)
    chance = random.Random(seed)
    figures.control = _control(chance, records, work)
    for name, way in WAYS.items():
        moments = _measure(way.first, records, work)
        for number in going(rounds):
            with _folder(work, records) as folder:
                state = _killed(way.first, folder, _moment(chance, moments))
                figures.count(name, state)
                gone, problems = way.go_on(folder, records, state)
            figures.add(f"{name}, round {number}", problems, lost=gone, acknowledged=len(records))


def corpus(seed: int) -> list[dict[str, str]]:
    """Make records of which no two resemble each other, and copies of some of them."""
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


def _write(path: Path, records: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(each) + "\n" for each in records), "utf-8")


def _moment(chance: random.Random, moments: Moments) -> int:
    """Choose the call before which a run is killed: in the whole run, or near its end."""
    first = chance.choice((1, moments.last, moments.calls - END))
    return chance.randint(first, moments.calls)


def _measure(
    first: Run, records: list[dict[str, str]], work: Path, steps: Set[CodeType] = _LAST_STEPS
) -> Moments:
    """Count the calls of a run in a process of its own."""
    with _folder(work, records) as folder:
        result, last = folder / "calls", [0]

        def note(calls: int, frame: FrameType) -> None:
            if not last[0] and frame.f_code in steps:
                last[0] = calls

        def count() -> None:
            result.write_text(json.dumps((_profiled(lambda: first(folder), note), *last)))

        _forked(count)
        return Moments(*json.loads(result.read_text()))


def _profiled(work: Callable[[], object], called: Callable[[int, FrameType], object]) -> int:
    """Do something, and name each call of a function by its number; return how many there are."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call":
            calls += 1
            called(calls, frame)

    sys.setprofile(count)
    work()
    sys.setprofile(None)
    return calls


def _killed(first: Run, folder: Path, moment: int) -> str:
    """Run a first run until a call; return how far it came."""

    def end(calls: int, _: FrameType) -> None:
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    _forked(lambda: _profiled(lambda: first(folder), end))
    if not (folder / "db" / "data.mdb").exists():
        return "not begun"
    with fpdb.open(folder / "db") as db:
        known = db.runs.known()
    return "not begun" if not known else "finished" if known[0].finished else "unfinished"


def _forked(work: Callable[[], object]) -> int:
    """Run a function in a process of its own; return its exit code."""
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            decide.GATHERED = TOGETHER
            try:
                work()
            except fpdb.InputError as error:
                os._exit(_REFUSED if "removed for itself" in str(error) else 1)
            os._exit(_ENDED)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# The first run of each way.


def _by_file(folder: Path, output: str = "out.jsonl") -> None:
    options = {"database": folder / "db", "removed": folder / f"{output}.removed"}
    fpdb.dedupe(folder / "in.jsonl", folder / output, **options)


def _by_table(folder: Path) -> None:
    lines = (folder / "in.jsonl").read_text("utf-8").splitlines()
    table = pa.Table.from_pylist([json.loads(line) for line in lines])
    _write(folder / "out.jsonl", fpdb.dedupe(table, database=folder / "db").to_pylist())


def _by_records(folder: Path) -> None:
    lines = (folder / "in.jsonl").read_text("utf-8").splitlines()
    with (folder / "out.jsonl").open("w", encoding="utf-8") as file:
        for each in fpdb.dedupe(map(json.loads, lines), database=folder / "db"):
            file.write(json.dumps(each) + "\n")


# What is done after the kill; each returns how many texts are missing, and what else is wrong.


def _other_output(folder: Path, records: list[dict[str, str]], state: str) -> tuple[int, list[str]]:
    code = _forked(lambda: _by_file(folder, "other.jsonl"))
    if code == _REFUSED and state == "finished":
        # The next run there removes what is left beside the output.
        with contextlib.suppress(fpdb.InputError):
            _by_file(folder)
        return _judged(folder, records, "out.jsonl")
    return _judged(folder, records, "other.jsonl", code)


def _renamed(folder: Path, records: list[dict[str, str]], state: str) -> tuple[int, list[str]]:
    return _again(folder.rename(folder.with_name("renamed")), records, state)


def _copied(folder: Path, records: list[dict[str, str]], state: str) -> tuple[int, list[str]]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        return _again(Path(shutil.copytree(folder, Path(place) / "copy")), records, state)


def _again(folder: Path, records: list[dict[str, str]], state: str) -> tuple[int, list[str]]:
    code = _ENDED
    if state == "finished":
        # The very same run is refused, because its output is there.
        with contextlib.suppress(fpdb.InputError):
            _by_file(folder)
            return 0, ["a finished run was run again"]
    else:
        code = _forked(lambda: _by_file(folder))
    return _judged(folder, records, "out.jsonl", code)


def _in_memory(
    first: Run, folder: Path, records: list[dict[str, str]], state: str
) -> tuple[int, list[str]]:
    code = _forked(lambda: first(folder))
    if state == "finished":
        # What the first run returned is gone with its process, and the second says so.
        return 0, [] if code == _REFUSED else [f"exit code {code}, expected a refusal"]
    return _judged(folder, records, "out.jsonl", code)


def _abandoned(folder: Path, records: list[dict[str, str]], state: str) -> tuple[int, list[str]]:
    """Give up the run for another delivery, which has a half of its records and others."""
    others = [
        {"key": f"other {each['key']}", "text": " ".join(each["text"].split()[::-1])}
        for each in records
    ]
    _write(folder / "next.jsonl", records[: len(records) // 2] + others)

    def dedupe(abandon: bool) -> None:  # noqa: FBT001
        fpdb.dedupe(
            folder / "next.jsonl", folder / "next", fpdb.Reading(format="jsonl"),
            database=folder / "db", abandon=abandon,
        )  # fmt: skip

    problems = []
    if state == "unfinished" and not _forked(lambda: dedupe(abandon=False)):
        problems.append("another run wasn't refused")
    if code := _forked(lambda: dedupe(abandon=True)):
        return 0, [*problems, f"exit code {code}"]
    found = _texts(folder / "next") | (
        _texts(folder / "out.jsonl") if state == "finished" else set()
    )
    gone = {each["text"] for each in records[: len(records) // 2] + others} - found
    return len(gone), problems + _audit(folder)


def _judged(
    folder: Path, records: list[dict[str, str]], output: str, code: int = _ENDED
) -> tuple[int, list[str]]:
    """Count the texts that aren't in an output; the database has each of them once."""
    texts = {each["text"] for each in records}
    found = _texts(folder / output)
    problems = [f"exit code {code}"] if code else []
    if not problems:
        problems = _audit(folder)
        with fpdb.open(folder / "db") as db:
            if len(db) != len(texts):
                problems.append(f"{len(db)} documents, expected {len(texts)}")
    if left := [path.name for path in folder.glob(f".{output}.*")]:
        problems.append(f"left {left}")
    return len(texts - found), problems


def _audit(folder: Path) -> list[str]:
    with fpdb.open(folder / "db") as db:
        return [*map(str, db.check()), *(f"{run}" for run in db.runs.known() if not run.finished)]


def _texts(path: Path) -> set[str]:
    if not path.exists():
        return set()
    return {json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()}


class Way(NamedTuple):
    """A run that is killed, and what is done then."""

    first: Run
    go_on: Callable[[Path, list[dict[str, str]], str], tuple[int, list[str]]]


WAYS = {
    "another output": Way(_by_file, _other_output),
    "a renamed folder": Way(_by_file, _renamed),
    "a copy on another device": Way(_by_file, _copied),
    "tables": Way(_by_table, lambda *given: _in_memory(_by_table, *given)),
    "records": Way(_by_records, lambda *given: _in_memory(_by_records, *given)),
    "abandoned": Way(_by_file, _abandoned),
}


def _control(chance: random.Random, records: list[dict[str, str]], work: Path) -> str:
    """Kill runs that add what they keep before their output is in its place."""
    early = {"begin": decide.Decider.finish, "finish": lambda _: None}
    with mock.patch.multiple(decide.Decider, **early):
        moments = _measure(_by_file, records, work, _MOVES)

        def attempt(_: int) -> str:
            with _folder(work, records) as folder:
                state = _killed(_by_file, folder, moments.last + chance.randint(-5, 15))
                gone, _problems = _other_output(folder, records, state)
            return f"{gone} texts lost" if gone else ""

        return caught("a run that adds too early", CONTROL_ROUNDS, attempt)
