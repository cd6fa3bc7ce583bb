"""Bring ready fingerprints, or a database in its portable form, into a database."""

import contextlib
import dataclasses
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fpdb.database import Database
from fpdb.documents.layout import new_database, new_header
from fpdb.documents.prepare import BATCH
from fpdb.errors import InputError, RecipeMismatchError
from fpdb.ingest import Bad, Ingested, parse_key
from fpdb.io import BadRecord, Reading, Record, binary_file, read_lines, read_records, size_of
from fpdb.io.arrow import column_batches, column_files, read_columns, words_of
from fpdb.io.streams import StreamError
from fpdb.maintenance import portable
from fpdb.models import Added, Document, Key
from fpdb.storage import Environment
from fpdb.storage.open_checks import is_vacant
from fpdb.tables.bits import to_ints
from fpdb.tables.bulk_load import MEMORY

_CAPACITY = 1_000_000
# Documents that are stored together in a database that nobody else sees yet.
_FILLED = 1 << 14
_MAGIC = b"\x93NUMPY"
_SUFFIX = ".npy"
# numpy reads as many bytes of a header as it claims to have.
_LARGEST_HEADER = 1 << 14
# What a record takes, about, until it is stored with the others of its step.
_RECORD_BYTES = 256
_PORTABLE_SUFFIX = ".fpdb.jsonl"

_Row = tuple[Key, int, str]


def load(
    path: str | os.PathLike[str],
    source: str | IO[bytes],
    reading: Reading | None = None,
    *,
    key_file: str | None = None,
    first_key: int | None = None,
    memory: int = MEMORY,
    strict: bool = False,
    on_bad: Callable[[Bad], object] | None = None,
    on_progress: Callable[[Ingested], object] | None = None,
    **new: Any,
) -> Ingested:
    """Load ready fingerprints, or a database in its portable form, from a file into a database.

    If nothing is at the path, a database is made there. It appears when everything is in it, and
    not at all if the loading fails.

    Args:
        path: The directory of the database.
        source: A file, or "-" for standard input: an array that numpy saved (.npy), records with
            a key and a fingerprint (JSON lines, CSV, TSV, Parquet, Arrow), what `dump` wrote
            (.fpdb.jsonl, or the format "portable"), or the Parquet file or directory that
            `fpdb.integrations.spark` wrote. Or an open binary file, e.g. a pipe, with what `dump`
            wrote.
        reading: The format, and which fields of records mean what; "key" and "fingerprint".
        key_file: The keys of an array's rows: another array, or a text file with a key a line.
        first_key: The key of an array's first row; further rows count on. A new database counts
            from 0.
        memory: About how many bytes to sort in, besides the fingerprints.
        strict: Raise InputError at the first bad record.
        on_bad: Called for each record that can't be used.
        on_progress: Called with the counts so far.
        new: What `fpdb.create` takes, for a database that isn't there; a database that is there
            must have been created with the same, except for the capacity.
    """
    reading = reading or Reading()
    run = _Load(path, memory, new, strict=strict)
    run.on_bad, run.on_progress = on_bad, on_progress
    if not isinstance(source, str):
        run.dumped(source)
        return run.counts
    if source != "-":
        run.counts.bytes_total = size_of(source)
    if is_portable(source, reading.format):
        run.dumped_at(source)
    elif parts := column_files(source):
        try:
            run.columns(parts)
        except StreamError as error:
            raise InputError(f"{source} {error}") from None
    elif is_array(source):
        run.array(source, key_file, first_key)
    else:
        if key_file is not None or first_key is not None:
            raise InputError(
                f"{source} holds records, found keys for the rows of an array",
                hint="records have their keys in a field",
            )
        run.records(source, reading)
    return run.counts


def is_portable(source: str, form: str | None = None) -> bool:
    """Return whether a file has the portable form, by the format that is given or by its suffix."""
    name = source.lower().removesuffix(".gz").removesuffix(".zst")
    return form == "portable" or (form is None and name.endswith(_PORTABLE_SUFFIX))


