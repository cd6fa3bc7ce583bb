"""Find what is near: fingerprints meet where they agree in a prefix, and are checked there.

Each fingerprint goes to each table once, as a row with its prefix. Rows of one table and prefix
come together in one task, sorted, and numpy compares them as they pass. A pair counts in the first
table in which it agrees, which its own bits tell, so nothing has to be made distinct afterwards.

A prefix that very many share would be one task with quadratic work. Such prefixes are found in a
sample, and cut into cells: the rows in parts, each part with each, so that no cell has more than
a bounded number of rows of either part.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

import fpdb
from fpdb.integrations.spark.columns import Kind, masked, words_array

# Rows of a prefix that are compared with each other in one task.
CELL_ROWS = 1 << 15
# Fingerprints of the sample in which crowded prefixes are found, and how many of a crowded one must
# be in it at least, so that hardly any crowd stays unseen.
_SAMPLE = 1 << 18
_SEEN = 64
# What a row is in its cell: of the first part, of the second, or of the only one.
_FIRST, _SECOND, _ALONE = 0, 1, 2
_PLACE = ("table", "prefix", "cell")
# Rows that are compared in one step, and how few of them aren't worth steps together.
_BLOCK = 1 << 16
_FEW = 64
_WORD = (1 << 64) - 1

_Words = NDArray[np.uint64]


class Crowd(NamedTuple):
    """A prefix of a table that is cut: into so many parts on each side."""

    table: int
    prefix: int
    left: int
    right: int


def near(
    left: DataFrame,
    right: DataFrame | None,
    kind: Kind,
    plan: fpdb.JoinPlan,
    *,
    cell_rows: int = CELL_ROWS,
) -> DataFrame:
    """Find all pairs within k: of the fingerprints in `left`, or of those there and in `right`.

    Both have one column, `fingerprint`, of distinct ones. The result has `first`, `second` and
    `distance`. Of one DataFrame, each pair comes once; two may hold the same fingerprint, which is
    a pair at distance 0.
    """
    crowds = _crowds(left, right, kind, plan, cell_rows)
    if right is None:
        rows = _cells(_rows(left, kind, plan), crowds, _ALONE)
    else:
        first = _cells(_rows(left, kind, plan), crowds, _FIRST)
        rows = first.unionByName(_cells(_rows(right, kind, plan), crowds, _SECOND))
    placed = rows.repartition(plan.tasks, *_PLACE).sortWithinPartitions(*_PLACE, "part")
    schema = StructType(
        [
            StructField("first", kind.type),
            StructField("second", kind.type),
            StructField("distance", IntegerType()),
        ]
    )
    return placed.mapInArrow(_Check(kind, plan), schema)


def _rows(df: DataFrame, kind: Kind, plan: fpdb.JoinPlan) -> DataFrame:
    """Make one row of each fingerprint and table."""
    column = F.col("fingerprint")
    prefixes = F.array(*(_prefix(masked(column, kind, mask)) for mask in plan.masks))
    return df.select(column, F.posexplode(prefixes).alias("table", "prefix"))


def _prefix(words: list[Column]) -> Column:
    """Give the bits of a prefix as one number; of two words a hash, which is checked later."""
    return words[0] if len(words) == 1 else F.xxhash64(*words)


def _cells(rows: DataFrame, crowds: list[Crowd], part: int) -> DataFrame:
    """Give each row its cell, and copies for the other cells that its part goes to."""
    if not crowds:
        return rows.select("*", F.lit(0).alias("cell"), F.lit(part).alias("part"))
    schema = "table int, prefix bigint, left int, right int"
    cut = F.broadcast(rows.sparkSession.createDataFrame(list(map(tuple, crowds)), schema))
    joined = rows.join(cut, ["table", "prefix"], "left")
    left, right = (F.coalesce(F.col(side), F.lit(1)) for side in ("left", "right"))
    own, others = (right, left) if part == _SECOND else (left, right)
    # Not the hash of the sample, whose rows have it in common.
    mine = F.pmod(F.xxhash64(F.lit("part"), F.col("fingerprint")), own)

    def cell(other: Column) -> Column:
        low, high, role = mine, other, F.lit(part)
        if part == _SECOND:
            low, high = other, mine
        elif part == _ALONE:
            low, high = F.least(mine, other), F.greatest(mine, other)
            role = F.when(mine == other, role).when(mine < other, _FIRST).otherwise(_SECOND)
        return F.struct((low * right + high).alias("cell"), role.alias("part"))

    cells = F.transform(F.sequence(F.lit(0), others - 1), cell)
    return joined.select("fingerprint", "table", "prefix", F.inline(cells))


def _crowds(
    left: DataFrame, right: DataFrame | None, kind: Kind, plan: fpdb.JoinPlan, cell_rows: int
) -> list[Crowd]:
    """Find the prefixes that very many fingerprints share, by a sample of them."""
    rate = max(1, min(cell_rows // _SEEN, (plan.documents + (plan.queries or 0)) // _SAMPLE))
    drawn = F.pmod(F.xxhash64(F.lit("sample"), F.col("fingerprint")), F.lit(rate)) == 0
    counts: list[dict[tuple[int, int], int]] = []
    for side in (left, right):
        if side is not None:
            rows = _rows(side.where(drawn), kind, plan).groupBy("table", "prefix").count()
            crowded = rows.where(F.col("count") * rate > cell_rows).collect()
            counts.append({(row[0], row[1]): row[2] * rate for row in crowded})
    places = sorted(set[tuple[int, int]]().union(*counts))
    parts = [[-(-count.get(place, 1) // cell_rows) for count in counts] for place in places]
    return [Crowd(*place, own[0], own[-1]) for place, own in zip(places, parts, strict=True)]


class _Rows(NamedTuple):
    """Rows as they come to a task: their tables, prefixes, cells and parts, and their words."""

    places: NDArray[np.int64]
    words: _Words

    @property
    def table(self) -> NDArray[np.int64]:
        """The table of each row."""
        table: NDArray[np.int64] = self.places[0]
        return table

    @property
    def part(self) -> NDArray[np.int64]:
        """The part of its cell to which each row belongs."""
        part: NDArray[np.int64] = self.places[-1]
        return part

    def chosen(self, which: slice) -> "_Rows":
        """Take some of the rows."""
        return _Rows(self.places[:, which], self.words[which])

    def starts(self, *, parts: bool = False) -> NDArray[np.intp]:
        """Give the places where a cell begins, or a part of one."""
        places = self.places if parts else self.places[:-1]
        changed = np.ones(places.shape[1], np.bool_)
        changed[1:] = (places[:, 1:] != places[:, :-1]).any(axis=0)
        return changed.nonzero()[0]

    def ends(self, *, parts: bool = False) -> NDArray[np.intp]:
        """Give for each row the end of its cell, or of its part of one."""
        starts = self.starts(parts=parts)
        stops = np.append(starts[1:], len(self.words))
        return np.repeat(stops, stops - starts)


class _Check:
    """What is sent to the workers: compares the rows of each cell."""

    def __init__(self, kind: Kind, plan: fpdb.JoinPlan) -> None:
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

    def _whole_cells(self, batches: Iterable[pa.RecordBatch]) -> Iterator[_Rows]:
        """Gather rows such that no cell is parted."""
        held: list[_Rows] = []
        size = 0
        for batch in batches:
            held.append(self._taken(batch))
            size += len(batch)
            if size < _BLOCK:
                continue
            rows = _joined(held)
            last = int(rows.starts()[-1])
            if last:
                yield rows.chosen(slice(0, last))
            held = [rows.chosen(slice(last, None))]
            size = len(held[0].words)
        if size:
            yield _joined(held)

    def _taken(self, batch: pa.RecordBatch) -> _Rows:
        places = np.stack([batch[name].to_numpy() for name in (*_PLACE, "part")])
        column = batch["fingerprint"]
        words = [column] if len(self._names) == 1 else [column.field(n) for n in self._names]
        own = np.stack([word.to_numpy().view(np.uint64) for word in words], axis=-1)
        return _Rows(places.astype(np.int64, copy=False), own)

    def _is_first(self, tables: NDArray[np.int64], differing: _Words) -> NDArray[np.bool_]:
        """Tell which pairs agree in the prefix of their table, and in none before it."""
        fresh = np.ones(len(tables), np.bool_)
        for table, mask in enumerate(self._masks):
            agreeing = ~(differing & np.array(mask, np.uint64)).any(axis=1)
            fresh &= np.where(tables > table, ~agreeing, agreeing | (tables != table))
        return fresh


def _joined(held: list[_Rows]) -> _Rows:
    if len(held) == 1:
        return held[0]
    places = np.concatenate([rows.places for rows in held], axis=1)
    return _Rows(places, np.concatenate([rows.words for rows in held]))


def _near_rows(rows: _Rows, k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the rows within k of each other in one cell: of two parts, or of the only one."""
    live, at, stop = _ranges(rows)
    words = rows.words
    firsts: list[NDArray[np.intp]] = []
    seconds: list[NDArray[np.intp]] = []
    # All rows look at their next candidate together; the few with very many go one by one.
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


def _ranges(rows: _Rows) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Give the rows that have candidates, the first of these, and the end of them."""
    end = rows.ends()
    follower = np.arange(1, len(end) + 1)
    start = np.where(rows.part == _ALONE, follower, rows.ends(parts=True))
    live = ((start < end) & (rows.part != _SECOND)).nonzero()[0]
    return live, start[live], end[live]
