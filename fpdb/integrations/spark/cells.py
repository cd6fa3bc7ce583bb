"""The joins: rows with an equal prefix, or an equal band, meet in a task, and numpy compares them.

Each fingerprint becomes one row for each table, with its prefix there. The rows of a table and
prefix come to one task, sorted. A pair counts in the first table in which both meet, which can be
seen from their bits, so the result needs no DISTINCT.

A prefix shared by very many rows would be one task with quadratic work. Such prefixes are found by
a sample and split into cells: the rows are divided into parts, each pair of parts is a cell, and no
cell has more than a bounded number of rows of either part.

Sketches are joined in the same way by the numbers of their bands, with one difference: a number
of very many documents is boilerplate, and its rows meet only rows of the same part.

The tasks are sent to the workers, so they consist of data only.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import fpdb
from fpdb.integrations.spark.fingerprints import words_array

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
# Odd, for hashes by multiplication.
_MIXING = np.uint64(0x9E3779B97F4A7C15)

_RowNumbers = NDArray[np.intp]
_RowMarks = NDArray[np.bool_]
_Unsigned = NDArray[np.uint64]
# The table and the prefix of a crowd, and into how many parts the rows of each side are divided.
_Crowds = dict[tuple[int, int], tuple[int, int]]


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
    asked = left if right is None else right
    counts = _sampled(asked, "likeness", rate, _RowTask(plan, _ALONE)).groupBy("prefix").count()
    crowded = counts.where(F.col("count") * rate > most).collect()
    crowds = sorted((row[0] % (1 << 64), ceil(row[1] * rate / most)) for row in crowded)
    if crowds:
        largest = most * max(parts for _, parts in crowds)
        warnings.warn(
            f"some similar documents may be missing: up to {largest:,} agree in a band of their "
            f"sketches, and each is compared with about {most:,} of them",
            fpdb.IncompleteWarning,
            stacklevel=4,  # the caller of `plan`, `pairs` or `query`
        )
    return plan._replace(tasks=max(cores, ceil(plan.rows / _TASK_SKETCHES)), crowds=tuple(crowds))


AnyPlan = fpdb.JoinPlan | BandPlan


def joined(left: DataFrame, right: DataFrame | None, plan: AnyPlan) -> DataFrame:
    """Return all near pairs in `left`, or of one there and one in `right`.

    Both have distinct rows of `fingerprint`, of `likeness` if the plan is one of bands (a sketch,
    or the digest of a text that has none), and of `lead`, unless that is the fingerprint itself.
    The result has `lead`, `other_lead`, `similarity` and `distance`. In `left` alone each pair is
    found once; a fingerprint that is in both DataFrames is a pair at distance 0.
    """
    sides = [(left, _ALONE)] if right is None else [(left, _FIRST), (right, _SECOND)]
    crowds = {} if isinstance(plan, BandPlan) else _crowds(sides, plan)
    rows, *others = (_placed(side, _RowTask(plan, part, crowds)) for side, part in sides)
    for other in others:
        rows = rows.unionByName(other)
    lead = left.schema["lead" if "lead" in left.columns else "fingerprint"].dataType
    schema = StructType().add("lead", lead).add("other_lead", lead)
    schema.add("similarity", "double").add("distance", "integer")
    placed = rows.repartition(plan.tasks, *_CELL_COLUMNS)
    ordered = placed.sortWithinPartitions(*_CELL_COLUMNS, "part")
    return ordered.mapInArrow(_PairTask(plan), schema)


def _crowds(sides: list[tuple[DataFrame, int]], plan: fpdb.JoinPlan) -> _Crowds:
    """Find the prefixes that very many fingerprints share, in a sample of them."""
    rate = max(1, plan.fingerprints // _SAMPLE)
    crowds: _Crowds = {}
    for side, part in sides:
        drawn = _sampled(side.select("fingerprint"), "fingerprint", rate, _RowTask(plan, part))
        counts = drawn.groupBy("table", "prefix").count()
        for table, prefix, count in counts.where(F.col("count") * rate > _CELL_ROWS).collect():
            parts = ceil(count * rate / _CELL_ROWS)
            left, right = crowds.get((table, prefix % (1 << 64)), (1, 1))
            crowds[table, prefix % (1 << 64)] = (
                left if part == _SECOND else parts,
                right if part == _FIRST else parts,
            )
    return crowds


def _sampled(df: DataFrame, name: str, rate: int, task: "_RowTask") -> DataFrame:
    """Return the rows of a sample of documents: one of each N, by a hash of a column."""
    drawn = F.pmod(F.xxhash64(F.lit("sample"), F.col(name)), F.lit(rate)) == 0
    return _placed(df.where(drawn), task)


def _placed(df: DataFrame, task: "_RowTask") -> DataFrame:
    """Return one row for each document, table and cell."""
    schema = StructType(list(df.schema)).add("table", "integer").add("prefix", "long")
    schema.add("cell", "integer").add("part", "integer")
    return df.mapInArrow(task, schema)


class _RowTask:
    """Makes the rows of documents on a worker."""

    def __init__(self, plan: AnyPlan, part: int, crowds: _Crowds | None = None) -> None:
        self._plan, self._part, self._crowds = plan, part, crowds or {}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = _words(batch["fingerprint"])
            numbers, cells, marks = _places(self._plan, words, _likeness(batch))
            at, tables = marks.nonzero()
            prefixes, places = numbers[marks], np.asarray(cells[marks], np.intp)
            parts = np.full(len(at), self._part, np.intp)
            if self._crowds:
                kept, places, parts = self._divided(words[at], tables, prefixes)
                at, tables, prefixes = at[kept], tables[kept], prefixes[kept]
            columns = {name: batch[name].take(pa.array(at)) for name in batch.schema.names}
            columns["table"] = pa.array(tables, pa.int32())
            columns["prefix"] = pa.array(prefixes.view(np.int64))
            columns["cell"] = pa.array(places, pa.int32())
            columns["part"] = pa.array(parts, pa.int32())
            yield pa.RecordBatch.from_pydict(columns)

    def _divided(
        self, words: _Unsigned, tables: _RowNumbers, prefixes: _Unsigned
    ) -> tuple[_RowNumbers, _RowNumbers, _RowNumbers]:
        """Copy each row of a crowded prefix for each cell of its part.

        Return the places of rows, their cells, and the parts of these.
        """
        left, right = np.ones((2, len(prefixes)), np.intp)
        crowded = np.isin(prefixes, np.array([prefix for _, prefix in self._crowds], np.uint64))
        for at in crowded.nonzero()[0].tolist():
            left[at], right[at] = self._crowds.get((int(tables[at]), int(prefixes[at])), (1, 1))
        own, others = (right, left) if self._part == _SECOND else (left, right)
        kept = np.repeat(np.arange(len(others)), others)
        mine = (_mixed(words) % own.astype(np.uint64)).astype(np.intp)[kept]
        other = np.arange(len(kept)) - np.repeat(others.cumsum() - others, others)
        parts = np.full_like(mine, self._part)
        if self._part == _ALONE:
            parts[mine < other], parts[mine > other] = _FIRST, _SECOND
        swapped = parts == _SECOND
        cells = np.where(swapped, other, mine) * right[kept] + np.where(swapped, mine, other)
        return kept, cells, parts


def _places(
    plan: AnyPlan, words: _Unsigned, likeness: _Unsigned
) -> tuple[_Unsigned, NDArray[np.int32], _RowMarks]:
    """Return the numbers of documents in each table, their parts of crowds, and which count."""
    if not isinstance(plan, BandPlan):
        masks = b"".join(mask.to_bytes(8 * words.shape[1], "big") for mask in plan.masks)
        masked = words[:, None, :] & np.frombuffer(masks, ">u8").reshape(-1, words.shape[1])
        # Of two words a hash, since all is compared.
        numbers = masked[..., 0] if masked.shape[2] == 1 else _mixed(masked)
        return numbers, np.zeros(numbers.shape, np.int32), np.ones(numbers.shape, np.bool_)
    sketched = likeness[:, 2:].any(axis=1, keepdims=True)
    sketches = np.where(sketched, likeness, 0).view(np.uint8)
    numbers, marks = plan.bands.columns(sketches, np.where(sketched, 0, likeness[:, :2]))
    cells = np.zeros(numbers.shape, np.int32)
    if plan.crowds:
        crowds, parts = np.array(plan.crowds, np.uint64).T
        at = crowds.searchsorted(numbers).clip(max=len(crowds) - 1)
        rows, bands = ((crowds[at] == numbers) & marks).nonzero()
        # By another hash in each band, so that those that are parted in one may meet in another.
        salted = likeness[rows] + (bands[:, None].astype(np.uint64) + np.uint64(1)) * _MIXING
        cells[rows, bands] = _mixed(salted) % parts[at[rows, bands]]
    return numbers, cells, marks


def _mixed(words: _Unsigned) -> _Unsigned:
    """Return a hash of the last axis."""
    found = np.zeros(words.shape[:-1], np.uint64)
    for word in np.moveaxis(words, -1, 0):
        found = (found ^ word) * _MIXING
        found ^= found >> np.uint64(29)
    return found


def _words(column: pa.Array) -> _Unsigned:
    """Return fingerprints as rows of words, the high one first."""
    words = column.flatten() if pa.types.is_struct(column.type) else [column]
    return np.stack([word.to_numpy().view(np.uint64) for word in words], axis=-1)


def _likeness(batch: pa.RecordBatch) -> _Unsigned:
    """Return sketches, and digests with zeros after them, as rows of words, if there are any."""
    if "likeness" not in batch.schema.names:
        return np.empty((len(batch), 0), np.uint64)
    rows = b"".join(row.ljust(_LIKENESS_BYTES, b"\0") for row in batch["likeness"].to_pylist())
    return np.frombuffer(rows, np.uint64).reshape(-1, _LIKENESS_BYTES // 8)


class _CellRows(NamedTuple):
    """Rows of a task as columns; `words` has a row of words for each fingerprint.

    Documents have a likeness if sketches are compared, and a lead unless that is the fingerprint.
    """

    table: NDArray[Any]
    prefix: NDArray[Any]
    cell: NDArray[Any]
    part: NDArray[Any]
    words: NDArray[Any]
    likeness: NDArray[Any]
    leads: NDArray[Any]

    def chosen(self, which: slice) -> "_CellRows":
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

    def lead(self, at: _RowNumbers) -> pa.Array:
        return words_array(self.words[at]) if self.leads.ndim > 1 else pa.array(self.leads[at])


class _PairTask:
    """Compares the rows of each cell, and yields the near pairs that met in no earlier table."""

    def __init__(self, plan: AnyPlan) -> None:
        self._plan = plan

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _whole_cells(batches):
            first, second = _near_rows(rows, self._near)
            fresh = self._is_first(rows, first, second)
            first, second = first[fresh], second[fresh]
            if len(first):
                shares = pa.nulls(len(first), pa.float64())
                if isinstance(self._plan, BandPlan):
                    shares = pa.array(self._shares(self._plan, rows, first, second))
                found = {
                    "lead": rows.lead(first),
                    "other_lead": rows.lead(second),
                    "similarity": shares,
                    "distance": pa.array(_apart(rows, first, second)),
                }
                yield pa.RecordBatch.from_pydict(found)

    def _near(self, rows: _CellRows, first: Any, second: Any) -> _RowMarks:
        """Mark the near ones of pairs, given by two arrays of places, or a place and a slice."""
        if isinstance(self._plan, BandPlan):
            least = fpdb.least_estimate(self._plan.similarity)
            return np.asarray(self._shares(self._plan, rows, first, second) >= least)
        return np.asarray(_apart(rows, first, second) <= self._plan.k)

    @staticmethod
    def _shares(plan: BandPlan, rows: _CellRows, first: Any, second: Any) -> NDArray[np.float64]:
        """Return the similarity of pairs; two digests are equal or aren't similar."""
        own, other = rows.likeness[first], rows.likeness[second]
        shares = fpdb.sketch_jaccard(own.view(np.uint8), other.view(np.uint8))
        shares = np.where(rows.table[first] < plan.bands.count, shares, 0.0)
        return np.where((own == other).all(axis=-1), 1.0, shares)

    def _is_first(self, rows: _CellRows, first: _RowNumbers, second: _RowNumbers) -> _RowMarks:
        """Mark the pairs that meet in no earlier table."""
        own, other = (
            _places(self._plan, rows.words[at], rows.likeness[at]) for at in (first, second)
        )
        meeting = (own[0] == other[0]) & (own[1] == other[1]) & own[2]
        return np.asarray(meeting.argmax(axis=1) == rows.table[first])


