"""Build a sound database of what is intact in a damaged one."""

import os
from collections.abc import Iterator
from pathlib import Path

from fpdb.documents import Catalog, layout, new_database
from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.documents.text_keys import key_bytes
from fpdb.errors import DamagedError, StorageError
from fpdb.maintenance.rejoin import Rejoined
from fpdb.maintenance.salvaging import Found, Source
from fpdb.maintenance.scan import as_array, records
from fpdb.models import Key, Problem, Repaired
from fpdb.storage import Environment, ReadTransaction, WriteTransaction, header
from fpdb.storage.columns import Column
from fpdb.storage.counters import Counters
from fpdb.storage.header import Header
from fpdb.storage.salvage import Salvage
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints
from fpdb.tables.bulk_load import load

# Keys that are sorted before they are written.
_SORTED = 1 << 18
# Nobody ever added so many documents that an id would reach this.
_HIGHEST = 1 << 62


def repair(
    directory: Path,
    path: str | os.PathLike[str],
    *,
    otherwise: Header | None = None,
    memory: int,
) -> Repaired:
    """Write the intact documents of a damaged database into a new one.

    The header `otherwise` is taken if that of the database is lost.
    """
    with Salvage(directory) as salvage:
        head = salvage.header()
        problems = [] if head else [Problem("header", "it is lost")]
        head = head or otherwise
        if head is None:
            raise DamagedError(
                f"{directory} has lost its header, which says what its fingerprints are",
                hint="name a database that was created in the same way, as like=… or --like",
            )
        header.require_openable(head, readonly=True)
        index, catalog = layout(head)
        source = Source(salvage, index, catalog)
        with Environment.build(path, *new_database(head)) as built:
            work = _Repair(salvage, source, index, catalog)
            work.run(built, memory)
            if salvage.changed():
                raise StorageError(
                    f"{directory} was written to while it was read",
                    hint="stop those who write to it, and repair it again",
                )
    problems += [*salvage.problems, *source.problems, *work.problems]
    return Repaired(
        Path(path), work.counters.documents, work.missing, tuple(work.lost), tuple(problems)
    )


class _Repair:
    """One run: what was written, and what was lost."""

    def __init__(self, salvage: Salvage, source: Source, index: Index, catalog: Catalog) -> None:
        self._salvage = salvage
        self._source = source
        self._index = index
        self._catalog = catalog
        self.counters = Counters()
        self.missing: int | None = None
        self.lost: list[Key] = []
        self.problems: list[Problem] = []

    def run(self, built: Environment, memory: int) -> None:
        """Fill a new database."""
        old = self._salvage.counters()
        self._tell_counters(old)
        named = self._catalog.kind == "text"
        with built.write() as into:
            written = _Records(into, self._next_id(old), named=named)
            for found in self._source.records():
                written.add(found)
            written.flush()
        self.problems += written.problems
        documents, placed = written.documents, written.documents - written.short
        with built.read() as txn, built.write() as into:
            if isinstance(self._catalog, IntegerCatalog):
                known = self._salvage.expected("documents")
                rows = Rejoined(txn, self._index, self._catalog, self._source, memory)
                rows.write(into, None if known is None else known - documents)
                documents, placed = rows.documents, rows.placed
                load(into, self._index, rows.places, placed, memory)
                self.problems += rows.problems
                self.lost += rows.lost
            else:
                load(into, self._index, lambda: self._places(txn), placed, memory)
                self._name_lost(into)
            next_id = max(old.next_id if old else 0, written.next_id if named else 0)
            writes = old.writes if old else 1
            sketches = written.sketches if self._catalog.sketched else None
            self.counters = Counters(next_id, documents, documents - placed, writes, sketches)
            into.put("header", b"counters", self.counters.pack())
        if old:
            self.missing = max(old.documents - documents, 0)

    @staticmethod
    def _next_id(counters: Counters | None) -> int:
        """Say which id of a text key can't be right."""
        return counters.next_id if counters else _HIGHEST

    def _places(self, txn: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
        for block in records(txn, self._catalog, self._index.plan.bits):
            *words, ids = block.rows()
            yield as_array(words), ids

    def _tell_counters(self, counters: Counters | None) -> None:
        if counters is None:
            what = "they are lost, so it isn't known how many documents there were"
            self.problems.append(Problem("counters", what))

    def _name_lost(self, into: WriteTransaction) -> None:
        """Find the keys whose documents are gone."""
        for entry in self._salvage.entries("keys"):
            number = entry.value or b""
            if into.get("keys", entry.key) is None and into.get("documents", number) is None:
                self.lost.append(entry.key.decode(errors="replace"))


class _Records:
    """Writes the records that were salvaged, with their keys."""

    def __init__(self, into: WriteTransaction, next_id: int, *, named: bool) -> None:
        self._into = into
        self._next_id = next_id
        self._named = named
        self._last = -1
        self._keys: list[tuple[bytes, int, int, bytes, bool]] = []
        self._homeless: list[Found] = []
        self.problems: list[Problem] = []
        self.documents = self.short = self.sketches = self._added = 0

    @property
    def next_id(self) -> int:
        """The lowest id above all that are taken."""
        return self._last + 1

    def add(self, found: Found) -> None:
        """Write a record under its id; one whose id is lost, or taken, gets another at the end."""
        number = found.number if self._named else int(found.record.key)
        if self._named and (number is None or self._is_wrong(number)):
            self._homeless.append(found)
        elif number is not None:
            self._put(number, found)

    def flush(self) -> None:
        """Write what was held back."""
        for found in self._homeless:
            self._put(self.next_id, found)
        self._put_keys()

    def _is_wrong(self, number: int) -> bool:
        if number >= self._next_id:
            return True
        return number <= self._last and self._into.get("documents", _id(number)) is not None

    def _put(self, number: int, found: Found) -> None:
        into, name = self._into, _id(number)
        if number > self._last:
            into.append("documents", name, found.value)
            self._last = number
        elif into.get("documents", name) is None:
            into.put("documents", name, found.value)
        else:
            what = f"the document {found.record.key!r} is there twice; the first is taken"
            self.problems.append(Problem("documents", what))
            return
        self.documents += 1
        self.sketches += bool(found.record.sketch)
        self._added += 1
        if not found.record.fingerprint:
            into.put("short", found.record.digest + name, b"")
            self.short += 1
        if self._named:
            digest = b"" if found.record.fingerprint else found.record.digest
            sketched = bool(found.record.sketch)
            key = key_bytes(str(found.record.key))
            self._keys.append((key, self._added, number, digest, sketched))
            if len(self._keys) >= _SORTED:
                self._put_keys()

    def _put_keys(self) -> None:
        """Write keys in their order; of two documents with the same one, the first stays."""
        into = self._into
        for key, _, number, digest, sketched in sorted(self._keys):
            if into.get("keys", key) is None:
                into.put("keys", key, _id(number))
                continue
            into.delete("documents", _id(number))
            self.documents -= 1
            self.sketches -= sketched
            if digest:
                into.delete("short", digest + _id(number))
                self.short -= 1
            what = f"the key {key.decode(errors='replace')!r} is there twice; the first is taken"
            self.problems.append(Problem("documents", what))
        self._keys.clear()


def _id(number: int) -> bytes:
    return number.to_bytes(8, "big")
