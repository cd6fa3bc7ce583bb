"""Measure the store beside its peers: the same fingerprints for all, answers checked, in turn.

Each phase of a side runs in a process of its own. A side with other answers isn't timed.
"""

import itertools
import json
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import paired
import workloads
from paired import QUIET, MissingError, say, written

SIZES, KINDS = [1_000_000, 10_000_000], ["uniform", "clustered"]
RESERVE = 1 << 30
LARGE = 10_000_000
PATIENCE = 3_600  # seconds for one phase
SLOW = 120  # a side whose rows took N seconds runs once
CHECKS = {False: 1_000, True: 200}


class Contender(NamedTuple):
    """A side of the bench; `cap` is the largest number of documents that it gets."""

    name: str
    script: str
    package: str | None = None
    cap: int = 1 << 62
    phases: tuple[str, ...] = ("build", "reopen", "adds")
    options: Any = None


CONTENDERS = [
    Contender("fpdb", "with_fpdb.py"),
    Contender("sqlite", "with_sqlite.py", cap=LARGE),
    Contender("faiss", "with_faiss.py", "faiss-cpu==1.15.1", options=(4, 16, 0)),
    Contender("faiss-flip", "with_faiss.py", "faiss-cpu==1.15.1", options=(3, 21, 1)),
    # It takes all fingerprints at once and none later.
    Contender("pynear", "with_pynear.py", "pynear==2.6.0", LARGE, phases=("build", "reopen")),
    Contender("simhash", "with_simhash.py", "simhash==2.1.2", LARGE // 10),
    Contender("pybind", "with_simhash_pybind.py", "simhash-pybind==0.0.3", LARGE, ("build",)),
]


class Row(NamedTuple):
    """A row: its name, and how a cost becomes a figure; the smaller cost is always better.

    A figure is `scale` times the cost or, of a rate, its inverse, for `each` of what the cost
    is for; 0: the number of documents stored. Rows of all cores aren't on the page.
    """

    key: str
    name: str
    scale: float
    each: int = 1
    rate: bool = False
    cores: str = "one"

    def figure(self, cost, documents):
        each = self.each or documents
        return self.scale * (each / cost if self.rate else cost / each)


ROWS = [
    Row("load", "bulk load, M/s", 1e-6, 0, rate=True),
    Row("load", "bulk load, all cores, M/s", 1e-6, 0, rate=True, cores="all"),
    Row("adds", "adds by the 1,000, a second", 1, 1_000, rate=True),
    Row("written", "written to files for each, kB", 1e-3, 1_000),
    Row("single p50", "query, p50, µs", 1e6),
    Row("single p99", "query, p99, µs", 1e6),
    Row("batch 1k", "each of a batch of 1,000, µs", 1e6, 1_000),
    Row("batch 1k", "the same, all cores, µs", 1e6, 1_000, cores="all"),
    Row("batch 100k", "each of a batch of 100,000, µs", 1e6, 100_000),
    Row("join", "self-join, s", 1),
    Row("disk", "bytes a document on disk", 1, 0),
    Row("memory", "resident memory, MB", 1e-6),
    Row("reopen", "reopen, ms", 1e3),
]
OTHERS = "best of the others, in memory"
# The columns of peers: of several sides, the best figure is shown, of others with the name.
PEERS = {
    "SQLite": ("sqlite",),
    "FAISS, in memory": ("faiss", "faiss-flip"),
    OTHERS: ("pynear", "simhash", "pybind"),
}


def run(options):
    records, versions = measure(options.sizes or SIZES, KINDS, options.rounds, options.peers)
    note = (
        f"{', '.join(sorted(versions))}. Medians of {paired.rounds_of(options.rounds)}; "
        f"a side that takes more than {SLOW} s runs once."
    )
    return {"note": note, "records": records}


def measure(sizes, kinds, rounds, peers):
    records, versions = {}, set()
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        for documents, data in itertools.product(sizes, kinds):
            say(f"{documents:,} documents, {data}")
            work = Path(folder) / "work"
            workload = workloads.make(work, data, documents, checks=CHECKS[documents > LARGE])
            pairs = workloads.truth_of_join(work)
            sides = {
                side.name: partial(run_side, side, workload, pairs)
                for side in CONTENDERS
                if side.name in ("fpdb", *peers) and documents <= side.cap
            }
            for side, results in paired.in_turn(sides, rounds, SLOW).items():
                for version, rows in results:
                    versions.add(version)
                    for row in rows:
                        where = {"data": data, "documents": documents, "row": row["row"]}
                        where |= {"side": side, "cores": row["cores"]}
                        record = records.setdefault(tuple(where.values()), where | {"values": []})
                        record["values"] += [float(f"{value:.5g}") for value in row["values"]]
            shutil.rmtree(work)
    return list(records.values()), versions


def run_side(side, workload, pairs):
    """Run all phases of a side in a new folder; return the version of its package, and its rows."""
    folder, answers = workload.folder / side.name, workload.answers_of(side.name)
    for made in (folder, answers):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
    options, rows = workload.most if side.name == "pynear" else side.options, []
    for phase in side.phases:
        words = phase, workload.folder, folder, free_memory() - RESERVE, json.dumps(options)
        found = paired.answer_of(
            side.script, *words, package=side.package, timeout=PATIENCE, **QUIET
        )
        for row in found["rows"]:
            if stopped := row.get("stopped"):
                say(f"{side.name}, {row['row']}: {stopped}")
            else:
                rows.append(row)
        if phase == "build":
            if why := wrong(answers, workload, pairs, distinct=side.name == "pybind"):
                raise MissingError(why)
            if size := sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()):
                rows.append({"row": "disk", "cores": "one", "values": [size]})
    return found["version"], rows


