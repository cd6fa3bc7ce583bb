"""Measure how long a large corpus of long records takes to clean, and what it takes of memory.

Each record has 430 made words of six letters, which makes 3 KB. One record in ten is a copy of an
earlier one, one in ten an earlier one with up to twelve other words, so that they are similar from
.84 on; the others are like no other. Input and output are Parquet files, which are removed.
"""

import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import dedupe
import numpy as np
import paired
import pyarrow as pa
import pyarrow.parquet as pq

DOCUMENTS, MEMORY = 14_900_000, 3 << 30
LENGTH = 430  # words
VOCABULARY = 30_000
ROWS = 10_000  # made at once, of which each tenth is a copy, and each tenth an edited one
CHANGED = 12  # words at most
SOURCES, FRESH = 50_000, 500  # records that are copied at a time, and those that are new of these
ROOM_EACH = 3_400  # bytes of a record on the disk, in both files


def run(options):
    documents = options.documents or DOCUMENTS
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-", dir=options.folder) as name:
        folder = Path(name)
        if (free := shutil.disk_usage(folder).free) < (needed := ROOM_EACH * documents):
            raise SystemExit(
                f"{folder} has room for {free:,} bytes, expected {needed:,}; --folder names another"
            )
        paired.say(f"making {documents:,} records")
        source = folder / "corpus.parquet"
        make(source, documents)
        paired.say("cleaning")
        row = cleaned(source, documents, options.memory or MEMORY)
    paired.say(json.dumps(row))
    return {"note": "", "tables": [[row]]}


def make(path, documents):
    chance = np.random.default_rng(18)
    letters = np.frombuffer(b"bcdfghklmnprstvw", np.uint8), np.frombuffer(b"aeiou", np.uint8)
    words = np.full((VOCABULARY, 7), ord(" "), np.uint8)
    for place in range(6):
        words[:, place] = chance.choice(letters[place % 2], VOCABULARY)
    # As unevenly frequent as in a language.
    weights = 1 / (np.arange(VOCABULARY) + 10)
    pool = chance.choice(VOCABULARY, 1 << 20, p=weights / weights.sum()).astype(np.uint16)
    sources = np.empty((0, LENGTH), np.uint16)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with pq.ParquetWriter(path, schema) as writer:
        for first in range(0, documents, ROWS):
            rows = pool[chance.integers(0, len(pool), (ROWS, LENGTH))]
            if len(sources):
                rows[8::10], rows[9::10] = chance.choice(sources, (2, ROWS // 10))
                edited = rows[9::10]
                for _ in range(CHANGED):
                    places = chance.integers(0, LENGTH, len(edited))
                    edited[np.arange(len(edited)), places] = chance.choice(pool, len(edited))
            alone = rows[np.arange(ROWS) % 10 < 8]
            if len(sources) < SOURCES:
                sources = np.concatenate([sources, alone[:FRESH]])
            else:
                sources[chance.integers(0, SOURCES, FRESH)] = alone[:FRESH]
            count = min(ROWS, documents - first)
            ends = np.arange(count + 1, dtype=np.int32) * words.shape[1] * LENGTH
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(words[rows[:count]].tobytes())]
            texts = pa.Array.from_buffers(pa.string(), count, buffers)
            ids = pa.array(np.arange(first, first + count))
            writer.write_table(pa.table([ids, texts], schema=schema))


def cleaned(source, documents, memory):
    """Clean the records by the command; return what it took, and what is removed."""
    output = source.parent / "out.parquet"
    command = [paired.python(None), "-m", "fpdb", "dedupe", source, "-o", output]
    command += ["--key-field", "id", "--memory", str(memory), "--quiet"]
    clock, before = time.perf_counter(), os.times()
    process = subprocess.Popen(list(map(str, command)), env=paired.environment())
    watch = dedupe.Watch(process.pid, source.parent)
    watch.start()
    code = process.wait()
    seconds, after = time.perf_counter() - clock, os.times()
    watch.end()
    if code:
        raise SystemExit("the records weren't cleaned")
    worked = sum(after[2:4]) - sum(before[2:4])
    read, written = source.stat().st_size, output.stat().st_size
    return {
        "records": f"{documents:,}",
        "Parquet, GB": f"{read / 1e9:,.1f}",
        "seconds": f"{seconds:,.0f}",
        "of processors": f"{worked:,.0f}",
        "records/s": f"{documents / seconds:,.0f}",
        "memory, MB": f"{watch.memory / 1e6:,.0f} + {watch.mapped / 1e6:,.0f}",
        "disk besides, MB": f"{(watch.disk - read - written) / 1e6:,.0f}",
        "removed": f"{1 - pq.read_metadata(output).num_rows / documents:.2%}",
    }
