"""What decodes Parquet files, in a child process that may be ended.

pyarrow trusts much of what a file says: changed bytes can end the process, and a few kilobytes can
unfold to any size. So each file has its memory and its processor time, and its rows leave the
process in blocks of a bounded size.
"""

import contextlib
import ctypes
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Places
from fpdb.io.records import Reading, shorten
from fpdb.io.streams import StreamError
from fpdb.io.tables import FieldColumns, header_reason
from fpdb.processes import limit

if TYPE_CHECKING:
    import pyarrow

# What decoding may take besides the file, for each byte that a text may have: 256 MiB for 2 MiB.
MEMORY_A_BYTE = 128
SECONDS = 30.0
SECONDS_A_MEGABYTE = 5.0

# Rows and bytes of a block of rows, and of fingerprints.
_ROWS, _BYTES = 1000, 1 << 21
_LOADED, _LOADED_BYTES = 1 << 16, 1 << 24
# Rows that are copied together, if they aren't too large.
_COPIED, _COPIED_BYTES = 1 << 10, 1 << 24
# Rows that a file may have, for a start and for each byte: nulls and repeated values take hardly
# any room in a file, but all the time of the process that makes records of them.
_MOST_ROWS = 1_000_000
_MOST_ROWS_A_BYTE = 64
# Rows that are decoded together if their size only shows then.
_FEW = 16
# Bytes of a row group that are read together, as far as the file says how many they are.
_ROOM = 1 << 25
# Without a buffer, all of a row group's pages would be read at once.
_BUFFER = 1 << 20
_PLAIN = (str, int, float, type(None))
# An option of glibc's mallopt, and the bytes from which on a block is mapped.
_MMAP_THRESHOLD, _LARGE = -3, 1 << 23
# What `fpdb.integrations.spark.fingerprint` writes.
_SPARK = ("key", "fingerprint", "digest", "characters", "sketch", "problem")


@dataclass(frozen=True)
class ColumnFile:
    """A Parquet file, and the function of this module that reads it, block by block."""

    path: str
    read: "Callable[[ColumnFile], Iterator[Any]]"
    reading: Reading = field(default_factory=Reading)

    @property
    def memory(self) -> int:
        """The bytes that decoding it may take."""
        return MEMORY_A_BYTE * max(self.reading.max_bytes, Reading.max_bytes)

    @property
    def seconds(self) -> float:
        """The processor time that decoding it may take."""
        return SECONDS + SECONDS_A_MEGABYTE * os.path.getsize(self.path) / (1 << 20)

    def failure(self, reason: str) -> StreamError:
        """Return the error that the rest of the file can't be read."""
        return StreamError(f"can't be read as a complete Parquet file: {reason}")


class FingerprintBlock(NamedTuple):
    """Keys with bare fingerprints; and other documents as fields with their numbers, as "row"."""

    keys: Any
    fingerprints: NDArray[np.uint64]
    documents: list[dict[str, Any]]


class PrintSchema(NamedTuple):
    """The kinds of fingerprints and keys, and the recipe and similarity in the metadata.

    Fingerprints are words, "signed" ones, as Spark has them, or "unsigned", or else "other".
    """

    form: str
    sketched: bool
    keys: str
    recipe_id: str | None
    similarity: float | None


def file_blocks(file: ColumnFile) -> Iterator[Any]:
    """Yield the blocks of a file in the child; raise StreamError at damage."""
    _load()
    limit(file.memory, file.seconds)
    try:
        yield from file.read(file)
    except (StreamError, MemoryError):
        raise
    except Exception as error:  # whatever damage leads to
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise file.failure(reason) from None


@functools.cache
def _load() -> None:
    # Before pyarrow is loaded: an allocation beyond the limit of the system's allocator is an
    # error, and its own allocators may have reserved memory already.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    with contextlib.suppress(AttributeError):  # of another C library
        # Large blocks go back to the system, so that the heap isn't full of gaps for the next file;
        # those of usual columns don't, since to get them again takes a tenth of the time.
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE)
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)


