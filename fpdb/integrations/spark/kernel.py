"""The join by fingerprints: rows with an equal prefix meet in a task, and numpy compares them.

Each fingerprint becomes one row for each table, with its prefix there. The rows of a table and
prefix come to one task, sorted. A pair counts in the first table in which both agree, which can be
seen from their bits, so the result needs no DISTINCT.

A prefix shared by very many rows would be one task with quadratic work. Such prefixes are found by
a sample and split into cells: the rows are divided into parts, each pair of parts is a cell, and no
cell has more than a bounded number of rows of either part.

The tasks are sent to the workers, so they consist of data only.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, IntegerType, StructField, StructType

import fpdb
from fpdb.integrations.spark.fingerprints import FingerprintType, prefix_column, words_array

_SKETCH_BYTES = 128
# Rows of a prefix that are compared with each other in one task.
_CELL_ROWS = 1 << 15
# Fingerprints of the sample in which crowded prefixes are found.
_SAMPLE = 1 << 18
# The part of its cell to which a row belongs: the first, the second, or the only one.
_FIRST, _SECOND, _ALONE = 0, 1, 2
_CELL_COLUMNS = ("table", "prefix", "cell")
# Rows that are compared in one step; with fewer than _FEW left, each is compared by itself.
_BLOCK = 1 << 16
_FEW = 64
_WORD = (1 << 64) - 1


def near(
    left: DataFrame,
    right: DataFrame | None,
    kind: FingerprintType,
    plan: fpdb.JoinPlan,
) -> DataFrame:
    """Return all pairs within k of fingerprints in `left`, or of one there and one in `right`.

    Both have one column, `fingerprint`, of distinct ones. The result has `first`, `second` and
    `distance`. In `left` alone each pair is found once; a fingerprint that is in both DataFrames
    is a pair at distance 0.
    """
    rows = _rows(left, kind, plan, _ALONE if right is None else _FIRST)
    if right is not None:
        rows = rows.unionByName(_rows(right, kind, plan, _SECOND))
    placed = _cells(rows, plan).repartition(plan.tasks, *_CELL_COLUMNS)
    placed = placed.sortWithinPartitions(*_CELL_COLUMNS, "part")
    schema = StructType(
        [
            StructField("first", kind.type),
            StructField("second", kind.type),
            StructField("distance", IntegerType()),
        ]
    )
    return placed.mapInArrow(_CompareTask(kind, plan), schema)


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


class _CellRows(NamedTuple):
    """Rows of a task as columns; `words` has a row of words for each fingerprint."""

    table: NDArray[Any]
    prefix: NDArray[Any]
    cell: NDArray[Any]
    part: NDArray[Any]
    words: NDArray[Any]

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


class _CompareTask:
    """Compares the rows of each cell on a worker."""

    def __init__(self, kind: FingerprintType, plan: fpdb.JoinPlan) -> None:
        self._names = kind.words
        self._k = plan.k
        width = len(self._names)
        self._masks = [
            [mask >> 64 * (width - 1 - word) & _WORD for word in range(width)]
            for mask in plan.masks
        ]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in self._whole_cells(batches):
            first, second = _near_rows(rows, self._k)
            differing = rows.words[first] ^ rows.words[second]
            fresh = self._is_first(rows.table[first], differing)
            first, second, differing = first[fresh], second[fresh], differing[fresh]
            if len(first):
                distances = np.bitwise_count(differing).sum(axis=1, dtype=np.int32)
                yield pa.RecordBatch.from_pydict(
                    {
                        "first": words_array(rows.words[first]),
                        "second": words_array(rows.words[second]),
                        "distance": pa.array(distances),
                    }
                )

    def _whole_cells(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_CellRows]:
        """Yield blocks of rows that end where a cell ends."""
        held: list[_CellRows] = []
        size = 0
        for batch in batches:
            held.append(self._rows_of(batch))
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

    def _rows_of(self, batch: pa.RecordBatch) -> _CellRows:
        column = batch["fingerprint"]
        words = [column] if len(self._names) == 1 else [column.field(n) for n in self._names]
        own = np.stack([word.to_numpy().view(np.uint64) for word in words], axis=-1)
        return _CellRows._make([*(batch[name].to_numpy() for name in _CellRows._fields[:4]), own])

    def _is_first(
        self, tables: NDArray[np.int64], differing: NDArray[np.uint64]
    ) -> NDArray[np.bool_]:
        """Mark the pairs that agree in the prefix of their table, and in no earlier one."""
        fresh = np.ones(len(tables), np.bool_)
        for table, mask in enumerate(self._masks):
            agreeing = ~(differing & np.array(mask, np.uint64)).any(axis=1)
            fresh &= np.where(tables > table, ~agreeing, agreeing | (tables != table))
        return fresh


def _near_rows(rows: _CellRows, k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of rows within k of each other, in the same cell and in both its parts."""
    live, at, stop = _ranges(rows)
    words = rows.words
    firsts: list[NDArray[np.intp]] = []
    seconds: list[NDArray[np.intp]] = []
    # All rows are compared with their next candidate at once; the few that have very many
    # candidates are compared one by one.
    while len(live) > _FEW:
        near = np.bitwise_count(words[live] ^ words[at]).sum(axis=1) <= k
        firsts.append(live[near])
        seconds.append(at[near])
        at = at + 1
        more = at < stop
        live, at, stop = live[more], at[more], stop[more]
    for row, start, end in zip(live.tolist(), at.tolist(), stop.tolist(), strict=True):
        near = np.bitwise_count(words[start:end] ^ words[row]).sum(axis=1) <= k
        found = near.nonzero()[0] + start
        firsts.append(np.full(len(found), row))
        seconds.append(found)
    empty = np.empty(0, np.intp)
    return np.concatenate([empty, *firsts]), np.concatenate([empty, *seconds])