def free_memory():
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0]) * 1024


def wrong(folder, workload, pairs, *, distinct):
    """Return how the answers or the pairs of a side differ from the truth, if they do."""
    for path in folder.glob("by-*.npy"):
        found, expected = workloads.in_order(np.load(path)), workload.answers
        if path.stem != "by-many":
            expected = expected[expected[:, 0] < 200]
        if not np.array_equal(found, expected):
            return f"{path.stem}: {len(found)} matches, {len(expected)} expected"
    if (count := folder / "pairs.txt").exists():
        found, expected = int(count.read_text()), pairs["distinct" if distinct else "documents"]
        if found != expected:
            return f"found {found} pairs, not {expected}"
    return ""


def tables(records, *, page=False):
    """Return a table for each kind of fingerprints and each number; the page has the random ones.

    The best figures of peers that are better than fpdb's are bold.
    """
    costs = {
        (each["data"], each["documents"], each["row"], each["cores"], each["side"]): (
            statistics.median(each["values"])
        )
        for each in records
    }
    found = []
    for data, documents in dict.fromkeys(key[:2] for key in costs):
        rows = []
        for row in ROWS:
            where = data, documents, row.key, row.cores
            own = costs.get((*where, "fpdb"))
            if own is None or (page and row.cores == "all"):
                continue
            cells = {f"{short(documents)} documents": row.name}
            cells["fpdb"] = written(row.figure(own, documents))
            for heading, sides in PEERS.items():
                some = [(costs[*where, side], side) for side in sides if (*where, side) in costs]
                cost, side = min(some, default=(None, ""))
                shown = written(row.figure(cost, documents)) if cost else "-"
                shown = f"**{shown}**" if cost and cost < own else shown
                cells[heading] = f"{shown} {side}".strip() if heading == OTHERS else shown
            rows.append(cells)
        if data == KINDS[0] or not page:
            found.append(rows)
    return found


def short(documents):
    return f"{documents // 10**6} M" if documents % 10**6 == 0 else f"{documents:,}"