def columns(
    file: ColumnFile, *, marks: bytes | None = None
) -> Iterator[tuple[FieldColumns, float]]:
    """Yield the rows of a file, or those whose bits are set, as the columns that records need.

    With each block comes the share of the file that was read, or 0 where it isn't known.
    """
    needed, reader = file.reading.needed(), _opened(file)
    names = list(reader.schema_arrow.names)
    if reason := header_reason(tuple(names), file.reading):
        raise StreamError(reason)
    chosen = names if "*" in needed else [name for name in names if name in needed]
    read, rows = 0, reader.metadata.num_rows
    batches: Batches = _batches(file, reader, chosen, _ROWS)
    if marks is not None:
        batches = (batch for batch, _ in _only(batches, marks))
    for block in column_blocks(batches, file.reading):
        read += len(block.numbers)
        yield block, read / rows if rows else 0.0
        del block  # before the next one is decoded


Batches = Iterable["pyarrow.RecordBatch"]


def _opened(file: ColumnFile) -> Any:
    from pyarrow import parquet

    reader = parquet.ParquetFile(file.path, buffer_size=_BUFFER, pre_buffer=False)
    _require_plausible(file, reader.metadata.num_rows)
    return reader


def _require_plausible(file: ColumnFile, rows: int) -> None:
    most = _MOST_ROWS + _MOST_ROWS_A_BYTE * os.path.getsize(file.path)
    if rows > most:
        raise file.failure(f"it says that it has {rows:,} rows, too many for its size")


def _batches(file: ColumnFile, reader: Any, names: list[str], most: int) -> Batches:
    """Yield N rows at a time at most; raise StreamError before one that makes far too many."""
    count = 0
    for group in range(reader.metadata.num_row_groups):
        for batch in _group(reader, group, names, most):
            count += batch.num_rows
            _require_plausible(file, count)
            yield batch


def _group(file: Any, number: int, names: list[str], most: int) -> Batches:
    """Read a row group, fewer rows at a time if memory doesn't suffice.

    The sizes in the file don't say it: a repeated value is stored once.
    """
    about = file.metadata.row_group(number)
    fitting = _ROOM * max(about.num_rows, 1) // max(about.total_byte_size, 1)
    read = 0
    for rows in sorted({max(1, min(most, fitting)), _FEW, 1}, reverse=True):
        skip = read
        options = {"row_groups": [number], "columns": names, "use_threads": False}
        try:
            for batch in file.iter_batches(rows, **options):
                new = batch.slice(min(skip, batch.num_rows))
                skip -= batch.num_rows - new.num_rows
                read += new.num_rows
                if new.num_rows:
                    yield new
        except MemoryError:
            if rows == 1:
                raise
        else:
            return


def column_blocks(batches: Batches, reading: Reading) -> Iterator[FieldColumns]:
    """Yield batches as plain values, a bounded number of rows and bytes at a time."""
    number = 1
    for batch in batches:
        unfolds = any(_unfolds(column.type) for column in batch.columns)
        for part in _cut(batch, _FEW if unfolds else _ROWS, _BYTES):
            measured = unfolds or _size_of(part) > reading.max_bytes
            yield _field_columns(part, number, reading.max_bytes if measured else None)
            number += part.num_rows


