"""What decodes Parquet and Arrow files, in a child process that may be ended.

pyarrow trusts much of what a file says: changed bytes can end the process, and a few kilobytes can
unfold to any size. So each file has its memory and its processor time, and its rows leave the
process in blocks of a bounded size.
"""

import functools
import json
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpdb.io.records import Reading, UnfitError, shorten
from fpdb.io.streams import StreamError
from fpdb.io.tables import Named, header_reason

if TYPE_CHECKING:
    import pyarrow

# What decoding may take besides the file, for each byte that a text may have: 256 MiB for 2 MiB.
MEMORY_A_BYTE = 128
SECONDS = 30.0
SECONDS_A_MEGABYTE = 5.0

# Rows and bytes of a block.
_ROWS = 1000
_BYTES = 1 << 22
# Rows that a file may have, for a start and for each byte: nulls and repeated values take hardly
# any room in a file, but all the time of the process that makes records of them.
_MOST_ROWS = 1_000_000
_MOST_ROWS_A_BYTE = 64
# Rows of nested values that are decoded together, whose size only shows then.
_NESTED_ROWS = 16
# Rows of a row group that are read together, fewer each time that memory doesn't suffice. The
# sizes in the file don't say it: a repeated value is stored once.
_ROOM = 1 << 25
_FEW_ROWS = (16, 1)
# Without a buffer, all of a row group's pages would be read at once.
_BUFFER = 1 << 20
# Those that are loaded at once.
_LOADED = 1 << 16
_LOADED_BYTES = 1 << 24
# What `fpdb.integrations.spark` notes in the schema.
_NOTED = ("recipe_id", "sketch")
_PLAIN = (str, int, float, type(None))


@dataclass(frozen=True)
class ColumnFile:
    """A file of columns, and what is read of it.

    `rows` are those of `reading`; the `schema` says what `fpdb.integrations.spark` wrote, and
    `fingerprints` are those that it wrote, of the columns `names`, with or without sketches.
    """

    path: str
    form: Literal["Parquet", "Arrow"]
    part: Literal["rows", "schema", "fingerprints"]
    reading: Reading = field(default_factory=Reading)
    names: tuple[str, ...] = ()
    sketched: bool = False

    @property
    def memory(self) -> int:
        """The bytes that decoding it may take."""
        return MEMORY_A_BYTE * max(self.reading.max_bytes, Reading.max_bytes)

    @property
    def seconds(self) -> float:
        """The processor time that decoding it may take."""
        return SECONDS + SECONDS_A_MEGABYTE * os.path.getsize(self.path) / (1 << 20)


@dataclass
class RowBlock:
    """Rows as lists of plain values, one for each column.

    `first` is the number of the first one. `unfit` says why rows can't be used, and `replaced` has
    those whose text is no UTF-8.
    """

    first: int
    count: int
    unfit: dict[int, str]
    names: list[str] = field(default_factory=list)
    columns: list[list[Any]] = field(default_factory=list)
    replaced: set[int] = field(default_factory=set)

    def rows(self) -> Iterator[Named]:
        """Yield the rows by the names of the columns."""
        rows = zip(*self.columns, strict=True) if self.columns else iter([()] * self.count)
        for place, values in enumerate(rows):
            replaced = place in self.replaced
            reason = self.unfit.get(place)
            found = dict(zip(self.names, values, strict=True)) if reason is None else reason
            yield self.first + place, found, replaced


class FingerprintBlock(NamedTuple):
    """Keys with bare fingerprints; other documents as fields, with theirs, which `known` has.

    `unfit` says by their numbers why rows can't be used.
    """

    keys: Any
    fingerprints: NDArray[np.uint64]
    others: list[dict[str, Any]]
    numbers: NDArray[np.uint64]
    known: list[bool]
    unfit: dict[int, str]


class SparkSchema(NamedTuple):
    """The names of columns, the kind of keys, and the recipe and kind of sketches if noted."""

    names: list[str]
    keys: str
    recipe_id: str | None
    sketch: str | None


