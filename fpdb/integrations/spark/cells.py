"""The joins: rows with an equal prefix, or an equal band, meet in a task, and numpy compares them.

Each fingerprint becomes one row for each table, with its prefix there. The rows of a table and
prefix come to one task, sorted. A pair counts in the first table in which both agree, which can be
seen from their bits, so the result needs no DISTINCT.

A prefix shared by very many rows would be one task with quadratic work. Such prefixes are found by
a sample and split into cells: the rows are divided into parts, each pair of parts is a cell, and no
cell has more than a bounded number of rows of either part.

Sketches are joined in the same way by the numbers of their bands, with one difference: a number
that very many have is boilerplate, and its rows meet only those in a cell of their own.

The tasks are sent to the workers, so they consist of data only.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import fpdb
from fpdb.integrations.spark.fingerprints import FingerprintType, prefix_column, words_array

_LIKENESS_BYTES = 128
# Rows of a prefix that are compared with each other in one task.
_CELL_ROWS = 1 << 15
# Fingerprints of the sample in which crowded prefixes are found.
_SAMPLE = 1 << 18
# A number of bands is crowded if more documents have it, and if a question would meet more.
_CROWD, _CROWD_OF_QUERY = 1_000, 10_000
# With fewer rows of a number in the sample, chance decides what is crowded.
_SAMPLED = 8
# Sketches are longer than fingerprints, and fewer of them fit into a task.
_TASK_SKETCHES = 400_000
# The part of its cell to which a row belongs: the first, the second, or the only one.
_FIRST, _SECOND, _ALONE = 0, 1, 2
_CELL_COLUMNS = ("table", "prefix", "cell")
# Rows that are compared in one step; with fewer than _FEW left, each is compared by itself.
_BLOCK = 1 << 16
_FEW = 64
_WORD = (1 << 64) - 1

_RowNumbers = NDArray[np.intp]
_RowMarks = NDArray[np.bool_]


def near(
    left: DataFrame, right: DataFrame | None, kind: FingerprintType, plan: fpdb.JoinPlan
) -> DataFrame:
    """Return all pairs within k of fingerprints in `left`, or of one there and one in `right`.

    Both have one column, `fingerprint`, of distinct ones. The result has `first`, `second` and
    `distance`. In `left` alone each pair is found once; a fingerprint that is in both DataFrames
    is a pair at distance 0.
    """
    rows = _rows(left, kind, plan, _ALONE if right is None else _FIRST)
    if right is not None:
        rows = rows.unionByName(_rows(right, kind, plan, _SECOND))
    schema = (
        StructType().add("first", kind.type).add("second", kind.type).add("distance", "integer")
    )
    return _compared(_cells(rows, plan), plan.tasks, _CompareTask(kind, plan), schema)


def _compared(
    rows: DataFrame, tasks: int, task: "_CompareTask | _SimilarTask", schema: StructType
) -> DataFrame:
    """Bring the rows of a cell together, and compare them."""
    placed = rows.repartition(tasks, *_CELL_COLUMNS)
    return placed.sortWithinPartitions(*_CELL_COLUMNS, "part").mapInArrow(task, schema)


def _rows(df: DataFrame, kind: FingerprintType, plan: fpdb.JoinPlan, part: int) -> DataFrame:
    """Return one row for each fingerprint and table."""
    column = F.col("fingerprint")
    prefixes = F.array(*(prefix_column(column, kind, mask) for mask in plan.masks))
    exploded = F.posexplode(prefixes).alias("table", "prefix")
    return df.select(column, exploded, F.lit(part).alias("part"))


def _cells(rows: DataFrame, plan: fpdb.JoinPlan) -> DataFrame:
    """Add the cells: a row of a crowded prefix is copied for each cell of its part."""
    crowds = _crowds(rows, plan)
    if not crowds:
        return rows.withColumn("cell", F.lit(0))
    schema = "table int, prefix bigint, left int, right int"
    cut = F.broadcast(rows.sparkSession.createDataFrame(crowds, schema))
    joined = rows.join(cut, ["table", "prefix"], "left")
    part, is_second = F.col("part"), F.col("part") == _SECOND
    left, right = (F.coalesce(F.col(side), F.lit(1)) for side in ("left", "right"))
    # Another hash than the sample's, which all sampled rows have in common.
    hashed = F.xxhash64(F.lit("part"), F.col("fingerprint"))
    mine = F.pmod(hashed, F.when(is_second, right).otherwise(left))

    def cell(other: Column) -> Column:
        inside = (part == _ALONE) & (mine != other)
        swapped = is_second | (inside & (mine > other))
        low, high = F.when(swapped, other).otherwise(mine), F.when(swapped, mine).otherwise(other)
        role = F.when(inside, F.when(swapped, _SECOND).otherwise(_FIRST)).otherwise(part)
        return F.struct((low * right + high).alias("cell"), role.alias("part"))

    others = F.sequence(F.lit(0), F.when(is_second, left).otherwise(right) - 1)
    return joined.select("fingerprint", "table", "prefix", F.inline(F.transform(others, cell)))


def _crowds(rows: DataFrame, plan: fpdb.JoinPlan) -> list[tuple[int, ...]]:
    """Find the prefixes that very many fingerprints share, in a sample of them.

    Return the table, the prefix, and the number of parts into which each side is split; None is 1.
    """
    rate = max(1, (plan.documents + (plan.queries or 0)) // _SAMPLE)
    drawn = rows.where(F.pmod(F.xxhash64(F.lit("sample"), F.col("fingerprint")), F.lit(rate)) == 0)
    counts = drawn.groupBy("table", "prefix", "part").count()
    counts = counts.where(F.col("count") * rate > _CELL_ROWS)
    parts = F.ceil(F.col("count") * rate / _CELL_ROWS).cast("int")
    left, right = (F.max(F.when(F.col("part") != other, parts)) for other in (_SECOND, _FIRST))
    return list(map(tuple, counts.groupBy("table", "prefix").agg(left, right).collect()))


class BandPlan(NamedTuple):
    """A way to find the pairs of similar documents, by bands of their sketches.

    The bands are those of a database with that many documents; equal ones count once. With
    `queries`, it is for that many other documents. The work is cut into `tasks`. `crowds` are
    numbers of bands that very many documents have, and into how many parts those are divided:
    documents of different parts don't meet there.
    """

    similarity: float
    bands: fpdb.Bands
    documents: int
    queries: int | None
    tasks: int
    crowds: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """The rows that are sent: each document once for each band."""
        return (self.documents + (self.queries or 0)) * self.bands.count

    @property
    def name(self) -> str:
        """The plan in short, e.g. `9 bands of 6 bins`."""
        return self.bands.name


def plan_bands(left: DataFrame, right: DataFrame | None, similarity: float, cores: int) -> BandPlan:
    """Count the documents, choose bands for them, and look for crowds in a sample."""
    queries, documents = None, max(1, left.count())
    if right is not None:
        queries, documents = documents, max(1, right.count())
    [chosen, *_] = fpdb.plans(64, 0, documents, similarity=similarity)
    if chosen.bands is None:
        raise fpdb.PlanError(f"found no bands for the similarity {similarity}")
    plan = BandPlan(similarity, chosen.bands, documents, queries, cores, ())
    usual = _CROWD if right is None else _CROWD_OF_QUERY
    rate = max(1, documents // _SAMPLE)
    most = max(usual, _SAMPLED * rate)
    drawn = F.pmod(F.xxhash64(F.lit("sample"), F.col("likeness")), F.lit(rate)) == 0
    numbers = _band_rows((left if right is None else right).where(drawn), plan, _ALONE)
    counts = numbers.groupBy("prefix").count().where(F.col("count") * rate > most)
    crowds = sorted((row[0], ceil(row[1] * rate / most)) for row in counts.collect())
    if crowds:
        largest = most * max(parts for _, parts in crowds)
        warnings.warn(
            f"some similar documents may be missing: up to {largest:,} agree in a band of their "
            f"sketches, and each is compared with about {most:,} of them",
            fpdb.IncompleteWarning,
            stacklevel=4,  # the caller of `plan`, `pairs` or `query`
        )
    return plan._replace(tasks=max(cores, ceil(plan.rows / _TASK_SKETCHES)), crowds=tuple(crowds))


def similar(left: DataFrame, right: DataFrame | None, plan: BandPlan) -> DataFrame:
    """Return all pairs of similar documents in `left`, or of one there and one in `right`.

    Both have the columns `lead`, `fingerprint` and `likeness`: a sketch, or the digest of a text
    that has none. The result has `lead`, `other_lead`, `distance` and `similarity`. In `left` alone
    each pair is found once.
    """
    rows = _band_rows(left, plan, _ALONE if right is None else _FIRST)
    if right is not None:
        rows = rows.unionByName(_band_rows(right, plan, _SECOND))
    lead = left.schema["lead"].dataType
    schema = StructType().add("lead", lead).add("other_lead", lead)
    schema.add("similarity", "double").add("distance", "integer")
    return _compared(rows, plan.tasks, _SimilarTask(plan), schema)


def _band_rows(df: DataFrame, plan: BandPlan, part: int) -> DataFrame:
    """Return one row for each document and band."""
    own = df.select("lead", "fingerprint", "likeness")
    schema = StructType(list(own.schema)).add("table", "integer").add("prefix", "long")
    schema.add("cell", "integer").add("part", "integer")
    return own.mapInArrow(_BandTask(plan, part), schema)


class _BandTask:
    """Makes the rows of documents on a worker."""

    def __init__(self, plan: BandPlan, part: int) -> None:
        self._plan = plan
        self._part = part

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers, cells, marks = _places(self._plan, _likeness(batch["likeness"]))
            at, tables = marks.nonzero()
            rows = batch.take(pa.array(at))
            columns = {name: rows[name] for name in batch.schema.names}
            columns["table"] = pa.array(tables, pa.int32())
            columns["prefix"] = pa.array(numbers[marks].view(np.int64))
            columns["cell"] = pa.array(cells[marks])
            columns["part"] = pa.array(np.full(len(at), self._part, np.int32))
            yield pa.RecordBatch.from_pydict(columns)


def _places(
    plan: BandPlan, likeness: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.int32], _RowMarks]:
    """Return the numbers of documents, the cells in which they meet others, and which count."""
    sketched = likeness[:, 2:].any(axis=1, keepdims=True)
    sketches = np.where(sketched, likeness, 0).view(np.uint8)
    numbers, marks = plan.bands.columns(sketches, np.where(sketched, 0, likeness[:, :2]))
    cells = np.zeros(numbers.shape, np.int32)
    if plan.crowds:
        crowds, parts = np.array(plan.crowds, np.uint64).T
        at = crowds.searchsorted(numbers).clip(max=len(crowds) - 1)
        # By another hash in each band, so that those that are parted in one may meet in another.
        for row, band in np.argwhere((crowds[at] == numbers) & marks).tolist():
            hashed = xxhash.xxh3_64_intdigest(likeness[row].tobytes(), band)
            cells[row, band] = hashed % int(parts[at[row, band]])
    return numbers, cells, marks


def _likeness(column: pa.Array) -> NDArray[np.uint64]:
    """Return sketches, and digests with zeros after them, as rows of words."""
    rows = b"".join(row.ljust(_LIKENESS_BYTES, b"\0") for row in column.to_pylist())
    return np.frombuffer(rows, np.uint64).reshape(-1, _LIKENESS_BYTES // 8)


class _CellRows(NamedTuple):
    """Rows of a task as columns; `words` has a row of words for each fingerprint.

    Documents have a likeness and a key besides.
    """

    table: NDArray[Any]
    prefix: NDArray[Any]
    cell: NDArray[Any]
    part: NDArray[Any]
    words: NDArray[Any]
    likeness: NDArray[Any]
    keys: NDArray[Any]

    def chosen(self, which: slice) -> "_CellRows":
        """Return some of the rows."""
        return _CellRows(*(column[which] for column in self))

    def starts(self, *, parts: bool = False) -> NDArray[np.intp]:
        """Return the places where a cell starts, or a part of one."""
        changed = np.ones(len(self.words), np.bool_)
        changed[1:] = False
        for column in self[: 4 if parts else 3]:
            changed[1:] |= column[1:] != column[:-1]
        return changed.nonzero()[0]

    def ends(self, *, parts: bool = False) -> NDArray[np.intp]:
        """Return for each row where its cell ends, or its part of the cell."""
        starts = self.starts(parts=parts)
        stops = np.append(starts[1:], len(self.words))
        return np.repeat(stops, stops - starts)


def _near_pairs(
    task: "_CompareTask | _SimilarTask", batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compare the rows of each cell, and yield the near pairs that met in no earlier table."""
    for rows in _whole_cells(batches):
        first, second = _near_rows(rows, partial(task.near, rows))
        fresh = task.is_first(rows, first, second)
        first, second = first[fresh], second[fresh]
        if len(first):
            differing = rows.words[first] ^ rows.words[second]
            distances = np.bitwise_count(differing).sum(axis=1, dtype=np.int32)
            found = task.result(rows, first, second)
            yield pa.RecordBatch.from_pydict({**found, "distance": pa.array(distances)})


