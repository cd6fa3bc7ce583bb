"""Survey documents that were written in the order of their keys: how many, and what is wrong.

Each task reads its files in order and tells of each run of rows how many they are, and their first
and last keys. The driver lays the runs end to end: equal keys are found without another shuffle.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    LongType,
    StringType,
    StructField,
    StructType,
)

import fpdb

FILE, ROW = "file_name", "row_index"
_LARGEST_KEY = 1 << 16


class Run(NamedTuple):
    """Rows of one file that were read one after the other; `problem` says what is wrong, if any."""

    file: str
    first_row: int
    rows: int
    short: int
    first: Any
    last: Any
    problem: str | None


class Survey(NamedTuple):
    """How many documents there are, how many of them short, and the first number of each file."""

    documents: int
    short: int
    offsets: dict[str, int]


def survey(df: DataFrame, words: Sequence[str], bits: int) -> Survey:
    """Read documents once: `key`, the words of the fingerprint, `digest`, file and row."""
    kind = df.schema["key"].dataType
    schema = StructType(
        [
            StructField("file", StringType()),
            StructField("first_row", LongType()),
            StructField("rows", LongType()),
            StructField("short", LongType()),
            StructField("first", kind),
            StructField("last", kind),
            StructField("problem", StringType()),
        ]
    )
    known = F.col("digest").isNotNull().alias("known")
    source = df.select("key", *words, known, FILE, ROW)
    found = source.mapInArrow(_Look(tuple(words), bits), schema).collect()
    runs = sorted((Run(*row) for row in found), key=lambda run: (run.file.encode(), run.first_row))
    _require_sound(runs)
    offsets: dict[str, int] = {}
    documents = 0
    for run in runs:
        offsets.setdefault(run.file, documents)
        documents += run.rows
    return Survey(documents, sum(run.short for run in runs), offsets)


def _require_sound(runs: Sequence[Run]) -> None:
    for before, after in zip([None, *runs], runs, strict=False):
        problem = after.problem
        if before is not None and before.last == after.first:
            problem = problem or _twice(after.first)
        if problem:
            raise fpdb.InputError(
                f"found {problem}",
                hint="each document has a key of its own, and a fingerprint or, if it is short, a "
                "digest: df.dropDuplicates(['key']), df.where('problem is null')",
            )


def _twice(key: object) -> str:
    return f"the key {key!r} twice, expected each key once"


class _Look:
    """What is sent to the workers: gives a run for each file, and for each gap in it."""

    def __init__(self, words: tuple[str, ...], bits: int) -> None:
        self._words = words
        self._bits = bits

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run: Run | None = None
        for batch in batches:
            for piece in _by_file(batch):
                found = self._run(piece)
                if run is None or (run.file, run.first_row + run.rows) != found[:2]:
                    if run is not None:
                        yield _as_batch(run, piece.schema.field("key").type)
                    run = found
                else:
                    problem = run.problem or found.problem
                    if run.last == found.first:
                        problem = problem or _twice(found.first)
                    rows, short = run.rows + found.rows, run.short + found.short
                    run = Run(*run[:2], rows, short, run.first, found.last, problem)
        if run is not None:
            yield _as_batch(run, batch.schema.field("key").type)

    def _run(self, rows: pa.RecordBatch) -> Run:
        keys = rows["key"]
        missing = [rows[name].is_null() for name in self._words]
        short = missing[0]
        return Run(
            rows[FILE][0].as_py(),
            rows[ROW][0].as_py(),
            len(keys),
            pc.sum(short).as_py(),
            keys[0].as_py(),
            keys[-1].as_py(),
            self._problem(rows, missing),
        )

    def _problem(self, rows: pa.RecordBatch, missing: Sequence[pa.Array]) -> str | None:
        keys = rows["key"]
        unknown = pc.and_(missing[0], pc.invert(rows["known"]))
        checks = [(keys.is_null(), "a null as key, in place of {}")]
        if pa.types.is_integer(keys.type):
            checks.append((pc.less(keys, 0), "the key {}, expected numbers from 0 on"))
        else:
            length = pc.binary_length(keys)
            checks.append((pc.equal(length, 0), "an empty key {!r}"))
            checks.append(
                (pc.greater(length, _LARGEST_KEY), "the key {!r:.40}… of over 65,536 bytes")
            )
        checks.append((unknown, "neither a fingerprint nor a digest for the key {!r}"))
        checks.append((pc.xor(missing[0], missing[-1]), "half a fingerprint for the key {!r}"))
        if self._bits == 32:
            beyond = pc.not_equal(pc.shift_right(rows[self._words[0]], 32), 0)
            checks.append((beyond, "a fingerprint of more than 32 bits for the key {!r}"))
        for wrong, what in checks:
            place = pc.index(wrong, value=True).as_py()
            if place >= 0:
                return what.format(keys[place].as_py())
        same = pc.index(pc.equal(keys[1:], keys[:-1]), value=True).as_py()
        return _twice(keys[same].as_py()) if same >= 0 else None


def _by_file(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch where another file begins, or a gap."""
    rows: NDArray[np.int64] = batch[ROW].to_numpy()
    names = batch[FILE]
    apart = pc.not_equal(names[1:], names[:-1]).to_numpy(zero_copy_only=False)
    cuts = ((np.diff(rows) != 1) | apart).nonzero()[0] + 1
    places = [0, *cuts.tolist(), len(rows)]
    for start, end in pairwise(places):
        if end > start:
            yield batch.slice(start, end - start)


def _as_batch(run: Run, key: pa.DataType) -> pa.RecordBatch:
    types = {"first": key, "last": key, "file": pa.string(), "problem": pa.string()}
    columns = {
        name: pa.array([value], types.get(name, pa.int64()))
        for name, value in run._asdict().items()
    }
    return pa.RecordBatch.from_pydict(columns)