class Decoder:
    """Decodes files in the child: a file as the item begins it, None goes on with it.

    Each call returns a block, or None after the last one.
    """

    def __init__(self) -> None:
        self._blocks: Iterator[Any] = iter(())
        self._form = ""

    def __call__(self, file: ColumnFile | None) -> Any:
        """Return the next block of a file, or raise StreamError, or a MemoryError."""
        block = None
        try:
            if file is not None:
                self._form = file.form
                _limit(file)
                self._blocks = _READERS[file.part](file)
            block = next(self._blocks, None)
        except StreamError:
            raise
        except MemoryError:
            raise MemoryError from None  # that of pyarrow would import it where it is unpickled
        except Exception as error:  # whatever damage leads to
            reason = str(error).partition("\n")[0][:200] or type(error).__name__
            raise unreadable(self._form, reason) from None
        finally:
            if block is None:
                self._blocks = iter(())
                signal.setitimer(signal.ITIMER_PROF, 0)
        return block


def unreadable(form: str, reason: str) -> StreamError:
    """Return the error that the rest of a file can't be read."""
    return StreamError(f"can't be read as a complete {form} file: {reason}")


@functools.cache
def _used() -> int:
    """Import what reads files; return the bytes of data that this process then has."""
    # Before pyarrow is loaded: an allocation beyond the limit of the system's allocator is an
    # error, and its own allocators may have reserved memory already.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * resource.getpagesize()


def _limit(file: ColumnFile) -> None:
    # A file that is mapped isn't data.
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = _used() + file.memory
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard < 0 else min(most, hard), hard))
    signal.setitimer(signal.ITIMER_PROF, file.seconds)


def _row_blocks(file: ColumnFile) -> Iterator[RowBlock]:
    opened = _parquet if file.form == "Parquet" else _arrow
    names, batches = opened(file, functools.partial(_needed, file.reading))
    if reason := header_reason(tuple(names), file.reading):
        raise StreamError(reason)
    yield from row_blocks(batches, file.reading, validate=file.form == "Arrow")


def _require_plausible(file: ColumnFile, rows: int) -> None:
    most = _MOST_ROWS + _MOST_ROWS_A_BYTE * os.path.getsize(file.path)
    if rows > most:
        raise unreadable(file.form, f"it says that it has {rows:,} rows, too many for its size")


def _needed(reading: Reading, names: list[str]) -> list[str]:
    """Return which columns are needed to make records."""
    if "*" in reading.kept:
        return names
    needed = {*reading.keys, *reading.kept}
    needed.update(name for _, choice in reading.required() for name in choice)
    return [name for name in names if name in needed]


Batches = Iterable["pyarrow.RecordBatch"]
Choice = Callable[[list[str]], list[str]]


def _arrow(file: ColumnFile, choose: Choice) -> tuple[list[str], Batches]:
    """Open a file in the format of files or of streams."""
    import pyarrow
    from pyarrow import ipc

    # If it is cut meanwhile, that ends this process; but batches may be larger than its memory.
    source = pyarrow.memory_map(file.path)

    def opened(**options: Any) -> Any:
        source.seek(0)
        try:
            return ipc.open_file(source, options=ipc.IpcReadOptions(use_threads=False, **options))
        except pyarrow.ArrowInvalid:
            source.seek(0)
            return ipc.open_stream(source, options=ipc.IpcReadOptions(use_threads=False))

    reader = opened()
    names = list(reader.schema.names)
    chosen = set(choose(names))
    fields = [place for place, name in enumerate(names) if name in chosen]
    if isinstance(reader, ipc.RecordBatchFileReader):
        batches = _file_batches(reader, fields, lambda: opened(included_fields=fields))
    else:
        batches = (batch.select(fields) for batch in reader)
    return names, _counted(file, batches)


def _file_batches(reader: Any, fields: list[int], projecting: Callable[[], Any]) -> Batches:
    """Read batches where they are mapped; of large ones that are packed, only some columns."""
    for number in range(reader.num_record_batches):
        try:
            batch = reader.get_batch(number).select(fields)
        except MemoryError:
            batch = projecting().get_batch(number)
        yield batch


def _counted(file: ColumnFile, batches: Batches) -> Batches:
    """Yield batches; raise StreamError before one that says that it has far too many rows."""
    count = 0
    for batch in batches:
        count += batch.num_rows
        _require_plausible(file, count)
        yield batch