def _ranges(rows: _CellRows) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows that have candidates, and where these start and end."""
    end = rows.ends()
    follower = np.arange(1, len(end) + 1)
    start = np.where(rows.part == _ALONE, follower, rows.ends(parts=True))
    live = ((start < end) & (rows.part != _SECOND)).nonzero()[0]
    return live, start[live], end[live]


def verified(df: DataFrame, least: float) -> DataFrame:
    """Keep the rows whose two sketches are similar enough, and add the column `jaccard`.

    `likeness` and `other_likeness` are sketches, or digests of texts that have no sketch. A digest
    is similar to an equal one only.
    """
    kept = [field for field in df.schema if field.name not in ("likeness", "other_likeness")]
    schema = StructType([*kept, StructField("jaccard", DoubleType())])
    return df.mapInArrow(_VerifyTask([field.name for field in kept], least), schema)


class _VerifyTask:
    """Estimates similarities on a worker, and drops the rows that are not similar enough."""

    def __init__(self, kept: list[str], least: float) -> None:
        self._kept = kept
        self._least = least

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            own, other = batch["likeness"], batch["other_likeness"]
            found = fpdb.sketch_jaccard(_sketches(own), _sketches(other))
            found[pc.equal(own, other).to_numpy(zero_copy_only=False)] = 1.0
            similar = pa.array(found >= self._least)
            columns = {name: batch[name].filter(similar) for name in self._kept}
            columns["jaccard"] = pa.array(found).filter(similar)
            yield pa.RecordBatch.from_pydict(columns)


def _sketches(column: pa.Array) -> NDArray[np.uint8]:
    """Return sketches as rows of bytes; a digest becomes a row of zeros."""
    rows = column.to_pylist()
    sketches = (row if len(row) == _SKETCH_BYTES else bytes(_SKETCH_BYTES) for row in rows)
    return np.frombuffer(b"".join(sketches), np.uint8).reshape(-1, _SKETCH_BYTES)
