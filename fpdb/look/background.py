"""What the pages of the explorer show and keep: groups and texts, and decisions of a user.

A child process finds groups and texts on a snapshot, while pages say how far it is.
"""

import csv
import io
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from fpdb.database import Database
from fpdb.io.files import read_pairs
from fpdb.look.fields import ShownFields
from fpdb.look.groups import Groups
from fpdb.look.sources import Texts
from fpdb.models import Key
from fpdb.processes import Worker
from fpdb.scratch import draft_file

# Documents between two lines about the progress.
_STEP = 20_000


@dataclass(frozen=True)
class Findings:
    """The groups at one moment, the number of documents, and of them those added by day."""

    groups: Groups
    documents: int
    began: float
    seconds: float
    added: Counter[date]


@dataclass
class Background:
    """Finds groups and texts in a child process; pages look at what is there already.

    `stage` says what it is doing, and is empty when nothing is under way.
    """

    texts: Texts[Database]
    fields: ShownFields
    stage: str = ""
    error: str = ""
    found: Findings | None = None
    started: float = 0.0
    _child: Worker | None = None
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Begin, unless it is under way."""
        with self._lock:
            if not self.stage:
                self.stage, self.error, self.started = "starting", "", time.time()
                self._child = Worker(_findings)
                self._thread = threading.Thread(target=self._run, args=[self._child], daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the child process, if it is still at work."""
        if self._child and self._thread:
            self._child.kill()
            self._thread.join()

    def _run(self, child: Worker) -> None:
        try:
            for found in child.values((self.texts, self.fields)):
                if isinstance(found, Findings):
                    self.found = found
                else:
                    self.stage = found
            self.texts.packed = True
        except Exception as error:  # whatever ended it, pages say so
            self.error = str(error)
        child.close()
        self.stage = ""


def _findings(task: tuple[Texts[Database], ShownFields]) -> Iterator[str | Findings]:
    """Yield the groups of a database, pack its texts, and yield lines about the progress."""
    texts, fields = task
    began = time.time()
    added: Counter[date] = Counter()
    yield "looking for groups"
    with texts.database.snapshot() as snapshot:
        total, bits = len(snapshot), snapshot.plan.bits
        groups = Groups(snapshot.clustering(), snapshot.similarity)
        rows = {number: row for row, number in enumerate(groups.ids.tolist())}
        fingerprints = [0] * len(rows)
        for number, document in enumerate(snapshot.scan()):
            if number % _STEP == 0:
                yield f"reading documents: {number:,} of {total:,}"
            came = datetime.fromtimestamp(document.added or 0, UTC).date()
            added[came] += 1
            row = rows.get(document.id or 0)
            if row is None:
                continue
            fingerprints[row] = document.fingerprint or 0
            day, host = (fields.value(kind, document.meta) for kind in ("date", "host"))
            if day is None and fields.date is None:
                day = came
            if host is None and fields.host is None and "://" in (key := str(document.key)):
                host = key
            groups.note(row, day, host)
    if groups.similarity is None:
        groups.compare_bits(fingerprints, bits)
    yield Findings(groups, total, began, time.time() - began, added)
    for number in texts.pack():
        if number % _STEP == 0:
            yield f"reading texts: {number:,} so far"


class Decisions:
    """Keeps decisions on the documents of a database in files beside its directory."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._pairs = self._beside("pairs.csv")
        self._verdicts: dict[tuple[str, ...], bool] = {}
        if self._pairs.exists():
            for key, other, same in read_pairs(str(self._pairs)):
                self._verdicts[_pair(key, other)] = bool(same)

    def _beside(self, ending: str) -> Path:
        path = self._database.path
        return path.with_name(f"{path.name}-{ending}")

    def judge(self, key: Key, other: Key, *, same: bool | None) -> None:
        """Keep a verdict on two documents in the file, or take it back."""
        with self._lock:
            self._verdicts.pop(_pair(key, other), None)
            if same is not None:
                self._verdicts[_pair(key, other)] = same
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(["key", "other", "same"])
            writer.writerows((*pair, int(kept)) for pair, kept in self._verdicts.items())
            with draft_file(self._pairs) as file:
                file.write(lines.getvalue().encode())

    def verdict(self, key: Key, other: Key) -> bool | None:
        """Return the verdict on two documents, if there is one."""
        return self._verdicts.get(_pair(key, other))

    def delete(self, keys: Sequence[Key]) -> tuple[int, Path]:
        """Delete documents; return how many there were, and the file that brings them back."""
        moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6}"
        path = self._beside(f"deleted-{moment}.fpdb.jsonl")
        try:
            path.touch(0o600, exist_ok=False)  # as private as the database
            with path.open("wb") as file:
                return self._database.delete_many(keys, undo=file), path
        finally:
            if not path.stat().st_size:  # nothing was deleted
                path.unlink()


def _pair(*keys: Key) -> tuple[str, ...]:
    return tuple(sorted(map(str, keys)))