def _whole_cells(batches: Iterable[pa.RecordBatch]) -> Iterator[_CellRows]:
    """Yield blocks of rows that end where a cell ends."""
    held: list[_CellRows] = []
    size = 0
    for batch in batches:
        held.append(_rows_of(batch))
        size += len(batch)
        if size < _BLOCK:
            continue
        rows = _CellRows(*map(np.concatenate, zip(*held, strict=True)))
        last = int(rows.starts()[-1])
        if last:
            yield rows.chosen(slice(0, last))
        held = [rows.chosen(slice(last, None))]
        size = len(held[0].words)
    if size:
        yield _CellRows(*map(np.concatenate, zip(*held, strict=True)))


def _rows_of(batch: pa.RecordBatch) -> _CellRows:
    column = batch["fingerprint"]
    words = column.flatten() if pa.types.is_struct(column.type) else [column]
    likeness = keys = np.empty((len(batch), 0), np.uint64)
    if "likeness" in batch.schema.names:
        likeness = _likeness(batch["likeness"])
        keys = batch["lead"].to_numpy(zero_copy_only=False)
    places = (batch[name].to_numpy() for name in _CellRows._fields[:4])
    own = np.stack([word.to_numpy().view(np.uint64) for word in words], axis=-1)
    return _CellRows._make([*places, own, likeness, keys])


