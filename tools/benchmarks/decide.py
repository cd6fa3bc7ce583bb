"""Measure how long it takes to decide which records stay, by sketches that are made.

That is `fpdb dedupe` without reading texts and writing files, whose time grows with the texts.
Four of five records are like no other; half of the others have the sketch of an earlier record,
and half have some bytes of it changed.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import paired

SIZES = 1_000_000, 10_000_000
MEMORY = 3 << 30
BLOCK = 1 << 15
CHANGED = 12  # of 128 bytes, which leaves texts nine tenths similar


def run(options):
    return {"note": "", "tables": [[measured(size) for size in options.sizes or SIZES]]}


def measured(records):
    import dedupe

    with tempfile.TemporaryDirectory() as folder:
        command = [paired.python(None), __file__, str(records), folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        watch = dedupe.Watch(process.pid, Path(folder))
        watch.start()
        answer, _ = process.communicate()
        watch.end()
    seconds, removed = map(float, answer.split())
    return {
        "records": f"{records:,}",
        "seconds": f"{seconds:,.1f}",
        "records/s": f"{records / seconds:,.0f}",
        "memory, MB": f"{watch.memory / 1e6:,.0f} + {watch.mapped / 1e6:,.0f}",
        "disk, MB": f"{watch.disk / 1e6:,.0f}",
        "removed": f"{removed:.1%}",
    }


def decide(records, folder):
    """Make and decide records; return the seconds of the second, and the share of removed ones."""
    from fpdb.documents.layout import header_for, layout
    from fpdb.documents.lookup import Search
    from fpdb.documents.similarity import Side
    from fpdb.joins.columns import GrowingTexts, Room, TextColumns
    from fpdb.joins.selection import Selection
    from fpdb.scratch import scratch_folder

    _, header = header_for(
        "web", similarity=0.8, k=None, capacity=1_000_000, keys="text", plan=None
    )
    index, _ = layout(header)
    seconds, kept, chance = 0.0, 0, np.random.default_rng(35)
    with scratch_folder(Path(folder, "columns")) as scratch:
        room = Room(scratch, MEMORY)
        texts = GrowingTexts(room, 64)
        selection = Selection(index, Search(3, None, 0.8), texts, room)
        for start in range(0, records, BLOCK):
            count = min(BLOCK, records - start)
            side = made(chance, count, texts.all.side, Side)
            began = time.perf_counter()
            texts.add(TextColumns(side, np.zeros(count, np.bool_)))
            numbers = np.arange(start, start + count)
            kept += int(selection.choose(numbers, np.zeros(count, np.bool_)).kept.sum())
            seconds += time.perf_counter() - began
    return seconds, 1 - kept / records


def made(chance, count, earlier, side):
    sketches = chance.integers(0, 256, (count, 128), np.uint8)
    prints = chance.integers(0, 1 << 63, count, np.uint64)
    digests = chance.integers(1, 1 << 63, (count, 2), np.uint64)
    if len(earlier.sketches):
        places = chance.choice(count, count // 5, replace=False)
        models = chance.integers(0, len(earlier.sketches), len(places))
        sketches[places] = earlier.sketches[models]
        edited, equal = np.split(places, [len(places) // 2])
        digests[equal] = earlier.digests[models[len(edited) :]]
        prints[equal] = earlier.fingerprints[models[len(edited) :]]
        for _ in range(CHANGED):
            sketches[edited, chance.integers(0, 128, len(edited))] ^= np.uint8(0x5A)
    return side(prints, digests, sketches)


if __name__ == "__main__":
    print(*decide(int(sys.argv[1]), sys.argv[2]))
