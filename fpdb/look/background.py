"""The work that takes longer than a page may: the groups of a database, and its texts.

A child process finds them on a snapshot, while pages say how far it is.
"""

import contextlib
import dataclasses
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import numpy as np

from fpdb.arrays import Column, ranked
from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.flow import parse_key
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading
from fpdb.look.groups import NO_DAY, Groups, host_of, parse_day
from fpdb.look.texts import TextFile, Texts
from fpdb.processes import Streamed, Worker

# The leading bits of fingerprints by which documents are counted, at most, and the most frequent.
_PREFIX, _CROWDED = 16, 10
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


@dataclass(frozen=True)
class Findings:
    """The groups at one moment, the number of documents, and of them those that were added by day.

    `crowded` has the most frequent first bits of fingerprints, of how many documents they are, and
    the id of one of these; `average` is the mean of all such numbers.
    """

    groups: Groups
    documents: int
    began: float
    seconds: float
    added: Counter[date]
    crowded: list[tuple[str, int, int]]
    average: float


@dataclass
class Background:
    """Finds groups and texts in a child process; pages look at what is there already.

    `stage` says what it is doing, and is empty when nothing is under way.
    """

    task: FindingTask
    texts: Texts
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
                    case Findings():
                        self.found = found
                    case TextFile():
                        self.texts.packed = found
                found = child.call(None)
        except Exception as error:  # whatever ended it, pages say so
            self.error = str(error)
        child.close()
        self.stage = ""


def _findings(task: FindingTask) -> Iterator[str | Findings | TextFile]:
    """Yield the groups and texts of a database, and before each part lines about the progress."""
    began = time.time()
    ids, high, low, days, hosts = array("Q"), array("Q"), array("Q"), array("i"), array("i")
    names: dict[str, int] = {}
    added: Counter[date] = Counter()
    prefixes: Counter[int] = Counter()
    samples: dict[int, int] = {}
    with task.database.snapshot() as snapshot:
        total, plan = len(snapshot), snapshot.plan
        bits = min(plan.tables[0].prefix, _PREFIX)
        for number, document in enumerate(snapshot.scan()):
            if number % _STEP == 0:
                yield f"reading documents: {number:,} of {total:,}"
            fingerprint, own = document.fingerprint or 0, document.id or 0
            if document.fingerprint is not None:
                prefix = fingerprint >> plan.bits - bits
                prefixes[prefix] += 1
                samples[prefix] = own
            meta = document.meta if isinstance(document.meta, dict) else {}
            came = datetime.fromtimestamp(document.added or 0, UTC).date()
            added[came] += 1
            day = came if task.date_field is None else parse_day(meta.get(task.date_field))
            host = str(document.key) if "://" in str(document.key) else None
            if task.host_field is not None:
                host = meta.get(task.host_field)
            ids.append(own)
            high.append(fingerprint >> 64)
            low.append(fingerprint & (1 << 64) - 1)
            days.append(day.toordinal() if day else NO_DAY)
            hosts.append(-1 if host is None else names.setdefault(host_of(host), len(names)))
        yield "looking for groups"
        groups = Groups.of(snapshot.clustering(), snapshot.similarity)
    found, *columns = (np.frombuffer(column, column.typecode) for column in (ids, days, hosts))
    order = np.argsort(found)
    rows = order[found[order].searchsorted(groups.ids)]
    groups.days, groups.hosts = (column[rows] for column in columns)
    groups.names = list(names)
    if groups.similarity is None:
        groups = _by_bits(groups, np.array(high)[rows], np.array(low)[rows], plan.bits)
    crowded = [
        (f"{prefix:0{bits}b}", count, samples[prefix])
        for prefix, count in prefixes.most_common(_CROWDED)
        if count > 1
    ]
    average = prefixes.total() / (1 << bits)
    yield Findings(groups, total, began, time.time() - began, added, crowded, average)
    if task.files:
        yield from _packed(task)


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