class _CompareTask:
    """Compares fingerprints, and returns them."""

    def __init__(self, kind: FingerprintType, plan: fpdb.JoinPlan) -> None:
        self._k = plan.k
        width = len(kind.words)
        self._masks = [
            [mask >> 64 * (width - 1 - word) & _WORD for word in range(width)]
            for mask in plan.masks
        ]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _near_pairs(self, batches)

    def near(self, rows: _CellRows, first: Any, second: Any) -> _RowMarks:
        """Mark the near ones of pairs, given by two arrays of places, or a place and a slice."""
        apart = np.bitwise_count(rows.words[first] ^ rows.words[second]).sum(axis=1)
        return np.asarray(apart <= self._k)

    def is_first(self, rows: _CellRows, first: _RowNumbers, second: _RowNumbers) -> _RowMarks:
        """Mark the pairs that meet in no earlier table."""
        tables, differing = rows.table[first], rows.words[first] ^ rows.words[second]
        fresh = np.ones(len(tables), np.bool_)
        # A pair need not agree in its own table: of two words, the prefix is a hash.
        for table, mask in enumerate(self._masks):
            agreeing = ~(differing & np.array(mask, np.uint64)).any(axis=1)
            fresh &= np.where(tables > table, ~agreeing, agreeing | (tables != table))
        return fresh

    def result(
        self, rows: _CellRows, first: _RowNumbers, second: _RowNumbers
    ) -> dict[str, pa.Array]:
        """Return the columns of pairs, except the distance."""
        return {"first": words_array(rows.words[first]), "second": words_array(rows.words[second])}


