"""The groups and texts that the explorer shows: found in a child process, on a snapshot."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from fpdb.database import Database
from fpdb.look.fields import ShownFields
from fpdb.look.groups import Groups
from fpdb.look.sources import Texts
from fpdb.processes import Worker

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
    findings: Findings | None = None
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
            for value in child.values((self.texts, self.fields)):
                if isinstance(value, Findings):
                    self.findings = value
                else:
                    self.stage = value
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
        clustering = snapshot.kept_groups() if snapshot.has_groups else snapshot.clustering()
        groups = Groups(clustering, snapshot.similarity)
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
            if day is None and fields.name("date") is None:
                day = came
            if host is None and fields.name("host") is None and "://" in (key := str(document.key)):
                host = key
            groups.note(row, day, host)
    if groups.similarity is None:
        groups.compare_bits(fingerprints, bits)
    yield Findings(groups, total, began, time.time() - began, added)
    for number in texts.pack():
        if number % _STEP == 0:
            yield f"reading texts: {number:,} so far"
