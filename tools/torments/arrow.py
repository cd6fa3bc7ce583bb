"""Parquet and Arrow files with changed bytes, each given to an ingest before a good one."""

import datetime
import decimal
import random
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from frame import ControlError, Figures, caught, going

import fpdb
from fpdb.errors import WorkerError
from fpdb.io import arrow, decoding
from fpdb.io.records import Reading
from fpdb.processes import Worker

_ROWS = 12
_CONTROLS = 2000
_VALUES = (0, 1, 127, 128, 255)


class Outcome(NamedTuple):
    """What came of a trial: an error of the call, the reasons of bad records, what was stored.

    `processor` are the seconds of the calling process, `memory` the most bytes that it had.
    """

    error: str
    reasons: list[str]
    stored: bool = False
    processor: float = 0
    memory: int = 0


class Ingesting:
    """Ingests a changed file and a good one in a process of its own, whose death is counted.

    With a `flaw`, the files are decoded in that very process, and what they say isn't validated.
    """

    def __init__(self, database: Path, *, flaw: bool = False) -> None:
        self._database, self._flaw = str(database), flaw
        fpdb.create(database).close()

    def __call__(self, files: tuple[str, str, str]) -> Outcome:
        *paths, key = files
        if self._flaw:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            arrow._decoded = _decoded_here
            decoding._require_valid = lambda batch: batch
        began, reasons, error = time.process_time(), [], ""
        with fpdb.open(self._database) as database:
            try:
                fpdb.ingest(
                    database,
                    paths,
                    Reading(meta_field="*"),
                    on_bad=lambda bad: reasons.append(bad.reason),
                )
            except BaseException as found:
                error = f"{type(found).__name__}: {found}"
            stored = key in database
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return Outcome(error, reasons, stored, time.process_time() - began, memory)


def _decoded_here(file: Any) -> Iterator[Any]:
    return decoding.file_blocks(file)


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    sources = _sources(work)
    figures.control = _control(sources, random.Random(seed), work)
    dice, slowest, largest = random.Random(seed), 0.0, 0
    ingesting = Ingesting(work / "db")
    caller = Worker(ingesting, subprocess.DEVNULL)
    for name, data in sources.items():
        whole = _trial(name, data, dice, work, "whole", changes=0)
        if (found := caller.call(whole)).reasons:
            raise ControlError(f"{name} can't be read before it is changed: {found.reasons}")
    for number in going(rounds):
        name = dice.choice(list(sources))
        trial = _trial(name, sources[name], dice, work, f"good {number}")
        try:
            outcome = caller.call(trial)
        except WorkerError as error:
            caller.close()
            caller = Worker(ingesting, subprocess.DEVNULL)
            outcome = Outcome(f"the calling process died: {error}", [])
        wrong = f"wrong-{number}-{name}"
        if outcome.error:
            (work / wrong).write_bytes(Path(trial[0]).read_bytes())
        figures.add(
            wrong, [outcome.error] * bool(outcome.error), lost=not outcome.stored,
            acknowledged=outcome.stored,
        )  # fmt: skip
        figures.count("files", _kind(outcome))
        slowest, largest = max(slowest, outcome.processor), max(largest, outcome.memory)
    caller.close()
    with fpdb.open(work / "db") as stored:
        problems = [str(problem) for problem in stored.check()]
    figures.inconsistent += bool(problems)
    figures.notes |= {
        "problems of the database": problems[:5],
        "most seconds of processor time in the calling process": round(slowest, 2),
        "most MiB of the calling process": largest >> 20,
    }


def _kind(outcome: Outcome) -> str:
    if outcome.error:
        return "errors of the call"
    joined = " ".join(outcome.reasons)
    if "killed the process" in joined:
        return f"deaths of the reader by {joined.partition('that read it by ')[2].split(':')[0]}"
    for what in ("processor time", "of memory", "can't be read as a complete"):
        if what in joined:
            return f"files that end early: {what}"
    return "files with bad rows" if outcome.reasons else "files without a bad row"


