"""Bring records into a database in batches, and keep count of what became of them."""

import time
from collections import Counter
from collections.abc import Iterable

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.sources import Rejects
from fpdb.cli.values import parse_key
from fpdb.errors import InputError
from fpdb.io import BadRecord, Record

_BATCH = 1000
_BATCH_CHARACTERS = 1 << 22
# A slow source must not keep what it gave from being stored.
_BATCH_SECONDS = 1.0
_PROGRESS_SECONDS = 0.1

_Batch = list[tuple[Record, fpdb.Document]]


class Loader:
    """One run of ingest."""

    def __init__(
        self,
        rejects: Rejects,
        *,
        skip_duplicates: bool,
        as_json: bool,
        watched: bool,
        total: int | None,
    ) -> None:
        self._rejects = rejects
        self._skip_duplicates = skip_duplicates
        self._as_json = as_json
        self._watched = watched
        self._total = total
        self._bytes = self._read = self._replaced_bytes = 0
        self._statuses: Counter[str] = Counter()
        self._started = self._shown = time.monotonic()

    def read_bytes(self, count: int) -> None:
        """Take note of how many bytes were read."""
        self._bytes += count

    def load(self, database: fpdb.Database, records: Iterable[Record | BadRecord]) -> None:
        """Add all records; those before an error or an interrupt are stored, or not read yet."""
        kind = database.keys
        batch: _Batch = []
        room, due = _BATCH_CHARACTERS, time.monotonic() + _BATCH_SECONDS
        for record in records:
            self._read += 1
            if isinstance(record, BadRecord):
                if self._rejects.strict:
                    self._store(database, batch)
                self._rejects.add(record.source, record.reason)
                continue
            self._replaced_bytes += record.replaced
            try:
                document = _document(record, kind)
            except InputError as error:
                if self._rejects.strict:
                    self._store(database, batch)
                self._rejects.add(record.source, str(error), error.hint)
                continue
            batch.append((record, document))
            room -= len(record.text or "")
            if len(batch) == _BATCH or room < 0 or time.monotonic() > due:
                self._store(database, batch)
                batch, room = [], _BATCH_CHARACTERS
                due = time.monotonic() + _BATCH_SECONDS
        self._store(database, batch)

    def _store(self, database: fpdb.Database, batch: _Batch) -> None:
        """Add a batch; a document that can't be added costs only itself."""
        done = 0
        try:
            documents = [document for _, document in batch]
            for added in database.add_many(documents, skip_duplicates=self._skip_duplicates):
                done += 1
                self._count(added)
        except InputError as error:
            rest = batch[done:]
            if len(rest) == 1:
                self._rejects.add(rest[0][0].source, str(error), error.hint)
                return
            # Halves, not single ones: each transaction waits for the disk.
            half = len(rest) // 2
            self._store(database, rest[:half])
            self._store(database, rest[half:])
        self._show()

    def _count(self, added: fpdb.Added) -> None:
        self._statuses[added.status] += 1
        if added.status != "duplicate":
            return
        try:
            if self._as_json:
                render.record(
                    {
                        "key": added.key,
                        "status": added.status,
                        "matches": [match._asdict() for match in added.matches],
                    }
                )
            else:
                nearest = added.matches[0]
                render.row(added.key, nearest.key, nearest.distance)
        except typer.Exit:
            # Whoever read the duplicates has enough of them; the documents still are to be added.
            return

    def _show(self) -> None:
        now = time.monotonic()
        if not self._watched or now - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        share = f", {min(self._bytes / self._total, 1):.0%} of the bytes" if self._total else ""
        rate = self._read / (now - self._started)
        render.progress(f"{self._read:,} documents{share}, {rate:,.0f} documents/s")

    def summarise(self) -> None:
        """Say what became of the records."""
        seconds = time.monotonic() - self._started
        names = {name: name for name in ("added", "replaced", "unchanged")}
        names |= {"duplicates": "duplicate", "short": "short"}
        counts = [f"read {self._read:,}"]
        counts += [f"{name} {self._statuses[status]:,}" for name, status in names.items()]
        counts.append(f"bad {self._rejects.count:,}")
        rate = self._statuses.total() / seconds if seconds else 0
        render.note(f"{', '.join(counts)}; {seconds:.2f} s, {rate:,.0f} documents/s")
        if self._replaced_bytes:
            render.note(
                f"documents with bytes that are no UTF-8, replaced by U+FFFD: "
                f"{self._replaced_bytes:,}"
            )


def _document(record: Record, kind: str) -> fpdb.Document:
    if record.key is None:
        raise InputError("found no key")
    return fpdb.Document(parse_key(record.key, kind), record.text, record.meta, record.fingerprint)
