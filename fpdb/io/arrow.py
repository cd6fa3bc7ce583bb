"""Records of Parquet and Arrow: files, and tables in memory; a thousand rows at a time."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError, MissingExtraError
from fpdb.io.records import Reading
from fpdb.io.streams import StreamError, named
from fpdb.io.tables import Named, header_reason

if TYPE_CHECKING:
    import pyarrow


_ROWS = 1000
_GROUP = 50_000
# Without a buffer, all of a row group's pages would be read at once.
BUFFER = 1 << 20
# What `fpdb.integrations.spark.fingerprint` writes, and the rows that are read at once.
_COLUMNS = ("key", "fingerprint", "digest", "characters", "sketch", "problem")
_COLUMN_ROWS = 1 << 16
_PLAIN = (str, int, float, type(None))


def require() -> Any:
    """Import pyarrow; the error says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise MissingExtraError(
            "Parquet and Arrow are read and written by the package pyarrow, which isn't installed",
            hint="pip install 'fpdb[arrow]'",
        ) from None
    return pyarrow


def parquet_rows(path: str, reading: Reading) -> Iterator[Named]:
    """Read the rows of a Parquet file, and of them only the columns that are needed."""
    with explained("Parquet"):
        from pyarrow import parquet

        with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            names = file.schema_arrow.names
            needed = {*reading.keys, *reading.kept}
            needed.update(name for _, choice in reading.required() for name in choice)
            wanted = None if "*" in reading.kept else [name for name in names if name in needed]
            batches = file.iter_batches(_ROWS, columns=wanted, use_threads=False)
            yield from _rows(names, batches, reading)


def arrow_rows(path: str, reading: Reading) -> Iterator[Named]:
    """Read the rows of an Arrow file, which may be in the format of files or of streams."""
    with explained("Arrow"):
        pyarrow = require()
        # Not mapped into memory: a file that is cut meanwhile would end the process.
        with pyarrow.OSFile(path) as file:
            try:
                reader = pyarrow.ipc.open_file(file)
                count = reader.num_record_batches
                batches = (reader.get_batch(number) for number in range(count))
            except pyarrow.ArrowInvalid:
                file.seek(0)
                reader = pyarrow.ipc.open_stream(file)
                batches = iter(reader)
            yield from _rows(reader.schema.names, batches, reading)


def table_rows(table: Any, reading: Reading) -> Iterator[Named]:
    """Read the rows of a table in memory, of any library with the Arrow interface."""
    pyarrow = require()
    if hasattr(table, "__arrow_c_stream__"):
        batches = pyarrow.RecordBatchReader.from_stream(table)
    elif hasattr(table, "__arrow_c_array__"):
        batches = pyarrow.Table.from_batches([pyarrow.record_batch(table)]).to_reader()
    else:
        raise InputError(
            f"found {table!r:.40}, expected a table",
            hint="a DataFrame of pandas or polars, or a table or reader of pyarrow",
        )
    return _rows(batches.schema.names, batches, reading)


