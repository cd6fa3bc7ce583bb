"""Measure the store beside its peers: the same fingerprints for all, answers checked, in turn.

Each side runs all of its rows in a process of its own, and every side before the next round, so
that what disturbs the machine disturbs all of them. A side with other answers isn't timed.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paired
import tables
import workloads
from paired import QUIET, SIDES, MissingError, say

SIZES, KINDS = [1_000_000, 10_000_000], ["uniform", "clustered"]
RESERVE = 1 << 30
LARGE = 10_000_000
PATIENCE = {False: 600, True: 1_800}  # seconds for one row, up to LARGE and above
SLOW = 120  # a side whose rows took N seconds runs once
CHECKS = {False: 1_000, True: 200}


@dataclass(frozen=True)
class Contender:
    """A side of the bench; `cap` is the largest number of documents that it gets."""

    name: str
    script: str
    package: str | None = None
    cap: int = 1 << 62
    phases: tuple[str, ...] = ("build", "reopen", "cold", "adds")
    options: Any = None


CONTENDERS = [
    Contender("fpdb", "with_fpdb.py"),
    Contender("sqlite", "with_sqlite.py", cap=LARGE),
    Contender("faiss", "with_faiss.py", "faiss-cpu==1.15.1", options=(4, 16, 0)),
    Contender("faiss-flip", "with_faiss.py", "faiss-cpu==1.15.1", options=(3, 21, 1)),
    # It takes all fingerprints at once and none later.
    Contender(
        "pynear", "with_pynear.py", "pynear==2.6.0", LARGE, phases=("build", "reopen", "cold")
    ),
    Contender("simhash", "with_simhash.py", "simhash==2.1.2", LARGE // 10),
    Contender("pybind", "with_simhash_pybind.py", "simhash-pybind==0.0.3", LARGE, ("build",)),
]


class Records(list):
    def add(self, where, row, side, cores="one", *, values=(), stopped=None):
        name = {**where, "row": row, "side": side, "cores": cores}
        record = next((each for each in self if name.items() <= each.items()), None)
        if record is None:
            record = {**name, "values": []}
            self.append(record)
        record["values"] += [
            float(f"{value:.5g}") if isinstance(value, float) else value for value in values
        ]
        if stopped:
            say(f"{side}, {row}: {stopped}")
            record["stopped"] = stopped
        return record


class StoppedError(Exception):
    """A side ended or gave other answers; the message says why."""


def run_phase(side, phase, workload, records):
    """Run one phase of a side and record its rows; return the version of its package."""
    folder = workload.folder / side.name
    options = workload.most if side.name == "pynear" else side.options
    limit = max(free_memory() - RESERVE, RESERVE)
    words = [
        paired.python(side.package),
        SIDES / side.script,
        phase,
        workload.folder,
        folder,
        limit,
    ]
    version, row, cores = "", "start", "one"
    with (workload.answers_of(side.name) / "stderr.txt").open("w+") as errors:
        process = subprocess.Popen(
            [*map(str, words), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=paired.environment(**QUIET),
            start_new_session=True,
        )
        try:
            while line := answer(process, PATIENCE[workload.documents > LARGE]):
                fields = json.loads(line)
                version = fields.get("version", version)
                if "row" not in fields:
                    continue
                row, cores = fields.pop("row"), fields.pop("cores")
                if fields:
                    records.add(workload.where, row, side.name, cores, **fields)
        except StoppedError as why:
            records.add(workload.where, row, side.name, cores, stopped=str(why))
            raise
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            code = process.wait()
            process.stdout.close()
        if code:
            errors.seek(0)
            last = (errors.read().strip().splitlines() or ["no message"])[-1]
            records.add(workload.where, row, side.name, cores, stopped=f"ended with {code}: {last}")
            raise StoppedError(last)
    return version


def answer(process, patience):
    """Return the next line of a side, or nothing at its end."""
    if not select.select([process.stdout], [], [], patience)[0]:
        raise StoppedError(f"stopped after {patience} s")
    return process.stdout.readline()


def free_memory():
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(dict(line.split(":", 1) for line in lines)["MemAvailable"].split()[0]) * 1024


def run_side(side, workload, pairs, records):
    """Run all phases of a side in a new folder; return the version of its package."""
    folder = workload.folder / side.name
    answers = workload.answers_of(side.name)
    for made in (folder, answers):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
    for phase in side.phases:
        if phase == "cold":
            forget(folder)
        version = run_phase(side, phase, workload, records)
        if phase == "build":
            if why := wrong(answers, workload, pairs, distinct=side.name == "pybind"):
                records.add(workload.where, "all", side.name, stopped=why)
                raise StoppedError(why)
            sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
            if sum(sizes):
                records.add(workload.where, "disk", side.name, values=[sum(sizes)])
    return version


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


def forget(folder):
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run(options):
    sizes = options.sizes or SIZES
    records, versions = measure(sizes, KINDS, options.rounds, options.peers)
    note = (
        f"{', '.join(sorted(versions))}. Medians of {paired.rounds_of(options.rounds)}; "
        f"a peer that takes more than {SLOW} s runs once."
    )
    return {"note": note, "versions": sorted(versions), "records": tables.Table(records).records}


def measure(sizes, kinds, rounds, peers):
    records, versions, sides = Records(), set(), []
    for side in CONTENDERS:
        if side.name in ("fpdb", *peers):
            try:
                paired.python(side.package)
                sides.append(side)
            except MissingError as why:
                where = {"data": "any", "documents": 0}
                records.add(where, "install", side.name, stopped=f"not installed: {why}")
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        for documents in sizes:
            for data in kinds:
                say(f"{documents:,} documents, {data}")
                work = Path(folder) / "work"
                workload = workloads.make(work, data, documents, checks=CHECKS[documents > LARGE])
                pairs = workloads.truth_of_join(work)
                taking = [side for side in sides if documents <= side.cap]
                for _ in range(rounds):
                    for side in list(taking):
                        begun = time.perf_counter()
                        try:
                            versions.add(run_side(side, workload, pairs, records))
                        except StoppedError:
                            taking.remove(side)
                            continue
                        if time.perf_counter() - begun > SLOW and side.name != "fpdb":
                            taking.remove(side)
                shutil.rmtree(work)
    return records, versions