class _Load:
    """Loads one file, and counts what became of it."""

    on_bad: Callable[[Bad], object] | None = None
    on_progress: Callable[[Ingested], object] | None = None

    def __init__(
        self, path: str | os.PathLike[str], memory: int, new: dict[str, Any], *, strict: bool
    ) -> None:
        self.counts = Ingested()
        self._path = path
        self._memory = memory
        self._new = new
        self._strict = strict

    def dumped_at(self, source: str) -> None:
        """Load a database in its portable form from a path."""
        with binary_file(source, self._count_bytes) as file:
            try:
                self.dumped(file)
            except InputError as error:
                raise InputError(f"{source}: {error}", hint=error.hint) from None

    def dumped(self, file: IO[bytes]) -> None:
        """Load a database in its portable form.

        The times of adding are kept, and so is the order of the documents, but their ids may be
        others. No secret of a recipe is needed. Documents before an error stay in a database that
        is there.
        """
        if surplus := sorted(self._new.keys() - {"capacity"}):
            raise InputError(
                f"the file has the portable form, found {surplus[0]} of a new database",
                hint="the portable form says how it was created; only its capacity may differ",
            )
        source = portable.Source(file)
        if is_vacant(self._path):
            described = new_header(**{**vars(source.head), **self._new})
            with Environment.build(self._path, *new_database(described)) as environment:
                self._add_dumped(Database(environment), source, _FILLED)
        else:
            with Database.open(self._path) as database:
                self._add_dumped(database, source, BATCH)

    def _add_dumped(self, database: Database, source: portable.Source, together: int) -> None:
        """Add the documents up to the first bad line; then raise what is wrong with that."""
        source.head.require_fit(portable.Head.of(database.preparer.header), str(self._path))
        for line, batch in source.batches(together):
            prepared, bad = database.preparer.sift(batch)
            if bad:
                prepared = prepared[: bad[0][0]]
            self._count(database.add_prepared(prepared))
            for place, error in bad:
                raise InputError(f"line {line + place}: {error}", hint=error.hint)

    def array(self, source: str, key_file: str | None, first_key: int | None) -> None:
        """Add the rows of an array, under keys from a file or by their numbers."""
        array = read_array(source)
        if key_file is not None and first_key is not None:
            raise InputError(
                "found a file of keys and a first key", hint="give the keys in one way only"
            )
        first = first_key or 0
        if first + len(array) > 1 << 64:
            raise InputError(
                f"found {len(array):,} rows to number from {first} on, expected keys below 2**64",
                hint="give a smaller first key",
            )
        given = _read_keys(key_file) if key_file else None
        named = given is not None and not isinstance(given, np.ndarray)
        with self._database("text" if named else "integer", len(array)) as database:
            if given is None and first_key is None and len(database):
                raise InputError(
                    f"{self._path} holds documents, and the keys of further ones aren't given",
                    hint="give the key of the first row, or a file of keys",
                )
            keys: Any = given
            if given is None:
                keys = np.arange(first, first + len(array), dtype=np.uint64)
            elif named:
                keys = [parse_key(key, database.keys) for key in given]
            self._add(database, keys, array)

    def columns(self, files: list[Path]) -> None:
        """Add the documents of Parquet files, as `fpdb.integrations.spark` computed them."""
        written = read_columns(files[0])
        if is_vacant(self._path) and written.sketch is not None:
            self._new.setdefault("sketch", written.sketch)
        with self._database(written.keys, 0) as database:
            if written.recipe_id not in (None, database.recipe.id):
                raise RecipeMismatchError(
                    f"{self._path} has the recipe {database.recipe.id}, found fingerprints by the "
                    f"recipe {written.recipe_id}",
                    hint="load them into a database that is created with that recipe",
                )
            for path in files:
                for batch in column_batches(path, written.names):
                    self._add_columns(database, str(path), batch)

    def _add_columns(self, database: Database, source: str, batch: Any) -> None:
        """Add the rows of a batch: bare fingerprints at once, the others as documents."""
        numbers = words_of(batch["fingerprint"])
        known = batch["fingerprint"].is_valid().to_numpy(zero_copy_only=False)
        if "sketch" not in batch.schema.names or database.sketch is None:
            self._add(database, batch["key"].filter(known).to_pylist(), numbers[known])
            batch, numbers = batch.filter(~known), numbers[~known]
        documents = []
        for row, number in zip(
            batch.to_pylist(), to_ints(numbers, database.plan.bits), strict=True
        ):
            missing = row.pop("fingerprint") is None
            problem = row.pop("problem", None)
            if missing and not row.get("digest"):
                self._refuse(f"{source}: {row['key']}", InputError(problem or "no fingerprint"))
            else:
                documents.append(
                    Document(**row, fingerprint=None if missing else number, short=missing)
                )
        self._count(database.add_many(documents))

    def records(self, source: str, reading: Reading) -> None:
        """Add the keys and fingerprints of records, as many at a time as the memory holds."""
        if os.path.isdir(source):
            raise InputError(f"{source} is a directory, expected a file")
        if reading.fingerprint_field is None:
            reading = dataclasses.replace(reading, fingerprint_field="fingerprint")
        records = read_records(source, reading, progress=self._count_bytes)
        with self._database("text", 0) as database:
            while rows := self._take(records, database):
                self._store(database, rows)

    def _take(self, records: Iterator[Record | BadRecord], database: Database) -> list[_Row]:
        rows: list[_Row] = []
        for record in records:
            try:
                rows.append(_row(record, database))
            except InputError as error:
                self._refuse(record.source, error)
            if len(rows) * _RECORD_BYTES >= self._memory:
                break
        return rows

    def _store(self, database: Database, rows: list[_Row]) -> None:
        """Add rows; one that can't be added costs only itself."""
        keys, fingerprints, sources = zip(*rows, strict=True)
        try:
            self._add(database, keys, fingerprints)
        except InputError as error:
            if len(rows) == 1:
                self._refuse(sources[0], error)
                return
            half = len(rows) // 2
            self._store(database, rows[:half])
            self._store(database, rows[half:])

    def _add(self, database: Database, keys: Any, fingerprints: Any) -> None:
        before = len(database)
        changed = database.add_fingerprints(keys, fingerprints, memory=self._memory)
        added = min(max(len(database) - before, 0), changed)
        self.counts.records += len(fingerprints)
        self.counts.statuses.update(
            added=added, replaced=changed - added, unchanged=len(fingerprints) - changed
        )
        self._show()

    def _count(self, results: Iterator[Added]) -> None:
        """Count documents as they are added, and report the counts."""
        for added in results:
            self.counts.records += 1
            self.counts.statuses[added.status] += 1
        self._show()

    def _show(self) -> None:
        if self.on_progress:
            self.on_progress(self.counts)

    def _refuse(self, source: str, error: InputError) -> None:
        self.counts.records += 1
        self.counts.bad += 1
        if self._strict:
            raise InputError(f"{source}: {error}", hint=error.hint or "leave strict out to skip it")
        if self.on_bad:
            self.on_bad(Bad(source, str(error), error.hint))

    def _count_bytes(self, count: int) -> None:
        self.counts.bytes_read += count
        self._show()

    @contextlib.contextmanager
    def _database(self, keys: str, count: int) -> Iterator[Database]:
        """Open the database, or build one that appears at its path when the block ends."""
        new = self._new
        if is_vacant(self._path):
            wanted = {"keys": keys, "capacity": max(count, _CAPACITY), **new}
            with Database.build(self._path, **wanted) as database:
                yield database
            return
        with Database.open(self._path, recipe=new.get("recipe"), k=new.get("k")) as database:
            stored = {"keys": database.keys, "sketch": database.sketch, "plan": database.plan}
            for name in new.keys() & stored.keys():
                if new[name] not in (None, stored[name]):
                    raise RecipeMismatchError(
                        f"{self._path} was created with {name}={stored[name]}, "
                        f"found {name}={new[name]}",
                        hint=f"leave {name} out, or create another database",
                    )
            yield database


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


