"""Write several databases into one, in transactions of bounded size, of which each can be the last.

The draft says itself how far it is: beside its header stands the stage, and what that stage wrote
last is what the tables end with. So whoever is given an unfinished draft goes on where it ends.
"""

import contextlib
import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from operator import itemgetter

from fpdb.documents.catalog import IntegerCatalog
from fpdb.maintenance.origins import Entries, Origin, in_blocks
from fpdb.maintenance.scan import as_array
from fpdb.maintenance.winners import integer_winners, text_winners
from fpdb.storage import Environment, ReadTransaction, WriteTransaction, pack, unpack
from fpdb.storage.columns import Column
from fpdb.storage.format import Counters
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints
from fpdb.tables.bulk_load import ahead, parts

# What one transaction of records writes.
STEP = 1 << 25
_PROGRESS = b"merge"
_LARGEST_PROGRESS = 1 << 20


@dataclass
class _Progress:
    """How far a draft is: its stage, how many ids are dropped, and where a table goes on."""

    stage: int = 0
    dropped: list[int] = field(default_factory=list)
    table: int = 0
    low: int = 0

    def pack(self) -> bytes:
        """Write it."""
        return pack(asdict(self), "the progress of a merge", _LARGEST_PROGRESS)


def begun(count: int, *, sketched: bool) -> dict[bytes, bytes]:
    """Give what stands beside the header of a draft to which nothing was written yet."""
    return {
        b"counters": Counters(sketches=0 if sketched else None).pack(),
        _PROGRESS: _Progress(dropped=[0] * count).pack(),
    }


def merge(
    origins: Sequence[Origin], built: Environment, index: Index, *, rule: str, memory: int
) -> None:
    """Fill a draft, or what is missing of it."""
    with built.read() as txn:
        value = txn.get("header", _PROGRESS)
        if value is None:
            return
        progress = _Progress(**unpack(value, "the progress of a merge"))
    _Merge(origins, built, index, progress, rule=rule, memory=memory).run()


class _Merge:
    """One run: what its stages share."""

    def __init__(
        self,
        origins: Sequence[Origin],
        built: Environment,
        index: Index,
        progress: _Progress,
        *,
        rule: str,
        memory: int,
    ) -> None:
        self._origins = origins
        self._built = built
        self._index = index
        self._progress = progress
        self._rule = rule
        self._memory = memory
        self._named = origins[0].catalog.kind == "text"

    def run(self) -> None:
        """Do what is left."""
        stages: list[Callable[[], None]] = [
            self._write_keys if self._named else self._write_ids,
            self._write_documents,
            self._write_short,
            self._write_tables,
        ]
        for number in range(self._progress.stage, len(stages)):
            stages[number]()
            with self._written():
                self._progress.stage = number + 1
        self._finish()

    @contextlib.contextmanager
    def _written(self) -> Iterator[WriteTransaction]:
        """Write in a transaction that also notes how far it is."""
        with self._built.write() as into:
            yield into
            into.put("header", _PROGRESS, self._progress.pack())

    def _last(self, name: str) -> bytes:
        with self._built.read() as txn, txn.cursor(name) as cursor:
            return bytes(cursor.key()) if cursor.last() else b""

    def _write_keys(self) -> None:
        self._cut_dropped()
        for keys in text_winners(self._origins, self._rule, self._last("keys")):
            with self._written() as into:
                into.extend("keys", keys.entries)
                self._drop(keys.dropped)
        for origin in self._origins:
            origin.dropped.sort()

    def _write_ids(self) -> None:
        self._cut_dropped()
        pages = IntegerCatalog.ids
        after = -1
        with self._built.read() as txn:
            if last := self._last(pages.name):
                after = int(pages.page_of(txn, int.from_bytes(last))[0][0][-1])
        for ids in integer_winners(self._origins, self._rule, after):
            with self._written() as into:
                pages.fill(into, [ids.rows])
                self._drop(ids.dropped)

    def _cut_dropped(self) -> None:
        """Forget what was dropped behind the last transaction: it will be dropped once more."""
        for origin, count in zip(self._origins, self._progress.dropped, strict=True):
            origin.dropped.cut(count)

    def _drop(self, dropped: Sequence[Column]) -> None:
        for place, ids in enumerate(dropped):
            self._origins[place].dropped.add(ids)
            self._progress.dropped[place] += len(ids)

    def _write_documents(self) -> None:
        self._copy("documents")

    def _write_short(self) -> None:
        self._copy("short")

    def _copy(self, name: str) -> None:
        """Copy entries whose keys end with an id, in the order of the new ids."""
        after = self._last(name)
        moved = [origin.moved(name, after) for origin in self._origins]
        blocks = (
            chain.from_iterable(moved)  # no new id of a database is among those of another
            if self._named and name == "documents"
            else _interleaved(moved)
        )
        for first in blocks:
            with self._written() as into:
                size = 0
                for block in chain([first], blocks):
                    into.extend(name, zip(block.keys, block.values, strict=True))
                    size += sum(map(len, block.keys)) + sum(map(len, block.values))
                    if size >= STEP:
                        break

    def _write_tables(self) -> None:
        def read() -> Iterator[tuple[Fingerprints, Column]]:
            yield self._nothing()
            for origin in self._origins:
                yield from origin.places()

        progress = self._progress
        with self._built.read() as txn:
            placed = self._documents() - txn.entries("short")
        sought = parts(
            self._index,
            read,
            placed,
            self._memory,
            table=progress.table,
            low=progress.low,
        )
        # Whatever happens, no thread reads the databases any more when their snapshots end.
        with contextlib.closing(ahead(sought)) as made:
            for part in made:
                with self._written() as into:
                    part.pages.fill(into, [part.rows])
                    whole = part.after >> 64
                    progress.table = part.table + whole
                    progress.low = 0 if whole else part.after

    def _finish(self) -> None:
        with self._built.write() as into:
            into.put("header", b"counters", self._counters(into).pack())
            into.delete("header", _PROGRESS)

    def _counters(self, txn: ReadTransaction) -> Counters:
        """Count what the draft holds once everything is written."""
        next_id = self._origins[-1].behind() if self._named else 0
        sketches = None
        if self._origins[0].catalog.sketched:
            counted = sum(origin.counters.sketches or 0 for origin in self._origins)
            sketches = counted - sum(origin.sketches_dropped() for origin in self._origins)
        return Counters(next_id, self._documents(), txn.entries("short"), 1, sketches)

    def _documents(self) -> int:
        there = sum(origin.counters.documents for origin in self._origins)
        return there - sum(self._progress.dropped)

    def _nothing(self) -> tuple[Fingerprints, Column]:
        *words, ids = self._index.home.empty()
        return as_array(words), ids


def _interleaved(moved: Sequence[Iterator[Entries]]) -> Iterator[Entries]:
    """Give the entries of all databases in the order of their keys."""
    return in_blocks(heapq.merge(*map(_single, moved), key=itemgetter(0)))


def _single(blocks: Iterator[Entries]) -> Iterator[tuple[bytes, bytes]]:
    for block in blocks:
        yield from zip(block.keys, block.values, strict=True)