def _parquet(file: ColumnFile, choose: Choice, most: int = _ROWS) -> tuple[list[str], Batches]:
    """Open a Parquet file, to read N rows at a time at most."""
    from pyarrow import parquet

    reader = parquet.ParquetFile(file.path, buffer_size=_BUFFER, pre_buffer=False)
    _require_plausible(file, reader.metadata.num_rows)
    names = list(reader.schema_arrow.names)
    return names, _counted(file, _parquet_batches(reader, choose(names), most))


def _parquet_batches(file: Any, names: list[str], most: int) -> Iterator["pyarrow.RecordBatch"]:
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        fitting = _ROOM * max(about.num_rows, 1) // max(about.total_byte_size, 1)
        read = 0
        first = max(1, min(most, fitting))
        for rows in (first, *(few for few in _FEW_ROWS if few < first)):
            try:
                skip = read
                for batch in file.iter_batches(
                    rows, row_groups=[group], columns=names, use_threads=False
                ):
                    new = batch.slice(min(skip, batch.num_rows))
                    skip -= batch.num_rows - new.num_rows
                    read += new.num_rows
                    if new.num_rows:
                        yield new
                break
            except MemoryError:
                if rows == 1:
                    raise


def row_blocks(batches: Batches, reading: Reading, *, validate: bool = False) -> Iterator[RowBlock]:
    """Yield the rows of batches as plain values, a bounded number of rows and bytes at a time."""
    first, largest = 1, reading.max_bytes
    for batch in batches:
        columns = [_Decoded(name, batch[place]) for place, name in enumerate(batch.schema.names)]
        if validate:
            for column in columns:
                column.validate()
        start = 0
        while rest := batch.num_rows - start:
            count, unfit = _fitting(columns, start, min(rest, _ROWS), largest)
            block = RowBlock(first, count, unfit)
            values: dict[str, list[Any]] = {}
            # The size of nested values shows when they are decoded, and says how many rows fit.
            for column in sorted(columns, key=lambda column: not column.nested):
                values[column.name] = column.values(start, block, largest)
                block.count = min(block.count, len(values[column.name]))
            block.names = batch.schema.names
            block.columns = [values[name][: block.count] for name in block.names]
            yield block
            start += block.count
            first += block.count


def _fitting(
    columns: "list[_Decoded]", start: int, count: int, largest: int, room: int = _BYTES
) -> tuple[int, dict[int, str]]:
    """Return how many rows fit into a block, at least one, and which of them are too large."""
    sizes = np.zeros(count, np.int64)
    for column in columns:
        sizes += column.sizes(start, count)
    excess = sizes > largest
    total = np.cumsum(np.where(excess, 0, sizes))
    fitting = max(1, int(np.searchsorted(total, room, "right")))
    return fitting, dict.fromkeys(np.flatnonzero(excess[:fitting]).tolist(), _excess(largest))


def _excess(largest: int) -> str:
    return f"holds more than {largest} bytes in one record"


