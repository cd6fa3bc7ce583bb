"""What takes longer than a page may: all groups of a database, and where its texts are.

A child process finds them on a snapshot, while pages say how far it is, and hands over columns.
"""

import contextlib
import dataclasses
import os
import sqlite3
import threading
import time
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Column, Marks, Places, ranked
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.flow import parse_key
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading
from fpdb.joins import Clustering
from fpdb.models import Document, Key
from fpdb.processes import Streamed, Worker
from fpdb.queries import Snapshot
from fpdb.report.gather import GroupColumns, host_of, parse_day
from fpdb.scratch import new_file

# The leading bits of fingerprints by which documents are counted, at most.
_PREFIX = 16
# Documents or records between two lines about the progress.
_STEP = 20_000
_NO_DAY = np.iinfo(np.int32).max


@dataclass(frozen=True)
class FindingTask:
    """What the child process reads: a database, and the files with its texts."""

    database: Database
    files: Sequence[str]
    reading: Reading
    packed: Path
    date_field: str | None = None
    host_field: str | None = None


@dataclass(frozen=True, eq=False)
class Counts:
    """The documents at one moment: their number, by day, and by the first bits of fingerprints.

    `samples` has for each of the prefixes the id of a document.
    """

    documents: int
    at: float
    days: Mapping[date, int]
    prefixes: Places
    samples: Column


class Groups(GroupColumns):
    """All groups at one moment.

    `days` and `hosts` are by row, which are the documents by id, hosts by their place among the
    `names`.
    """

    def __init__(
        self,
        found: Clustering,
        days: NDArray[np.int32],
        hosts: NDArray[np.int32],
        names: Sequence[str],
        *,
        at: float,
        seconds: float,
    ) -> None:
        super().__init__(found)
        self.hosts, self.names = hosts, names
        self.at, self.seconds = at, seconds
        self.first_days = self.reduced(np.minimum, days)
        self.last_days = self.reduced(np.maximum, days % _NO_DAY)

    @property
    def copies(self) -> int:
        """The documents that could go, if only one of each group stays."""
        return len(self.order) - len(self.starts)

    def group_of(self, number: int | None) -> int | None:
        """Return the group of a document by its id, if it is in one."""
        if number is None:
            return None
        ids = self.found.ids
        row = int(ids.searchsorted(np.uint64(number)))
        if row == len(ids) or ids[row] != number:
            return None
        first = self.found.firsts[row]
        return int(self.found.firsts[self.order[self.starts]].searchsorted(first))

    def chosen(
        self,
        *,
        sizes: tuple[float, float],
        shares: tuple[float, float],
        days: tuple[int, int],
        host: str,
        order: str,
    ) -> Places:
        """Return the groups within limits, in an order."""
        kept: Marks = (self.sizes >= sizes[0]) & (self.sizes <= sizes[1])
        kept &= (self.least >= shares[0]) & (self.least <= shares[1])
        kept &= (self.last_days >= days[0]) & (self.first_days <= days[1])
        if host:
            wanted = [place for place, name in enumerate(self.names) if host in name]
            there = np.isin(self.hosts, wanted)[self.order]
            kept &= np.logical_or.reduceat(there, self.starts) if len(there) else False
        [groups] = kept.nonzero()
        by = {
            "least": (-self.sizes, self.least, self.texts == 1),
            "similar": (-self.sizes, -self.least),
            "large": (self.least, -self.sizes),
            "new": (-self.sizes, -self.last_days),
        }[order]
        chosen: Places = groups[np.lexsort([column[groups] for column in by])]
        return chosen


@dataclass(frozen=True)
class PackedTexts:
    """The texts of keys in a file of SQLite, compressed."""

    path: Path

    def texts(self, key: Key) -> list[str]:
        """Return the texts that were read of a key, the last one first."""
        query = "SELECT text FROM texts WHERE key = ? ORDER BY rowid DESC"
        with contextlib.closing(sqlite3.connect(self.path)) as file:
            rows = file.execute(query, [_bytes(str(key))]).fetchall()
        return [zlib.decompress(row[0]).decode("utf-8", "surrogatepass") for row in rows]


@dataclass
class Background:
    """Finds groups and texts in a child process; pages look at what is there already.

    `stage` says what it is doing, and is empty when nothing is under way.
    """

    task: FindingTask
    stage: str = ""
    error: str = ""
    counts: Counts | None = None
    groups: Groups | None = None
    packed: PackedTexts | None = None
    started: float = 0.0
    _child: Worker | None = None
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Begin, unless it is under way."""
        with self._lock:
            if not self.stage:
                self.stage, self.error, self.started = "starting", "", time.time()
                self._child = Worker(Streamed(read_findings))
                self._thread = threading.Thread(target=self._run, args=[self._child], daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the child process, if it is still at work."""
        if self._child and self._thread:
            self._child.kill()
            self._thread.join()

    def _run(self, child: Worker) -> None:
        task = self.task
        if self.packed:  # the files are read once
            task = dataclasses.replace(task, files=())
        try:
            found = child.call(task)
            while found is not None:
                match found:
                    case str():
                        self.stage = found
                    case Counts():
                        self.counts = found
                    case Groups():
                        self.groups = found
                    case PackedTexts():
                        self.packed = found
                found = child.call(None)
        except Exception as error:  # whatever ended it, pages say so
            self.error = str(error)
        child.close()
        self.stage = ""


