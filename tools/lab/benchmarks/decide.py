"""Measure how long it takes to decide which records stay, by sketches that are made.

That is `fpdb dedupe` without reading texts and writing files, whose time grows with the texts.
Four of five records are like no other; half of the others have the sketch of any earlier one, and
half have some bytes of it changed.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import paired

SIZES = 1_000_000, 10_000_000
# Of a run, of which 100 million records need more.
MEMORY, MEMORY_EACH = 3 << 30, 150
WORDS = 19  # of a record: a fingerprint, a digest and a sketch
FIRST = 1 << 15  # records, of which none is a copy
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
    seconds, worked, removed = map(float, answer.split())
    return {
        "records": f"{records:,}",
        "seconds": f"{seconds:,.1f}",
        "of a processor": f"{worked:,.1f}",
        "records/s": f"{records / worked:,.0f}",
        "memory, MB": f"{watch.memory / 1e6:,.0f} + {watch.mapped / 1e6:,.0f}",
        "disk, MB": f"{watch.disk / 1e6:,.0f}",
        "removed": f"{removed:.1%}",
    }


def decide(records, folder):
    """Make and decide records; return the time of the second and the removed share."""
    from fpdb.dedupe.decide import TOGETHER
    from fpdb.documents.layout import header_for, layout
    from fpdb.documents.lookup import Search
    from fpdb.joins.columns import GrowingTexts, Room
    from fpdb.joins.selection import Selection
    from fpdb.scratch import scratch_folder
    from fpdb.storage.block import TextColumns

    _, header = header_for(
        "web", similarity=0.8, k=None, capacity=1_000_000, keys="text", plan=None
    )
    index, _ = layout(header)
    seconds, worked, kept = 0.0, 0.0, 0
    with scratch_folder(Path(folder, "columns")) as scratch:
        room = Room(scratch, max(MEMORY, MEMORY_EACH * records))
        texts = GrowingTexts(room, 64)
        selection = Selection(index, Search(3, None, 0.8), texts, room)
        for start in range(0, records, TOGETHER):
            numbers = np.arange(start, min(start + TOGETHER, records))
            none = np.zeros(len(numbers), np.bool_)
            columns = TextColumns(*made(numbers), none)
            clock, processor = time.perf_counter(), time.process_time()
            texts.add(columns)
            kept += int(selection.choose(numbers, none).keepers.sum())
            seconds += time.perf_counter() - clock
            worked += time.process_time() - processor
    return seconds, worked, 1 - kept / records


def made(numbers):
    """Return fingerprints, digests and sketches, which don't depend on what was made before."""
    from fpdb.fingerprint.sketches import mix

    sources = numbers.copy()
    copies = ((numbers % 5 == 4) & (numbers > FIRST)).nonzero()[0]
    earlier = mix(numbers[copies].astype(np.uint64)) % numbers[copies].astype(np.uint64)
    sources[copies] = earlier - earlier % np.uint64(5)  # which is no copy
    words = mix((sources[:, np.newaxis] * WORDS + np.arange(WORDS)).astype(np.uint64))
    prints, digests = words[:, 0].copy(), words[:, 1:3].copy()
    sketches = words[:, 3:].copy().view(np.uint8)
    edited = copies[::2]
    digests[edited, 0] = numbers[edited]
    chance = np.random.default_rng(int(numbers[0]))
    for _ in range(CHANGED):
        sketches[edited, chance.integers(0, 128, len(edited))] ^= np.uint8(0x5A)
    return prints, digests, sketches


if __name__ == "__main__":
    print(*decide(int(sys.argv[1]), sys.argv[2]))
