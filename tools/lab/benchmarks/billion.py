"""Measure a load of very many ready fingerprints by `fpdb load`, and queries of the database.

The fingerprints are made in a .npy file, numbered from 0. Nothing is left on the disk, of which it
takes up to DISK_EACH bytes for each of them. The queries are of fingerprints within three flips of
stored ones, each of which must be found. Each kind is asked twice, in a process of its own: the
first answers are cold for the process, whose map of the file is empty, but not for the system,
which may have pages of the file in its cache.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from paired import python, say, waits

from fpdb.fingerprint.sketches import mix

DOCUMENTS, MEMORY = 10**9, 1 << 30
PART = 1 << 22
QUERIES, FLIPS, BATCH = 3_000, 3, 100_000
DISK_EACH = 72


def run(options):
    documents, memory = options.documents or DOCUMENTS, options.memory or MEMORY
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-", dir=options.folder) as name:
        folder = Path(name)
        if (free := shutil.disk_usage(folder).free) < (needed := DISK_EACH * documents):
            raise SystemExit(
                f"{folder} has room for {free:,} bytes, expected {needed:,}; --folder names another"
            )
        say(f"making {documents:,} fingerprints")
        make(folder / "made.npy", documents)
        say("loading")
        row = {"documents": f"{documents:,}"} | load(folder, documents, memory)
        (folder / "made.npy").unlink()
        for kind in ("single", "batch"):
            say(f"querying: {kind}")
            row |= asked(folder, documents, kind)
    say(json.dumps(row))
    return {"note": "", "tables": [[row]]}


def make(path, documents):
    with path.open("wb") as file:
        head = {"descr": "<u8", "fortran_order": False, "shape": (documents,)}
        np.lib.format.write_array_header_1_0(file, head)
        for start in range(0, documents, PART):
            fingerprints(np.arange(start, min(start + PART, documents))).tofile(file)


def fingerprints(numbers):
    return mix(numbers.astype(np.uint64))


def load(folder, documents, memory):
    """Load the file; return what that took, all processes together."""
    fpdb = [python(None), "-m", "fpdb"]
    database, created = folder / "db", ["--recipe", "none", "--key-type", "integer"]
    subprocess.run([*fpdb, "create", database, *created, "--capacity", str(documents)], check=True)
    begun = time.perf_counter()
    command = [*fpdb, "load", database, folder / "made.npy", "--memory", str(memory)]
    # Its progress line goes to the terminal.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"fpdb load ended with {process.returncode}")
    size = (database / "data.mdb").stat().st_size
    return {
        "bytes each": f"{size / documents:.2f}",
        "processor, µs each": f"{(usage.ru_utime + usage.ru_stime) / documents * 1e6:.2f}",
        "load, s": f"{time.perf_counter() - begun:,.0f}",
        "memory, MB": f"{usage.ru_maxrss / 1e3:,.0f}",
    }


def asked(folder, documents, kind):
    command = [python(None), __file__, folder / "db", str(documents), kind]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def ask(path, documents, kind):
    """Ask in a new process, and again; every query must find the document that it was made of."""
    import fpdb

    generator = np.random.default_rng(documents)
    count = QUERIES if kind == "single" else BATCH
    planted = generator.integers(0, documents, count)
    queries = fingerprints(planted)
    for _ in range(FLIPS):  # the same bit may come twice
        queries ^= np.uint64(1) << generator.integers(0, 64, count, np.uint64)
    row = {}
    with fpdb.open(path, readonly=True) as database:
        for turn in ("cold", "warm"):
            begun = time.perf_counter()
            if kind == "single":
                missed, taken = 0, []
                for query, number in zip(queries.tolist(), planted.tolist(), strict=True):
                    clock = time.perf_counter()
                    matches = database.query_fingerprint(query)
                    taken.append(time.perf_counter() - clock)
                    missed += number not in {match.key for match in matches}
                for name in ("p50", "p99"):
                    row[f"{turn}, {name}, µs"] = f"{waits(taken)[name] * 1e6:,.0f}"
            else:
                hits = database.query_fingerprints(queries)
                row[f"{turn}, of 100,000, µs"] = (
                    f"{(time.perf_counter() - begun) / count * 1e6:,.1f}"
                )
                right = hits.ids == planted[hits.queries].astype(np.uint64)
                missed = count - len(np.unique(hits.queries[right]))
            if missed:
                raise SystemExit(f"{missed:,} of {count:,} planted documents weren't found")
    return row | {f"{kind} found": f"{count:,}"}


if __name__ == "__main__":
    print(json.dumps(ask(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