class _Decoded:
    """A column of a batch, whose values are taken a few at a time."""

    def __init__(self, name: str, array: Any) -> None:
        import pyarrow
        from pyarrow import types

        if isinstance(array, pyarrow.ExtensionArray):
            array = array.storage
        kind = array.type
        self.name = name
        self.nested = _is_nested(kind)
        self._array = array
        # A text may be no UTF-8, but its bytes can always be taken.
        self._bytes = array.view(_raw(kind))
        self._lengths: NDArray[np.int64] | None = None  # of the dictionary
        is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
        self._plain = is_number or types.is_string(kind) or types.is_large_string(kind)

    def validate(self) -> None:
        """Raise an error of pyarrow if what the file says of the column can't be right."""
        self._bytes.validate(full=True)

    def sizes(self, start: int, count: int) -> NDArray[np.int64]:
        """Return how many bytes rows have; zeros for numbers, and for nested values."""
        from pyarrow import types

        if self.nested:
            return np.zeros(count, np.int64)
        if not types.is_dictionary(self._bytes.type):
            return _lengths(self._bytes.slice(start, count))
        if self._lengths is None:
            self._lengths = np.append(_lengths(self._bytes.dictionary), 0)
        places = self._bytes.indices.slice(start, count).cast("int64").fill_null(-1)
        found: NDArray[np.int64] = self._lengths[places.to_numpy(zero_copy_only=False)]
        return found

    def values(self, start: int, block: RowBlock, largest: int) -> list[Any]:
        """Return the values of a block as JSON could hold them; of nested ones, those that fit.

        Rows that are unfit are left out, and those that prove to be so are noted.
        """
        values: list[Any] = [None] * block.count
        step = _NESTED_ROWS if self.nested else block.count
        room = _BYTES
        for at in range(0, block.count, step):
            end = min(at + step, block.count)
            spans = [(at, end)]
            if any(at <= place < end for place in block.unfit):
                spans = [(at, at + 1) for at in range(at, end) if at not in block.unfit]
            for span in spans:
                room -= self._fill(values, start, span, block, largest)
            if room < 0:
                return values[:end]
        return values

    def _fill(
        self, values: list[Any], start: int, span: tuple[int, int], block: RowBlock, largest: int
    ) -> int:
        """Decode some rows, by themselves if together they can't be; return the size of nested."""
        at, end = span
        try:
            found, broken, size = self._decoded(start + at, end - at, largest)
        except Exception as error:  # e.g. a time that Python can't express
            if end - at > 1:
                each = ((row, row + 1) for row in range(at, end))
                return sum(self._fill(values, start, one, block, largest) for one in each)
            block.unfit[at] = str(error)
            if not isinstance(error, UnfitError):
                what = str(error) or "it takes more memory than it may"
                block.unfit[at] = f"holds {shorten(self.name)}, which can't be read: {what:.200}"
            return 0
        values[at:end] = found
        block.replaced.update(at + row for row in broken)
        return size

    def _decoded(self, start: int, count: int, largest: int) -> tuple[list[Any], set[int], int]:
        """Return the values of rows, which of them are no UTF-8, and the size of nested ones."""
        array, raw = self._array.slice(start, count), self._bytes.slice(start, count)
        if self.nested:
            values = list(map(_as_json, raw.to_pylist()))
            sizes = [_json_size(value) for value in values]
            if max(sizes, default=0) > largest:
                raise UnfitError(_excess(largest))
            return values, set(), sum(sizes)
        return *_flat(array, raw, plain=self._plain), 0


def _json_size(value: Any) -> int:
    return 0 if value is None else len(json.dumps(value, ensure_ascii=False).encode())


def _flat(array: Any, raw: Any, *, plain: bool) -> tuple[list[Any], set[int]]:
    import pyarrow
    from pyarrow import types

    kind = array.type
    if types.is_dictionary(kind):
        array, raw = array.dictionary_decode(), raw.dictionary_decode()
    elif types.is_timestamp(kind) and kind.unit == "ns":
        # Python's times end at microseconds.
        array = array.cast(pyarrow.timestamp("us", kind.tz), safe=False)
    try:
        values = array.to_pylist()
        if plain:
            return values, set()
    except UnicodeDecodeError:
        values = raw.to_pylist()
    replaced: set[int] = set()
    for row, value in enumerate(values):
        if isinstance(value, bytes):
            try:
                values[row] = value.decode()
            except UnicodeDecodeError:
                values[row] = value.decode(errors="replace")
                replaced.add(row)
        elif not isinstance(value, _PLAIN):
            values[row] = _as_json(value)
    return values, replaced


