"""Bring ready fingerprints into a database in bulk: arrays that numpy wrote, or records."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import Wanted
from fpdb.cli.options import Keys
from fpdb.cli.sources import Rejects
from fpdb.errors import InputError
from fpdb.io import BadRecord, Record, is_array, read_array, read_lines
from fpdb.models import Key
from fpdb.preparing import parse_key
from fpdb.storage.preflight import is_vacant

# What a record takes, about, until it is stored with the others of its step.
_RECORD_BYTES = 256

_Row = tuple[Key, int, str]


@dataclass
class Bulk:
    """One run of ingest with ready fingerprints."""

    path: Path
    wanted: Wanted
    memory: int
    quiet: bool
    read: int = 0
    changed: int = 0
    bad: int = 0
    started: float = field(default_factory=time.monotonic)

    def load_array(self, source: str, key_file: str | None, first_key: int | None) -> None:
        """Add the rows of an array, under given keys or the numbers of the rows."""
        array = read_array(source)
        first = first_key or 0
        if first + len(array) > 1 << 64:
            raise InputError(
                f"found {len(array):,} rows to number from {first} on, expected keys below 2**64",
                hint="give a smaller --first-key",
            )
        given = _read_keys(key_file) if key_file else None
        named = given is not None and not isinstance(given, np.ndarray)
        with self._database(Keys.TEXT if named else Keys.INTEGER, len(array)) as database:
            if given is None and first_key is None and len(database):
                raise InputError(
                    f"{self.path} holds documents, and the keys of further ones aren't given",
                    hint="--first-key N numbers the rows from N on; "
                    "--fingerprint-keys FILE names them",
                )
            keys: Any = given
            if given is None:
                keys = np.arange(first, first + len(array), dtype=np.uint64)
            elif named:
                keys = [parse_key(key, database.keys) for key in given]
            self.changed = database.add_fingerprints(keys, array, memory=self.memory)
        self.read = len(array)

    def load_records(self, records: Iterator[Record | BadRecord], rejects: Rejects) -> None:
        """Add the keys and fingerprints of records, as many at a time as the memory holds."""
        with self._database(Keys.TEXT, None) as database:
            while True:
                rows = self._take(records, rejects, database)
                if not rows:
                    break
                self._store(database, rows, rejects)

    def _take(
        self, records: Iterator[Record | BadRecord], rejects: Rejects, database: fpdb.Database
    ) -> list[_Row]:
        rows: list[_Row] = []
        for record in records:
            self.read += 1
            try:
                rows.append(_row(record, database))
            except InputError as error:
                self._reject(rejects, record.source, error)
            if len(rows) * _RECORD_BYTES >= self.memory:
                break
        return rows

    def _store(self, database: fpdb.Database, rows: list[_Row], rejects: Rejects) -> None:
        """Add rows; one that can't be added costs only itself."""
        keys, fingerprints, sources = zip(*rows, strict=True)
        try:
            self.changed += database.add_fingerprints(keys, fingerprints, memory=self.memory)
        except InputError as error:
            if len(rows) == 1:
                self._reject(rejects, sources[0], error)
                return
            half = len(rows) // 2
            self._store(database, rows[:half], rejects)
            self._store(database, rows[half:], rejects)

    def _reject(self, rejects: Rejects, source: str, error: InputError) -> None:
        self.bad += 1
        rejects.add(source, str(error), error.hint)

    @contextlib.contextmanager
    def _database(self, keys: Keys, capacity: int | None) -> Iterator[fpdb.Database]:
        """Open the database, or build one beside its path that appears there in the end."""
        if not is_vacant(self.path):
            with databases.open_or_create(self.path, self.wanted, quiet=self.quiet) as database:
                yield database
            return
        with self.wanted.build(self.path, keys, capacity) as database:
            yield database
        if not self.quiet:
            with databases.open_readonly(self.path) as built:
                databases.note_created(built)

    def summarise(self) -> None:
        """Say what became of the fingerprints."""
        seconds = time.monotonic() - self.started
        rate = self.read / seconds if seconds else 0
        render.note(
            f"read {self.read:,}, new or changed {self.changed:,}, bad {self.bad:,}; "
            f"{seconds:.2f} s, {rate:,.0f} fingerprints/s"
        )


def _read_keys(path: str) -> Any:
    """Read keys: an array of numbers as it is, anything else as a list of texts."""
    if is_array(path):
        array = read_array(path)
        return array.tolist() if array.dtype.kind == "U" else array
    lines = list(read_lines(path))
    for line in lines:
        if not line.text:
            raise InputError(f"{line.source} is empty, expected a key", hint="a key a line")
    return [line.text for line in lines]


def _row(record: Record | BadRecord, database: fpdb.Database) -> _Row:
    if isinstance(record, BadRecord):
        raise InputError(record.reason)
    if record.key is None or record.fingerprint is None:
        raise InputError("found no key or no fingerprint")
    if record.fingerprint >> database.plan.bits:
        raise InputError(f"found a fingerprint of more than {database.plan.bits} bits")
    return parse_key(record.key, database.keys), record.fingerprint, record.source