class _SimilarTask:
    """Compares documents by their likeness, and returns their keys."""

    def __init__(self, plan: BandPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _near_pairs(self, batches)

    def _shares(self, rows: _CellRows, first: Any, second: Any) -> NDArray[np.float64]:
        """Return the similarity of pairs; two digests are equal or aren't similar."""
        own, other = rows.likeness[first], rows.likeness[second]
        shares = fpdb.sketch_jaccard(own.view(np.uint8), other.view(np.uint8))
        shares = np.where(rows.table[first] < self._plan.bands.count, shares, 0.0)
        return np.where((own == other).all(axis=-1), 1.0, shares)

    def near(self, rows: _CellRows, first: Any, second: Any) -> _RowMarks:
        """Mark the near ones of pairs, given by two arrays of places, or a place and a slice."""
        least = fpdb.least_estimate(self._plan.similarity)
        return np.asarray(self._shares(rows, first, second) >= least)

    def is_first(self, rows: _CellRows, first: _RowNumbers, second: _RowNumbers) -> _RowMarks:
        """Mark the pairs that meet in no earlier table."""
        numbers, cells, marks = _places(self._plan, rows.likeness[first])
        others, other_cells, _ = _places(self._plan, rows.likeness[second])
        meeting = (numbers == others) & (cells == other_cells) & marks
        return np.asarray(meeting.argmax(axis=1) == rows.table[first])

    def result(
        self, rows: _CellRows, first: _RowNumbers, second: _RowNumbers
    ) -> dict[str, pa.Array]:
        """Return the columns of pairs, except the distance."""
        return {
            "lead": pa.array(rows.keys[first]),
            "other_lead": pa.array(rows.keys[second]),
            "similarity": pa.array(self._shares(rows, first, second)),
        }


def _near_rows(rows: _CellRows, near: Callable[[Any, Any], _RowMarks]) -> list[_RowNumbers]:
    """Return the places of rows near each other, in the same cell and in both its parts."""
    live, at, stop = _ranges(rows)
    firsts: list[_RowNumbers] = [np.empty(0, np.intp)]
    seconds: list[_RowNumbers] = [np.empty(0, np.intp)]
    # All rows are compared with their next candidate at once; the few that have very many
    # candidates are compared one by one.
    while len(live) > _FEW:
        found = near(live, at)
        firsts.append(live[found])
        seconds.append(at[found])
        at = at + 1
        more = at < stop
        live, at, stop = live[more], at[more], stop[more]
    for row, start, end in zip(live.tolist(), at.tolist(), stop.tolist(), strict=True):
        places = near(row, slice(start, end)).nonzero()[0] + start
        firsts.append(np.full(len(places), row))
        seconds.append(places)
    return [np.concatenate(firsts), np.concatenate(seconds)]


def _ranges(rows: _CellRows) -> tuple[_RowNumbers, _RowNumbers, _RowNumbers]:
    """Return the rows that have candidates, and where these start and end."""
    end = rows.ends()
    follower = np.arange(1, len(end) + 1)
    start = np.where(rows.part == _ALONE, follower, rows.ends(parts=True))
    live = ((start < end) & (rows.part != _SECOND)).nonzero()[0]
    return live, start[live], end[live]