def _row(record: Record | BadRecord, database: Database) -> _Row:
    if isinstance(record, BadRecord):
        raise InputError(record.reason)
    if record.key is None or record.fingerprint is None:
        raise InputError("found no key or no fingerprint")
    if record.fingerprint >> database.plan.bits:
        raise InputError(f"found a fingerprint of more than {database.plan.bits} bits")
    return parse_key(record.key, database.keys), record.fingerprint, record.source


def is_array(path: str) -> bool:
    """Return whether a file, or what comes through standard input, is an array that numpy wrote."""
    if path != "-":
        return path.lower().endswith(_SUFFIX)
    stream = sys.stdin.buffer
    return isinstance(stream, io.BufferedReader) and stream.peek(len(_MAGIC)).startswith(_MAGIC)


def _require_header(path: str) -> None:
    if path == "-":
        begin = sys.stdin.buffer.peek(12)[:12] if hasattr(sys.stdin.buffer, "peek") else b""
    else:
        with open(path, "rb") as file:
            begin = file.read(12)
    size = int.from_bytes(begin[8 : 10 if begin[6:7] == b"\x01" else 12], "little")
    if size > _LARGEST_HEADER:
        raise ValueError("no array has such a header")


def read_array(path: str) -> NDArray[Any]:
    """Read an array; one in a file is read when its parts are needed."""
    try:
        _require_header(path)
        if path == "-":
            found = np.load(io.BytesIO(sys.stdin.buffer.read()), allow_pickle=False)
        else:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"{path} isn't there", hint="check the path") from None
    except OSError as error:
        raise InputError(
            f"{path} can't be read: {error.strerror}", hint="check the path and its rights"
        ) from None
    except (ValueError, EOFError, OverflowError, MemoryError, SyntaxError, TokenError):
        raise InputError(
            f"{path} can't be read as an array, or is one of objects",
            hint="numpy.save writes such a file from an array of numbers",
        ) from None
    array: NDArray[Any] = found
    if not array.ndim:
        raise InputError(
            f"{path} holds a single value, expected an array", hint="numpy.save(path, array)"
        )
    return array