def _apart(rows: _CellRows, first: Any, second: Any) -> NDArray[np.int32]:
    differing = rows.words[first] ^ rows.words[second]
    return np.asarray(np.bitwise_count(differing).sum(axis=-1, dtype=np.int32))


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
    places = (batch[name].to_numpy() for name in _CellRows._fields[:4])
    leads = np.empty((len(batch), 0))
    if "lead" in batch.schema.names:
        leads = batch["lead"].to_numpy(zero_copy_only=False)
    return _CellRows._make([*places, _words(batch["fingerprint"]), _likeness(batch), leads])


def _near_rows(
    rows: _CellRows, near: Callable[[_CellRows, Any, Any], _RowMarks]
) -> list[_RowNumbers]:
    """Return the places of rows near each other, in the same cell and in both its parts."""
    ends = rows.ends()
    starts = np.where(rows.part == _ALONE, np.arange(1, len(ends) + 1), rows.ends(parts=True))
    live = ((starts < ends) & (rows.part != _SECOND)).nonzero()[0]
    at, stop = starts[live], ends[live]
    firsts: list[_RowNumbers] = [np.empty(0, np.intp)]
    seconds: list[_RowNumbers] = [np.empty(0, np.intp)]
    # All rows are compared with their next candidate at once; the few that have very many
    # candidates are compared one by one.
    while len(live) > _FEW:
        found = near(rows, live, at)
        firsts.append(live[found])
        seconds.append(at[found])
        at = at + 1
        more = at < stop
        live, at, stop = live[more], at[more], stop[more]
    for row, start, end in zip(live.tolist(), at.tolist(), stop.tolist(), strict=True):
        places = near(rows, row, slice(start, end)).nonzero()[0] + start
        firsts.append(np.full(len(places), row))
        seconds.append(places)
    return [np.concatenate(firsts), np.concatenate(seconds)]
