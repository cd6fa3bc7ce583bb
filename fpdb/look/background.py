"""The work that takes longer than a page may: the groups of a database, and its texts.

A child process finds them on a snapshot, while pages say how far it is, and hands over columns.
"""

import contextlib
import dataclasses
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import numpy as np

from fpdb.arrays import Column, Places, ranked
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.flow import parse_key
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading
from fpdb.look.groups import NO_DAY, Groups, host_of, parse_day
from fpdb.look.texts import TextFile, Texts
from fpdb.models import Document
from fpdb.processes import Streamed, Worker
from fpdb.queries import Snapshot

# The leading bits of fingerprints by which documents are counted, at most.
_PREFIX = 16
# Documents or records between two lines about the progress.
_STEP = 20_000


@dataclass(frozen=True)
class FindingTask:
    """The sources that the child process reads: a database, and the files with its texts."""

    database: Database
    files: Sequence[str]
    reading: Reading
    packed: TextFile
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


@dataclass
class Background:
    """Finds groups and texts in a child process; pages look at what is there already.

    `stage` says what it is doing, and is empty when nothing is under way.
    """

    task: FindingTask
    texts: Texts
    stage: str = ""
    error: str = ""
    counts: Counts | None = None
    groups: Groups | None = None
    started: float = 0.0
    _child: Worker | None = None
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        """Begin, unless it is under way."""
        with self._lock:
            if not self.stage:
                self.stage, self.error, self.started = "starting", "", time.time()
                self._child = Worker(Streamed(_findings))
                self._thread = threading.Thread(target=self._run, args=[self._child], daemon=True)
                self._thread.start()

    def close(self) -> None:
        """End the child process, if it is still at work."""
        if self._child and self._thread:
            self._child.kill()
            self._thread.join()

    def _run(self, child: Worker) -> None:
        task = self.task
        if self.texts.packed:  # the files are read once
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
                    case TextFile():
                        self.texts.packed = found
                found = child.call(None)
        except Exception as error:  # whatever ended it, pages say so
            self.error = str(error)
        child.close()
        self.stage = ""


def _findings(task: FindingTask) -> Iterator[str | Counts | Groups | TextFile]:
    """Yield the groups and texts of a database, and before each part lines about the progress."""
    with task.database.snapshot() as snapshot:
        reader = _DocumentReader(task, snapshot)
        yield from reader.read()
        yield "looking for groups"
        yield reader.groups()
    if task.files:
        yield from _packed(task)


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
        return day.toordinal() if day else NO_DAY

    def _host(self, document: Document) -> int:
        name = self._task.host_field
        value: object = document.key
        if name is not None:
            value = document.meta.get(name) if isinstance(document.meta, dict) else None
        if value is None or (name is None and "://" not in str(value)):
            return -1
        return self._names.setdefault(host_of(value).lower(), len(self._names))

    def groups(self) -> Groups:
        """Find the groups, and keep the days and hosts of their documents."""
        snapshot = self._snapshot
        found = Groups.of(snapshot.clustering(), snapshot.similarity)
        ids, *columns = (np.frombuffer(column, column.typecode) for column in self._columns)
        order = np.argsort(ids)
        rows = order[ids[order].searchsorted(found.ids)]
        high, low, days, hosts = (column[rows] for column in columns)
        if found.similarity is None:
            found = _by_bits(found, high, low, snapshot.plan.bits)
        return dataclasses.replace(
            found,
            days=days,
            hosts=hosts,
            names=list(self._names),
            at=self._began,
            seconds=time.time() - self._began,
        )


def _by_bits(groups: Groups, high: Column, low: Column, bits: int) -> Groups:
    """Compare fingerprints with the first of their group, and take equal ones for one text."""
    distances = sum(
        np.bitwise_count(word ^ word[groups.firsts]).astype(np.int64) for word in (high, low)
    )
    _, names = ranked([groups.firsts.astype(np.uint64), high, low])
    originals = np.full(len(names), len(names))
    np.minimum.at(originals, names, np.arange(len(names)))
    counted = np.bincount(distances, minlength=1)
    return dataclasses.replace(
        groups, originals=originals[names], least=1 - distances / bits, shares=counted
    )


def _packed(task: FindingTask) -> Iterator[str | TextFile]:
    """Pack the texts of all files into one."""
    with task.packed.written() as add:
        number = 0
        for path in task.files:
            for record in read_records(path, task.reading):
                if isinstance(record, BadRecord) or record.key is None or record.text is None:
                    continue
                if number % _STEP == 0:
                    yield f"reading texts: {number:,} so far"
                number += 1
                with contextlib.suppress(InputError):
                    add(str(parse_key(record.key, task.database.keys)), record.text)
    yield task.packed
