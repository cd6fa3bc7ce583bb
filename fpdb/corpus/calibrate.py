"""Measure what queries and inserts cost on this machine, on a small database of random bits."""

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fpdb.storage import Environment
from fpdb.tables import Costs, Index, Plan, Table
from fpdb.tables.bits import Fingerprints
from fpdb.tables.loading import in_blocks, load
from fpdb.tables.plan import choose_plan

_DOCUMENTS = 400_000
_BATCH = 1000
_BATCHES = 12
_QUERIES = 200
_COLD_READS = 200
_PAGE = 4096
# No disk is that fast: whatever was read came from memory.
_WARM_SECONDS = 8e-6
_BUDGET = 1 << 40


def calibrate() -> Costs:
    """Measure the costs of a plan in a few seconds; what can't be measured keeps its default."""
    random = np.random.default_rng(1)
    plan = choose_plan(64, 3)
    index = Index(plan)
    with tempfile.TemporaryDirectory(prefix="fpdb-calibrate-") as folder:
        path = Path(folder) / "database"
        with Environment.create(path, index.names) as environment:
            numbers = _random(random, _DOCUMENTS)
            ids = np.arange(_DOCUMENTS, dtype=np.uint64)
            with environment.write() as txn:
                load(txn, index, in_blocks(numbers, ids), _DOCUMENTS)
            base, probe, candidate = _queries(environment, plan, _random(random, _QUERIES))
            insert = _inserts(environment, index, random)
        cold = _cold_read(path / "data.mdb", random)
    default = Costs()
    return replace(
        default,
        seconds_per_query=base,
        seconds_per_probe=probe,
        seconds_per_candidate=candidate,
        seconds_per_insert=insert,
        seconds_per_cold_page=default.seconds_per_cold_page if cold is None else cold,
        bytes_of_memory=float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
    )


def _random(random: np.random.Generator, count: int) -> Fingerprints:
    return random.integers(0, 1 << 64, count, np.uint64, endpoint=False)


def _queries(
    environment: Environment, plan: Plan, queries: Fingerprints
) -> tuple[float, float, float]:
    """Find what a query, a probe and a candidate take, from queries that differ in all three."""
    wanted = queries.tolist()
    rows, times = [], []
    # A shorter prefix reads more of the same tables, a larger k looks up more prefixes.
    for prefix, k in ((16, 0), (16, 3), (16, 5), (16, 7), (8, 3), (6, 3)):
        tables = tuple(Table(table.permutation, prefix) for table in plan.tables)
        index = Index(Plan(plan.bits, plan.k, tables))
        masks = sum(len(masks) for _, masks in index.plan.probes(k))
        few = wanted if prefix == plan.prefix else wanted[: _QUERIES // 10]

        def ask(index: Index = index, k: int = k, few: list[int] = few) -> None:
            for number in few:
                with environment.read() as txn:
                    index.near(txn, number, k, _BUDGET)

        rows.append((1.0, float(masks), masks * _DOCUMENTS / 2**prefix))
        times.append(_best(ask) / len(few))
    costs = _fit(np.array(rows), np.array(times))
    return costs[0], costs[1], costs[2]


def _fit(rows: NDArray[np.float64], times: NDArray[np.float64]) -> list[float]:
    """Fit non-negative costs; relative errors count, so that short times count as much as long."""
    chosen = list(range(rows.shape[1]))
    weighted = rows / times[:, None]
    while True:
        found = np.linalg.lstsq(weighted[:, chosen], np.ones(len(times)), rcond=None)[0]
        if (found >= 0).all():
            break
        del chosen[int(found.argmin())]
    costs = [0.0] * rows.shape[1]
    for place, cost in zip(chosen, found.tolist(), strict=True):
        costs[place] = cost
    return costs


def _best(work: Callable[[], None]) -> float:
    """Time work a few times; the best is the one least disturbed."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _inserts(environment: Environment, index: Index, random: np.random.Generator) -> float:
    """Time inserts in durable transactions, for each table and document."""
    none = _random(random, 0)
    times = []
    for batch in range(_BATCHES):
        ids = np.arange(_BATCH, dtype=np.uint64) + np.uint64(_DOCUMENTS + batch * _BATCH)
        numbers = _random(random, _BATCH)
        start = time.perf_counter()
        with environment.write() as txn:
            index.update(txn, (numbers, ids), (none, none))
        times.append(time.perf_counter() - start)
    return sorted(times)[_BATCHES // 2] / (_BATCH * len(index.names))


def _cold_read(path: Path, random: np.random.Generator) -> float | None:
    """Time how long a page takes that isn't in memory, where the system lets go of pages."""
    if not hasattr(os, "posix_fadvise"):
        return None
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        places = random.integers(0, os.fstat(descriptor).st_size // _PAGE, _COLD_READS)
        start = time.perf_counter()
        for place in places.tolist():
            os.pread(descriptor, _PAGE, place * _PAGE)
        seconds = (time.perf_counter() - start) / _COLD_READS
    finally:
        os.close(descriptor)
    return seconds if seconds > _WARM_SECONDS else None