def _is_nested(kind: Any) -> bool:
    """Return whether the size of values shows only when they are decoded."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return types.is_dictionary(kind.value_type) or _is_nested(kind.value_type)
    return bool(types.is_nested(kind) or types.is_run_end_encoded(kind))


def _raw(kind: Any) -> Any:
    """Return a type with bytes for texts, of the same layout."""
    import pyarrow
    from pyarrow import types

    def inner(field: Any) -> Any:
        return field.with_type(_raw(field.type))

    makers: tuple[tuple[Callable[[Any], bool], Callable[[], Any]], ...] = (
        (types.is_string, pyarrow.binary),
        (types.is_large_string, pyarrow.large_binary),
        (types.is_string_view, pyarrow.binary_view),
        (types.is_dictionary, lambda: pyarrow.dictionary(kind.index_type, _raw(kind.value_type))),
        (types.is_struct, lambda: pyarrow.struct([inner(field) for field in kind])),
        (types.is_map, lambda: pyarrow.map_(inner(kind.key_field), inner(kind.item_field))),
        (types.is_fixed_size_list, lambda: pyarrow.list_(inner(kind.value_field), kind.list_size)),
        (types.is_list, lambda: pyarrow.list_(inner(kind.value_field))),
        (types.is_large_list, lambda: pyarrow.large_list(inner(kind.value_field))),
        (types.is_list_view, lambda: pyarrow.list_view(inner(kind.value_field))),
        (types.is_large_list_view, lambda: pyarrow.large_list_view(inner(kind.value_field))),
    )
    return next((make() for matches, make in makers if matches(kind)), kind)


def _lengths(array: Any) -> NDArray[np.int64]:
    """Return how many bytes each value has; zeros if it isn't made of bytes."""
    from pyarrow import compute, types

    kind = array.type
    lengths: NDArray[np.int64]
    if types.is_binary_view(kind):
        # 16 bytes each, of which the first four are the length.
        views = np.frombuffer(array.buffers()[1], np.int32)[::4]
        lengths = views[array.offset : array.offset + len(array)].astype(np.int64)
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        found = compute.binary_length(array).cast("int64").fill_null(0)
        lengths = found.to_numpy(zero_copy_only=False)
        return lengths
    return np.zeros(len(array), np.int64)


def _as_json(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(_as_json(name)): _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_as_json, value))
    return str(value)


def _schema(file: ColumnFile) -> Iterator[SparkSchema]:
    """Yield what the columns are, if the fingerprints are signed words."""
    from pyarrow import parquet, types

    schema = parquet.read_schema(file.path)
    if not {"key", "fingerprint"} <= set(schema.names):
        return
    kind = schema.field("fingerprint").type
    if not (types.is_int64(kind) or types.is_struct(kind)):
        return
    noted = (schema.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata", b"{}")
    fields = {field["name"]: field for field in json.loads(noted).get("fields", [])}
    note = fields.get("fingerprint", {}).get("metadata", {}).get("fpdb", {})
    said = [found if isinstance(found := note.get(name), str) else None for name in _NOTED]
    keys = "integer" if types.is_integer(schema.field("key").type) else "text"
    yield SparkSchema(schema.names, keys, *said)


def _fingerprints(file: ColumnFile) -> Iterator[FingerprintBlock]:
    """Yield bare fingerprints, many at a time, and what has more than that as documents."""
    from pyarrow import compute

    largest, first = file.reading.max_bytes, 1
    _, batches = _parquet(file, lambda names: [n for n in file.names if n in names], _LOADED)
    for batch in batches:
        columns = [_Decoded(name, batch[name]) for name in batch.schema.names]
        others = [column.name for column in columns if column.name != "fingerprint"]
        start = 0
        while rest := batch.num_rows - start:
            count, unfit = _fitting(columns, start, rest, largest, _LOADED_BYTES)
            some = batch.slice(start, count)
            if unfit:
                some = some.take([row for row in range(count) if row not in unfit])
            bare = some["fingerprint"].is_valid()
            other = some if file.sketched else some.filter(compute.invert(bare))
            some = some.slice(0, 0) if file.sketched else some.filter(bare)
            yield FingerprintBlock(
                _keys_of(some["key"]),
                _words_of(some["fingerprint"]),
                other.select(others).to_pylist(),
                _words_of(other["fingerprint"]),
                other["fingerprint"].is_valid().to_pylist(),
                {first + row: reason for row, reason in unfit.items()},
            )
            start += count
            first += count


def _keys_of(column: Any) -> Any:
    from pyarrow import types

    if types.is_integer(column.type) and not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    return column.to_pylist()


def _words_of(column: Any) -> NDArray[np.uint64]:
    """Return fingerprints that are stored as signed words; nulls become 0."""
    from pyarrow import types

    words = column.flatten() if types.is_struct(column.type) else [column]
    arrays = [word.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) for word in words]
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=-1)


_READERS: dict[str, Callable[[ColumnFile], Iterator[Any]]] = {
    "rows": _row_blocks,
    "schema": _schema,
    "fingerprints": _fingerprints,
}
