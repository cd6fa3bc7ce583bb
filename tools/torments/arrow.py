"""Parquet and Arrow files with changed bytes, each given to an ingest before a good one."""

import collections
import datetime
import decimal
import importlib.util
import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from figures import ControlError, Figures, going

import fpdb
from fpdb.errors import WorkerError
from fpdb.io import arrow, decoding
from fpdb.io.records import Reading
from fpdb.io.streams import StreamError
from fpdb.processes import Worker

ROUNDS = 10_000
_ROWS = 12
_SECONDS = 60.0
_CONTROLS = 2000
_VALUES = (0, 1, 127, 128, 255)


class Trial(NamedTuple):
    """A file with changed bytes, the good one after it, and the key of what that holds."""

    database: str
    changed: str
    good: str
    key: str


class Outcome(NamedTuple):
    """What came of a trial: an error of the call, the reasons of bad records, what was stored.

    `processor` are the seconds of the calling process, `memory` the most bytes that it had.
    """

    error: str
    reasons: list[str]
    stored: bool
    processor: float
    memory: int


def missing() -> str:
    """Return what this torment lacks here."""
    return "" if importlib.util.find_spec("pyarrow") else "pyarrow isn't installed"


class Caller:
    """Ingests files in a process of its own, whose death is counted.

    With a `flaw`, the files are decoded in that very process, and what they say isn't validated.
    """

    def __init__(self, *, flaw: bool = False) -> None:
        self._flaw = flaw

    def __call__(self, trial: Trial) -> Outcome:
        if self._flaw:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            arrow._decoded = _decoded_here
            decoding._require_valid = lambda batch: batch
        began = time.process_time()
        reasons: list[str] = []
        error = ""
        with fpdb.open(trial.database) as database:
            try:
                fpdb.ingest(
                    database,
                    [trial.changed, trial.good],
                    Reading(meta_field="*"),
                    on_bad=lambda bad: reasons.append(bad.reason),
                )
            except BaseException as found:
                error = f"{type(found).__name__}: {found}"
            stored = trial.key in database
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return Outcome(error, reasons, stored, time.process_time() - began, memory)


def _decoded_here(file: Any) -> Any:
    for block in decoding.file_blocks(file):
        if isinstance(block, StreamError):
            raise block
        yield block


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Change one to three bytes of a file in each round, and ingest it before a good file."""
    dice = random.Random(seed)
    sources = _sources(work)
    control = _control(sources, random.Random(seed), work)
    database = work / "db"
    fpdb.create(database).close()
    counts: collections.Counter[str] = collections.Counter()
    notes: dict[str, object] = {}
    wrong = lost = total = 0
    slowest, largest = 0.0, 0
    caller = Worker(Caller(), subprocess.DEVNULL)
    for name, data in sources.items():
        whole = _trial(name, data, dice, work, "whole", changes=0)
        if (found := caller.call(whole)).reasons:
            raise ControlError(f"{name} can't be read before it is changed: {found.reasons}")
    for number in going(rounds):
        total += 1
        name = dice.choice(list(sources))
        trial = _trial(name, sources[name], dice, work, f"good {number}")
        try:
            outcome = caller.call(trial)
        except WorkerError as error:
            caller.close()
            caller = Worker(Caller(), subprocess.DEVNULL)
            outcome = Outcome(str(error), [], stored=False, processor=0, memory=0)
            counts["deaths of the calling process"] += 1
        lost += not outcome.stored
        if outcome.error:
            wrong += 1
            kept = work / f"wrong-{number}-{name}"
            kept.write_bytes(Path(trial.changed).read_bytes())
            notes[kept.name] = outcome.error
        counts[_kind(outcome)] += 1
        slowest = max(slowest, outcome.processor)
        largest = max(largest, outcome.memory)
    caller.close()
    with fpdb.open(database) as stored:
        problems = [str(problem) for problem in stored.check()]
    wrong += bool(problems)
    notes |= dict(counts.most_common())
    notes["problems of the database"] = problems[:5]
    notes["most seconds of processor time in the calling process"] = round(slowest, 2)
    notes["most MiB of the calling process"] = largest >> 20
    return Figures(total, total - lost, lost, wrong, control=control, notes=notes)


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
) -> Trial:
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3)) if changes is None else changes):
        value = dice.choice((*_VALUES, dice.randrange(256)))
        changed[dice.randrange(len(changed))] = value
    path, good = work / name, work / f"good-{name}"
    path.write_bytes(changed)
    _write({"key": [key], "text": ["what the good file says"]}, good)
    return Trial(str(work / "db"), str(path), str(good), key)


def _control(sources: dict[str, bytes], dice: random.Random, work: Path) -> str:
    """Ingest in a process that decodes by itself, until it dies."""
    fpdb.create(work / "db-of-control").close()
    names = [name for name in sources if name.endswith(".arrow")]
    caller = Worker(Caller(flaw=True), subprocess.DEVNULL)
    try:
        for number in range(_CONTROLS):
            name = dice.choice(names)
            trial = _trial(name, sources[name], dice, work, f"good {number}")
            outcome = caller.call(trial._replace(database=str(work / "db-of-control")))
            if outcome.error or not outcome.stored:
                return f"decoding in the calling process failed in round {number}: {outcome.error}"
    except WorkerError:
        how = signal.Signals(-(caller.exit_code or -1)).name
        return f"decoding in the calling process killed it by {how} in round {number}"
    finally:
        caller.close()
    raise ControlError("decoding in the calling process wasn't caught")


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
    """Return columns of all kinds, in groups."""
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