class TableWriter:
    """Writes rows to a Parquet file, 50,000 at a time."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, str]) -> None:
        self._pyarrow = require()
        time = self._pyarrow.timestamp("s", "UTC")
        self._schema = self._pyarrow.schema(
            [(name, time if kind == "time" else kind) for name, kind in columns.items()]
        )
        self._rows: list[tuple[object, ...]] = []
        self._file = file

    def __enter__(self) -> Self:
        from pyarrow import parquet

        self._writer = parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write()
        self._writer.close()

    def add(self, row: tuple[object, ...]) -> None:
        """Add a row: a value, or None, for each column."""
        self._rows.append(row)
        if len(self._rows) == _GROUP:
            self._write()

    def _write(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(self._schema)
        arrays = [
            self._pyarrow.array(list(values), kind)
            for values, kind in zip(columns, self._schema.types, strict=True)
        ]
        self._writer.write_table(self._pyarrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows = []


@contextlib.contextmanager
def explained(form: str) -> Iterator[None]:
    """Turn what pyarrow raises into a StreamError with what is wrong with the file."""
    pyarrow = require()
    try:
        yield
    except MemoryError:
        raise StreamError(f"is no {form} file, or needs more memory than there is") from None
    except (pyarrow.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise StreamError(f"can't be read as a complete {form} file: {reason}") from None


def _rows(names: list[str], batches: Any, reading: Reading) -> Iterator[Named]:
    if reason := header_reason(tuple(names), reading):
        yield 0, reason, False
        return
    number, largest = 0, reading.max_bytes
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS):
            for found, replaced in _plain_rows(batch.slice(start, _ROWS)):
                number += 1
                if any(_exceeds(value, largest) for value in found.values()):
                    yield number, f"holds more than {largest} bytes in one field", replaced
                else:
                    yield number, found, replaced


def _exceeds(value: Any, largest: int) -> bool:
    return (
        isinstance(value, str)
        and len(value) > largest // 4
        and len(value.encode(errors="replace")) > largest
    )


def _plain_rows(batch: "pyarrow.RecordBatch") -> Iterator[tuple[dict[str, Any], bool]]:
    names = batch.schema.names
    columns, replaced = [], set[int]()
    for column in batch.columns:
        values, broken = _values(column)
        columns.append(values)
        replaced |= broken
    for row in range(batch.num_rows):
        found = {name: values[row] for name, values in zip(names, columns, strict=True)}
        yield found, row in replaced


def _values(column: Any) -> tuple[list[Any], set[int]]:
    """Return a column's values as JSON could hold them, and the rows whose text is no UTF-8."""
    import pyarrow
    from pyarrow import types

    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_timestamp(column.type) and column.type.unit == "ns":
        # Python's times end at microseconds.
        column = column.cast(pyarrow.timestamp("us", column.type.tz), safe=False)
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        large = types.is_large_string(column.type)
        values = column.cast(pyarrow.large_binary() if large else pyarrow.binary()).to_pylist()
    broken: set[int] = set()
    for row, value in enumerate(values):
        if isinstance(value, bytes):
            try:
                values[row] = value.decode()
            except UnicodeDecodeError:
                values[row] = value.decode(errors="replace")
                broken.add(row)
        elif not isinstance(value, _PLAIN):
            values[row] = _as_json(value)
    return values, broken


def _as_json(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_as_json, value))
    return str(value)


@dataclass(frozen=True)
class Columns:
    """Parquet files from Spark: their columns, kinds of keys and of sketches, and the recipe."""

    files: list[Path]
    names: list[str]
    keys: str
    recipe_id: str | None
    sketch: str | None

    def batches(self) -> "Iterator[tuple[Path, pyarrow.RecordBatch]]":
        """Yield the columns in batches, each with the file that it is from."""
        for path in self.files:
            with explained("Parquet"):
                from pyarrow import parquet

                with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
                    options = {"columns": self.names, "use_threads": False}
                    for batch in file.iter_batches(_COLUMN_ROWS, **options):
                        yield path, batch


def find_columns(source: str) -> Columns | None:
    """Return the columns of a Parquet file or directory whose fingerprints are signed words."""
    path = Path(source)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or files[0].suffix != ".parquet" or not files[0].is_file():
        return None
    with named(source), explained("Parquet"):
        from pyarrow import parquet, types

        schema = parquet.read_schema(files[0])
        if not {"key", "fingerprint"} <= set(schema.names):
            return None
        kind = schema.field("fingerprint").type
        if not (types.is_int64(kind) or types.is_struct(kind)):
            return None
        keys = "integer" if types.is_integer(schema.field("key").type) else "text"
        note = (schema.metadata or {}).get(b"org.apache.spark.sql.parquet.row.metadata", b"{}")
        fields = {field["name"]: field for field in json.loads(note).get("fields", [])}
        found = fields.get("fingerprint", {}).get("metadata", {}).get("fpdb", {})
        names = [name for name in _COLUMNS if name in schema.names]
        return Columns(files, names, keys, found.get("recipe_id"), found.get("sketch"))


def words_of(column: Any) -> NDArray[np.uint64]:
    """Return fingerprints that are stored as signed words; nulls become 0."""
    from pyarrow import types

    words = column.flatten() if types.is_struct(column.type) else [column]
    arrays = [word.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64) for word in words]
    return arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=-1)