def read_findings(task: FindingTask) -> Iterator[str | Counts | Groups | PackedTexts]:
    """Yield what a database and its texts hold, and before each part lines about the progress."""
    with task.database.snapshot() as snapshot:
        reader = _DocumentReader(task, snapshot)
        yield from reader.read()
        yield "looking for groups"
        yield reader.groups()
    if task.files:
        yield from _read_texts(task)


class _DocumentReader:
    """Reads all documents, of which it keeps a few numbers each."""

    def __init__(self, task: FindingTask, snapshot: Snapshot) -> None:
        self._task = task
        self._snapshot = snapshot
        self._began = time.time()
        self._below = snapshot.plan.bits - min(snapshot.plan.tables[0].prefix, _PREFIX)
        self._columns = array("Q"), array("Q"), array("Q"), array("i"), array("i")
        self._names: dict[str, int] = {}

    def read(self) -> Iterator[str | Counts]:
        ids, high, low, days, hosts = self._columns
        added: Counter[int] = Counter()
        total = len(self._snapshot)
        size = 1 << self._snapshot.plan.bits - self._below
        prefixes, samples = np.zeros(size, np.int64), np.zeros(size, np.uint64)
        for number, document in enumerate(self._snapshot.scan()):
            if number % _STEP == 0:
                yield f"reading documents: {number:,} of {total:,}"
            fingerprint = document.fingerprint or 0
            if document.fingerprint is not None:
                prefixes[fingerprint >> self._below] += 1
                samples[fingerprint >> self._below] = document.id or 0
            added[(document.added or 0) // 86400] += 1
            ids.append(document.id or 0)
            high.append(fingerprint >> 64)
            low.append(fingerprint & (1 << 64) - 1)
            days.append(self._day(document))
            hosts.append(self._host(document))
        epoch = date(1970, 1, 1).toordinal()
        by_day = {date.fromordinal(epoch + day): count for day, count in sorted(added.items())}
        yield Counts(total, self._began, by_day, prefixes, samples)

    def _day(self, document: Document) -> int:
        """Return the day of a document: that of its date field, or that on which it was added."""
        name = self._task.date_field
        if name is None:
            return datetime.fromtimestamp(document.added or 0, UTC).toordinal()
        meta = document.meta if isinstance(document.meta, dict) else {}
        day = parse_day(meta.get(name))
        return day.toordinal() if day else _NO_DAY

    def _host(self, document: Document) -> int:
        name = self._task.host_field
        value: object = document.key
        if name is not None:
            value = document.meta.get(name) if isinstance(document.meta, dict) else None
        if value is None or (name is None and "://" not in str(value)):
            return -1
        return self._names.setdefault(host_of(value).lower(), len(self._names))

    def groups(self) -> Groups:
        """Find the groups, and keep what belongs to their documents."""
        found = self._snapshot.clustering()
        ids, *columns = (np.frombuffer(column, column.typecode) for column in self._columns)
        order = np.argsort(ids)
        rows = order[ids[order].searchsorted(found.ids)]
        high, low, days, hosts = (column[rows] for column in columns)
        if self._snapshot.similarity is None:
            found = self._with_distances(found, high, low)
        names = list(self._names)
        seconds = time.time() - self._began
        return Groups(found, days, hosts, names, at=self._began, seconds=seconds)

    def _with_distances(self, found: Clustering, high: Column, low: Column) -> Clustering:
        """Compare fingerprints with the first of their group, as shares of equal bits."""
        bits = self._snapshot.plan.bits
        distances = sum(
            np.bitwise_count(word ^ word[found.firsts]).astype(np.int64) for word in (high, low)
        )
        _, names = ranked([found.firsts.astype(np.uint64), high, low])
        originals = np.full(len(names), len(names))
        np.minimum.at(originals, names, np.arange(len(names)))
        counted = np.bincount(distances, minlength=1)
        return dataclasses.replace(
            found, originals=originals[names], least=1 - distances / bits, shares=counted
        )


def _read_texts(task: FindingTask) -> Iterator[str | PackedTexts]:
    """Pack the texts of all files into one."""
    task.packed.unlink(missing_ok=True)  # of a try that failed
    os.close(new_file(task.packed))
    with contextlib.closing(sqlite3.connect(task.packed)) as file:
        file.execute("PRAGMA journal_mode = OFF")
        file.execute("CREATE TABLE texts (key BLOB, text BLOB)")
        number = 0
        for path in task.files:
            for record in read_records(path, task.reading):
                if isinstance(record, BadRecord) or record.key is None or record.text is None:
                    continue
                if number % _STEP == 0:
                    yield f"reading texts: {number:,} so far"
                number += 1
                with contextlib.suppress(InputError):
                    key = _bytes(str(parse_key(record.key, task.database.keys)))
                    row = key, zlib.compress(_bytes(record.text), 1)
                    file.execute("INSERT INTO texts VALUES (?, ?)", row)
        file.execute("CREATE INDEX keys ON texts (key)")
        file.commit()
    yield PackedTexts(task.packed)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