def _cut(batch: "pyarrow.RecordBatch", rows: int, size: int) -> Batches:
    """Halve rows until they are few and have few bytes, or one is alone."""
    count = batch.num_rows
    if count > 1 and (count > rows or _size_of(batch) > size):
        yield from _cut(batch.slice(0, count // 2), rows, size)
        yield from _cut(batch.slice(count // 2), rows, size)
    elif count:
        yield batch


def _size_of(batch: "pyarrow.RecordBatch") -> int:
    """Return the most bytes that rows have, without columns whose values may unfold."""
    from pyarrow import types

    size = 0
    for column in map(as_bytes, batch.columns):
        if types.is_binary_view(column.type):
            # 16 bytes each, the first four of which are the length.
            lengths = np.frombuffer(column.buffers()[1], np.int32)[::4]
            size += int(lengths[column.offset :][: len(column)].clip(0).sum(dtype=np.int64))
        elif not _unfolds(column.type):
            size += column.nbytes
    return size


def _unfolds(kind: Any) -> bool:
    """Return whether the size of values shows only when they are decoded."""
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)
    tests = types.is_nested, types.is_dictionary, types.is_run_end_encoded
    return any(test(kind) for test in tests)


def _field_columns(batch: "pyarrow.RecordBatch", number: int, largest: int | None) -> FieldColumns:
    """Decode rows from a number on; one by one if they can't be decoded together."""
    count = batch.num_rows
    fields = FieldColumns(range(number, number + count), {}, {})
    sizes = np.zeros(count, np.int64)
    replaced: set[int] = set()
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values, broken = _values(array)
            if largest:
                sizes += np.fromiter(map(_json_size, values), np.int64, count)
        except Exception as error:  # e.g. a time that Python can't express
            fields.columns.clear()
            what = str(error) or "it takes more memory than it may"
            reason = f"holds {shorten(name)}, which can't be read: {what:.200}"
            for place in range(count):
                single = batch.slice(place, 1)
                alone = (reason, False) if count == 1 else _field_columns(single, 1, largest).row(0)
                fields.unusual[place] = alone
            return fields
        fields.columns[name] = values
        replaced |= broken
    fields.unusual.update({place: (fields.row(place)[0], True) for place in replaced})
    for place in (sizes > largest).nonzero()[0].tolist() if largest else ():
        fields.unusual[place] = f"holds more than {largest} bytes in one record", False
    for place in fields.unusual:  # their values aren't sent twice, or at all if they are too large
        for values in fields.columns.values():
            values[place] = None
    return fields


def _values(array: Any) -> tuple[list[Any], set[int]]:
    """Return values as JSON could hold them, and which of them aren't UTF-8."""
    import pyarrow
    from pyarrow import types

    array = getattr(array, "storage", array)  # without the name that an extension gives to its type
    # pyarrow decodes no views together, as polars has them for categories.
    if types.is_dictionary(array.type) and not types.is_string_view(array.type.value_type):
        array = array.dictionary_decode()
    elif types.is_timestamp(array.type) and array.type.unit == "ns":
        # Python's times end at microseconds.
        array = array.cast(pyarrow.timestamp("us", array.type.tz), safe=False)
    try:
        values = array.to_pylist()
    except UnicodeDecodeError:
        values = as_bytes(array).to_pylist()
    replaced: set[int] = set()
    for row, value in enumerate(values):
        if isinstance(value, _PLAIN):
            continue
        values[row] = text = _as_json(value)
        if isinstance(value, bytes) and text.encode() != value:
            replaced.add(row)
    return values, replaced


def as_bytes(array: Any) -> Any:
    """Return texts, which may be no UTF-8, as bytes, and other values as they are."""
    import pyarrow

    array = getattr(array, "storage", array)  # of an extension
    raw = {
        pyarrow.string(): pyarrow.binary(),
        pyarrow.large_string(): pyarrow.large_binary(),
        pyarrow.string_view(): pyarrow.binary_view(),
    }
    kind = raw.get(array.type)
    return array.view(kind) if kind else array


def _json_size(value: Any) -> int:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return len(text) if text.isascii() else len(text.encode())


def _as_json(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(_as_json(name)): _as_json(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_as_json, value))
    return str(value)


def schema(file: ColumnFile) -> Iterator[PrintSchema]:
    """Yield the kinds of the columns, if there are keys and fingerprints."""
    from pyarrow import parquet, types

    columns = parquet.read_schema(file.path)
    if not {"key", "fingerprint"} <= set(columns.names):
        return
    kind = columns.field("fingerprint").type
    keys = "integer" if types.is_integer(columns.field("key").type) else "text"
    signed = types.is_int64(kind) or types.is_struct(kind)
    unsigned = types.is_uint64(kind) and keys == "integer"
    noted = (columns.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata", b"{}")
    fields = {field["name"]: field for field in json.loads(noted).get("fields", [])}
    note = fields.get("fingerprint", {}).get("metadata", {}).get("fpdb", {})
    recipe_id, similarity = note.get("recipe_id"), note.get("similarity")
    yield PrintSchema(
        "signed" if signed else "unsigned" if unsigned else "other",
        signed and "sketch" in columns.names,
        keys,
        recipe_id if isinstance(recipe_id, str) else None,
        similarity if isinstance(similarity, float | int) else None,
    )


def table_schema(file: ColumnFile) -> Iterator[tuple["pyarrow.Schema", str]]:
    """Yield the schema of a file with its metadata, and its codec."""
    reader = _opened(file)
    about = reader.metadata
    filled = about.num_row_groups and about.num_columns
    codec = about.row_group(0).column(0).compression if filled else "SNAPPY"
    yield reader.schema_arrow, "NONE" if codec == "UNCOMPRESSED" else codec


def marked(
    file: ColumnFile, *, marks: bytes, count: int
) -> Iterator[tuple["pyarrow.RecordBatch", float]]:
    """Yield the rows of a file of N rows whose bits are set.

    With each batch comes the share of the file that was read.
    """
    reader, read = _opened(file), 0
    every = _batches(file, reader, reader.schema_arrow.names, _COPIED)
    cut = (part for batch in every for part in _cut(batch, _COPIED, _COPIED_BYTES))
    for batch, read in _only(cut, marks):
        if batch.num_rows and read <= count:
            yield batch, read / count
    if read != count:
        raise StreamError(f"has {read:,} rows, and had {count:,} when it was read first")


def _only(batches: Batches, marks: bytes) -> Iterator[tuple["pyarrow.RecordBatch", int]]:
    """Yield of each batch the rows whose bits are set, and how many rows were read."""
    import pyarrow

    wanted = np.unpackbits(np.frombuffer(marks, np.uint8)).astype(bool)
    read = 0
    for batch in batches:
        chosen = wanted[read : read + batch.num_rows]
        chosen = np.pad(chosen, (0, batch.num_rows - len(chosen)))
        read += batch.num_rows
        yield batch.filter(pyarrow.array(chosen)) if chosen.any() else batch.slice(0, 0), read


def fingerprints(file: ColumnFile, *, sketched: bool) -> Iterator[tuple[FingerprintBlock, float]]:
    """Yield bare fingerprints, many at a time, and other rows as fields.

    If they are `sketched`, no fingerprint is bare. With each block comes the share of the file that
    was read.
    """
    from pyarrow import compute, types

    reader, read = _opened(file), 0
    chosen = [name for name in _SPARK if name in reader.schema_arrow.names]
    for batch in _batches(file, reader, chosen, _LOADED):
        for part in _cut(batch, _LOADED, _LOADED_BYTES):
            is_bare = compute.and_(part["fingerprint"].is_valid(), _usable(part["key"]))
            bare = part.slice(0, 0) if sketched else part.filter(is_bare)
            rows = part if sketched else part.filter(compute.invert(is_bare))
            places = np.flatnonzero(~is_bare.to_numpy(zero_copy_only=False) | sketched)
            documents = _documents(rows, read + 1 + places)
            read += part.num_rows
            keys = bare["key"]
            whole = types.is_integer(keys.type) and not keys.null_count
            names = keys.to_numpy(zero_copy_only=False) if whole else keys.to_pylist()
            block = FingerprintBlock(names, _words_of(bare["fingerprint"]), documents)
            yield block, read / reader.metadata.num_rows


def _usable(keys: Any) -> Any:
    """Mark the keys that a database may take."""
    from pyarrow import compute, types

    if types.is_signed_integer(keys.type):
        return compute.greater_equal(keys, 0).fill_null(False)  # noqa: FBT003
    if types.is_string(keys.type):
        return compute.not_equal(keys, "").fill_null(False)  # noqa: FBT003
    return keys.is_valid()


def _documents(batch: "pyarrow.RecordBatch", rows: Places) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = batch.to_pylist()
    numbers = _words_of(batch["fingerprint"]).tolist()
    for fields, number, row in zip(documents, numbers, rows.tolist(), strict=True):
        fields["row"] = row
        if fields["fingerprint"] is not None:
            is_wide = isinstance(number, list)
            fields["fingerprint"] = number[0] << 64 | number[1] if is_wide else number
    return documents


def _words_of(column: Any) -> NDArray[np.uint64]:
    """Return fingerprints that are stored as signed words; nulls become 0."""
    from pyarrow import types

    words = column.flatten() if types.is_struct(column.type) else [column]
    arrays = [word.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) for word in words]
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=-1)