def _trial(
    name: str, data: bytes, dice: random.Random, work: Path, key: str, changes: int | None = None
) -> tuple[str, str, str]:
    """Write a file with changed bytes, and the good one after it, which holds a key."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3)) if changes is None else changes):
        value = dice.choice((*_VALUES, dice.randrange(256)))
        changed[dice.randrange(len(changed))] = value
    path, good = work / name, work / f"good-{name}"
    path.write_bytes(changed)
    _write({"key": [key], "text": ["what the good file says"]}, good)
    return str(path), str(good), key


def _control(sources: dict[str, bytes], dice: random.Random, work: Path) -> str:
    """Ingest in a process that decodes by itself, until it dies."""
    names = [name for name in sources if name.endswith(".arrow")]
    caller = Worker(Ingesting(work / "db-of-control", flaw=True), subprocess.DEVNULL)

    def attempt(number: int) -> str:
        name = dice.choice(names)
        try:
            outcome = caller.call(_trial(name, sources[name], dice, work, f"good {number}"))
        except WorkerError:
            return f"killed by {signal.Signals(-(caller.exit_code or -1)).name}"
        return outcome.error or "the good file wasn't stored" * (not outcome.stored)

    try:
        return caught("decoding in the calling process", _CONTROLS, attempt)
    finally:
        caller.close()


def _sources(work: Path) -> dict[str, bytes]:
    """Make files of columns of all kinds, in all forms; return their bytes by their names."""
    found = {}
    columns = _columns()
    for suffix in ("parquet", "arrow", "stream.arrow", "packed.arrow", "packed.parquet"):
        for kind, extra in columns.items():
            path = work / f"{kind}.{suffix}"
            texts = [f"text number {row} of several words that differ" for row in range(_ROWS)]
            try:
                _write({"key": [f"k{row}" for row in range(_ROWS)], "text": texts, **extra}, path)
            except NotImplementedError:  # Parquet has fewer kinds of columns
                continue
            found[path.name] = path.read_bytes()
    return found


def _write(columns: dict[str, Any], path: Path) -> None:
    import pyarrow
    from pyarrow import ipc, parquet

    table = pyarrow.table(columns)
    packing = "zstd" if "packed" in path.name else None
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=5, compression=packing or "none")
        return
    make = ipc.new_stream if "stream" in path.name else ipc.new_file
    options = ipc.IpcWriteOptions(compression=packing)
    with (
        pyarrow.OSFile(str(path), "wb") as sink,
        make(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table, max_chunksize=5)


def _columns() -> dict[str, dict[str, Any]]:
    import pyarrow

    rows = range(_ROWS)
    words = [f"word {row}" if row % 3 else None for row in rows]
    lists = [[f"item {place}" for place in range(row % 4)] for row in rows]
    coded = pyarrow.array(words).dictionary_encode()
    moments = [datetime.datetime(2024, 5, 1 + row, tzinfo=datetime.UTC) for row in rows]
    return {
        "plain": {},
        "numbers": {
            "n": pyarrow.array(list(rows), "int8"),
            "u": pyarrow.array(list(rows), "uint64"),
            "f": [row / 3 for row in rows],
            "h": pyarrow.array([1.5] * _ROWS, "float16"),
            "b": [row % 2 == 0 for row in rows],
            "d": [decimal.Decimal(row) for row in rows],
        },
        "times": {
            "t": moments,
            "ns": pyarrow.array(moments, pyarrow.timestamp("ns")),
            "day": [moment.date() for moment in moments],
            "time": [moment.time() for moment in moments],
            "long": pyarrow.array([datetime.timedelta(row) for row in rows]),
        },
        "texts": {
            "large": pyarrow.array(words, pyarrow.large_string()),
            "bytes": [(word or "").encode() for word in words],
            "fixed": pyarrow.array([b"abcd"] * _ROWS, pyarrow.binary(4)),
            "coded": coded,
        },
        "nested": {
            "list": lists,
            "large": pyarrow.array(lists, pyarrow.large_list(pyarrow.string())),
            "pair": pyarrow.array([[row, row] for row in rows], pyarrow.list_(pyarrow.int64(), 2)),
            "struct": [{"a": row, "b": {"c": f"{row}"}} for row in rows],
            "map": pyarrow.array(
                [[("a", row)] for row in rows], pyarrow.map_(pyarrow.string(), pyarrow.int64())
            ),
            "coded": pyarrow.ListArray.from_arrays([*range(_ROWS), _ROWS], coded),
        },
        "views": {
            "view": pyarrow.array(words, pyarrow.string_view()),
            "long": pyarrow.array(["a longer text " * 3] * _ROWS, pyarrow.binary_view()),
            "lists": pyarrow.array(lists, pyarrow.list_view(pyarrow.string())),
            "runs": pyarrow.RunEndEncodedArray.from_arrays([3, _ROWS], ["a", "b"]),
        },
        "unions": {
            "union": pyarrow.UnionArray.from_dense(
                pyarrow.array([row % 2 for row in rows], "int8"),
                pyarrow.array([row // 2 for row in rows], "int32"),
                [pyarrow.array(list(rows)), pyarrow.array([f"{row}" for row in rows])],
            ),
            "nothing": pyarrow.nulls(_ROWS),
        },
    }
