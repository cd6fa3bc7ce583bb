"""Growth: documents are replaced a million times, and the file must not grow with that.

A page is free once no transaction can see it any more. So a file grows to what it holds, the
pages that one transaction replaces, and those that a snapshot keeps; and then no further.
"""

import random
import time
from pathlib import Path
from typing import Any

from frame import ControlError, Figures, going
from oracle import Contents, contents
from worker import Worker, Workers
from workload import SIMILARITIES, sketch_of

import fpdb
from fpdb.storage import environment

DOCUMENTS = 100_000
BATCHES = [1, 10, 100, 300]
SHARE = 300  # no transaction replaces more than this part of all documents
READERS = 2
LONGEST_SNAPSHOT = 0.02  # seconds
LARGEST_RATIO = 2.5
STEPS = 10
HELD = 5_000  # replacements while a reader never ends


def run(
    figures: Figures, rounds: int, seed: int, work: Path, documents: int = DOCUMENTS,
    readers: int = READERS,
) -> None:  # fmt: skip
    """Replace documents again and again, and compare the file with a compacted one.

    Rounds are replacements, with each kind of keys.
    """
    for kind in ("text", "integer"):
        churn = Churn(work / kind, kind, seed, documents)
        with Workers() as workers:
            for number in range(readers):
                workers.take().begin("growth.read", str(churn.path), seed + number)
            sizes = churn.go_through(rounds)
        churn.db.compact(work / f"{kind}-compacted")
        compacted = _bytes(work / f"{kind}-compacted")
        ratio = round(sizes[-1] / compacted, 2)
        replaced, lost = churn.replaced, churn.lost()
        with Workers() as workers:
            held, after = churn.hold(workers.take(), min(HELD, rounds))
        if held < 2 * sizes[-1]:
            raise ControlError(f"a reader that never ends kept the file at {held:,} bytes")
        problems = [f"{ratio} times as large"] * (ratio > LARGEST_RATIO)
        problems += ["it grew without a reader"] * (after > held)
        figures.add(f"{kind}, wrong", problems, lost=lost, acknowledged=replaced)
        times = round(held / compacted, 1)
        figures.control += f"a reader that never ends: {kind} keys, {times} times as large; "
        figures.notes[f"{kind} keys"] = {
            "times compacted": ratio,
            "over time": [round(size / compacted, 2) for size in sizes],
            "compacted bytes": compacted,
            "bytes while a reader never ended": held,
            "bytes after it was killed": after,
        }
        churn.db.close()


class Churn:
    """A database of constant size, of which documents are replaced all the time."""

    def __init__(self, path: Path, kind: str, seed: int, count: int) -> None:
        self.path, self._kind, self._count = path, kind, count
        self._sizes = [size for size in BATCHES if size * SHARE <= count]
        self.replaced = 0
        self._chance = random.Random(f"{seed} {kind}")
        self._documents: Contents = {}
        # What a load leaves free isn't what is measured.
        kept = {"keys": kind, "similarity": SIMILARITIES[kind]}
        with fpdb.create(path.with_name(f"{kind}-loaded"), **kept) as self.db:
            self._add(range(count))
            self.db.compact(path)
        self.db = fpdb.open(path)

    def go_through(self, count: int) -> list[int]:
        sizes: list[int] = []
        wanted = self.replaced + count
        for step in going(STEPS):
            self.replace_until(wanted - count + count * (step + 1) // STEPS)
            sizes.append(_bytes(self.path))
        return sizes

    def replace_until(self, wanted: int) -> None:
        while self.replaced < wanted:
            size = min(self._chance.choice(self._sizes), wanted - self.replaced)
            self._add(self._chance.sample(range(self._count), size))
            self.replaced += size

    def hold(self, reader: Worker, count: int) -> tuple[int, int]:
        """Write while a reader never ends, then kill it; return the sizes of the file."""
        reader.begin("growth.stay", str(self.path))
        reader.expect(staying=True)
        self.replace_until(self.replaced + count)
        held = _bytes(self.path)
        list(reader.kill())
        # The next check for dead readers frees its pages.
        time.sleep(environment.READER_CHECK_SECONDS)
        self.replace_until(self.replaced + count)
        return held, _bytes(self.path)

    def lost(self) -> int:
        """Count the documents that aren't what was written last, and what a check finds."""
        stored = contents(self.db)
        wrong = [key for key, value in self._documents.items() if stored.get(key) != value]
        return len(wrong) + len(stored.keys() - self._documents.keys()) + len([*self.db.check()])

    def _add(self, numbers: Any) -> None:
        documents = list(map(self._document, numbers))
        for _ in self.db.add_many(documents):
            pass
        for document in documents:
            self._documents[document.key] = document.fingerprint, document.meta

    def _document(self, number: int) -> fpdb.Document:
        mixed = number * 7919 % 1_000_003
        meta = {
            "title": "x" * (mixed % 120),
            "fetched": self._chance.randrange(1 << 31),
            "bytes": self._chance.randrange(1 << 20),
        }
        key = f"https://{mixed % 97}.example/page/{mixed}" if self._kind == "text" else mixed
        number = self._chance.getrandbits(64)
        sketch = None if self.db.similarity is None else sketch_of(number)
        return fpdb.Document(key, meta=meta, fingerprint=number, sketch=sketch)


def _bytes(path: Path) -> int:
    return (path / "data.mdb").stat().st_size


def read(_: Any, path: str, seed: int) -> None:
    chance = random.Random(seed)
    with fpdb.open(path, readonly=True) as db:
        while True:
            with db.snapshot() as snapshot:
                snapshot.query_fingerprint(chance.getrandbits(64))
                time.sleep(chance.random() * LONGEST_SNAPSHOT)
            time.sleep(chance.random() * LONGEST_SNAPSHOT)


def stay(channel: Any, path: str) -> None:
    with fpdb.open(path, readonly=True) as db, db.snapshot():
        channel.tell(staying=True)
        time.sleep(3600)
