"""Records of Parquet files, which a child process decodes, and of tables in memory."""

import importlib.util
import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Self, cast

import numpy as np

from fpdb.arrays import Marks
from fpdb.errors import InputError, MissingExtraError
from fpdb.io import decoding
from fpdb.io.annotations import FIELDS, Annotation, require_free
from fpdb.io.decoding import ColumnFile, FingerprintBlock, PrintSchema
from fpdb.io.edits import Edit
from fpdb.io.records import Reading
from fpdb.io.streams import UNWATCHED, Watch, named
from fpdb.io.tables import FieldColumns, header_reason
from fpdb.processes import CallError, KeptWorkers
from fpdb.threads import overlapped

_GROUP = 50_000
# Rows of a Dataset of Hugging Face that are read together.
_DATASET_ROWS = 1000
# A row group of a copy has about this many rows, or bytes in memory.
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 1 << 26


def require() -> None:
    """Raise an error if pyarrow isn't installed, which isn't imported for that."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError(
            "Parquet and tables need the package pyarrow, which isn't installed",
            hint="pip install 'fpdb-store[arrow]'",
        )


def blocks_of_columns(
    path: str, reading: Reading, watch: Watch, marks: Marks | None = None
) -> Iterator[FieldColumns]:
    """Read the needed columns of a file, some rows at a time; or of marked rows only."""
    bits = None if marks is None else np.packbits(marks).tobytes()
    read = partial(decoding.columns, marks=bits)
    return _shared(ColumnFile(path, read, reading), watch)


def _shared(file: ColumnFile, watch: Watch) -> Iterator[Any]:
    """Yield the blocks that a child process makes of a file, and count the bytes of the file."""
    size, done = os.path.getsize(file.path), 0
    for block, share in _decoded(file):
        watch.progress(int(size * share) - done)
        done = int(size * share)
        yield block
    watch.progress(size - done)


_decoders = KeptWorkers(decoding.file_blocks, require)


def _decoded(file: ColumnFile) -> Iterator[Any]:
    """Yield the values that a child process makes of a file; it makes the next one meanwhile."""
    file = replace(file, path=os.path.abspath(file.path))  # for children with another folder
    try:
        yield from _decoders.values(file, file.memory, file.seconds)
    except CallError as error:
        raise file.failure(f"it {error}") from None


def file_schema(path: str) -> tuple[Any, str]:
    """Return the schema of a file and its codec; raise StreamError if it has none."""
    [schema_and_codec] = _decoded(ColumnFile(path, decoding.table_schema))
    return cast("tuple[Any, str]", schema_and_codec)


def marked_batches(path: str, marks: Marks, watch: Watch) -> Iterator[Any]:
    read = partial(decoding.marked, marks=np.packbits(marks).tobytes(), count=len(marks))
    return _shared(ColumnFile(path, read), watch)


def write_batches(file: IO[bytes], schema: Any, codec: str, batches: Iterable[Any]) -> None:
    """Write batches to a file, in row groups of a bounded size."""
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetWriter(file, schema, compression=codec) as writer:

        def write(group: list[Any]) -> None:
            # The batches lack the metadata of their file.
            table = pyarrow.Table.from_batches(group).replace_schema_metadata(schema.metadata)
            writer.write_table(table)

        # One group is packed while the next one is decoded.
        overlapped(write, _row_groups(batches))


def _row_groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        rows, size = sum(part.num_rows for part in held), sum(part.nbytes for part in held)
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield held
            held = []
    if held:
        yield held


def is_table(source: Any) -> bool:
    """Return whether an object is a table of any library, and not merely something to iterate."""
    names = ("__arrow_c_stream__", "__arrow_c_array__")
    return is_dataset(source) or any(hasattr(source, name) for name in names)


def is_split(source: Any) -> bool:
    """Return whether an object is a DatasetDict of Hugging Face: datasets by their names."""
    return isinstance(source, dict) and bool(source) and all(map(is_dataset, source.values()))


def is_dataset(source: Any) -> bool:
    """Return whether an object is a Dataset of Hugging Face, which has no Arrow interface."""
    return all(hasattr(source, name) for name in ("with_format", "column_names", "select"))


def selectable(table: Any) -> tuple[Any, Callable[[Any, Marks], Any]]:
    """Return a table that can be read several times, and the choice of marked rows of one like it.

    One of pandas or polars, of pyarrow, a relation of DuckDB, or a Dataset of Hugging Face becomes
    one of its kind, any other a table of pyarrow.
    """
    if hasattr(table, "iloc"):
        return table, lambda rows, marks: rows.iloc[marks.nonzero()[0]]
    if is_dataset(table):
        return table, lambda rows, marks: rows.select(marks.nonzero()[0])
    library = type(table).__module__.partition(".")[0].removeprefix("_")
    if not (library in ("polars", "pyarrow") and hasattr(table, "filter")):
        require()
        import pyarrow

        source, table = table, pyarrow.table(table)
        if library == "duckdb" and hasattr(source, "query"):
            return table, lambda rows, marks: _related(source, rows.filter(marks))
    return table, lambda rows, marks: rows.filter(marks)


def widened(rows: Any, added: Any) -> Any:
    """Return a table of `selectable`, or a batch, with the columns of a batch of as many rows."""
    import pyarrow

    columns = {name: added[name] for name in added.schema.names}
    if hasattr(rows, "iloc"):
        arrays = {name: column.to_numpy(zero_copy_only=False) for name, column in columns.items()}
        return rows.assign(**arrays)
    if hasattr(rows, "hstack"):  # of polars
        return rows.hstack(type(rows)(added))
    if is_dataset(rows):
        for name, column in columns.items():
            rows = rows.add_column(name, column)
        return rows
    schema = pyarrow.schema([*rows.schema, *added.schema], metadata=rows.schema.metadata)
    return type(rows).from_arrays([*rows.columns, *added.columns], schema=schema)


def edited(rows: Any, names: Iterable[str], edits: Mapping[int, Edit]) -> Any:
    """Return a table of `selectable`, or a batch, with other texts in some rows.

    Each is in the first of some columns that has one.
    """
    if hasattr(rows, "to_batches"):
        batches, first, places = list[Any](), 0, sorted(edits)
        for batch in rows.to_batches():
            last = first + batch.num_rows
            inside = places[bisect_left(places, first) : bisect_left(places, last)]
            batches.append(edited(batch, names, {row - first: edits[row] for row in inside}))
            first = last
        return type(rows).from_batches(batches, rows.schema)
    left, is_batch = dict(edits), hasattr(rows, "set_column")
    there = rows.schema.names if is_batch else list(rows.columns)
    for name in [name for name in names if name in there]:
        column = decoding.as_bytes(rows[name]) if is_batch else rows[name]
        values = column.to_pylist() if is_batch else column.to_list()
        filled = [row for row in left if isinstance(values[row], str | bytes)]
        for row in filled:
            values[row] = _edited_value(values[row], left.pop(row))
        if filled:
            rows = _with_column(rows, name, column, values)
    return rows


def _edited_value(value: str | bytes, edit: Edit) -> str | bytes:
    if isinstance(value, str):
        return edit(value)
    return edit(value.decode(errors="replace")).encode("utf-8", "surrogatepass")


def _with_column(rows: Any, name: str, column: Any, values: list[Any]) -> Any:
    """Return a table, or a batch, with other values in a column; its form before is given."""
    if hasattr(rows, "iloc"):
        categories = getattr(column.dtype, "categories", None)
        kind = column.dtype if categories is None else categories.dtype
        series = type(column)(values, rows.index, kind)
        return rows.assign(**{name: series if categories is None else series.astype("category")})
    if hasattr(rows, "hstack"):  # of polars
        kind = column.dtype
        if type(kind).__name__ == "Enum":
            texts = (value for value in values if value is not None)
            kind = type(kind)(list(dict.fromkeys([*kind.categories, *texts])))
        return rows.with_columns(type(column)(name, values, kind))
    import pyarrow

    at = rows.schema.get_field_index(name)
    array = pyarrow.array(values, column.type)
    kind = rows.schema.field(at).type
    array = array if array.type == kind else array.view(kind)
    return rows.set_column(at, rows.schema.field(at), array)


def annotated_schema(schema: Any, *, numbered_keys: bool) -> Any:
    added = annotation_batch([], numbered_keys=numbered_keys)
    return widened(schema.empty_table(), added).schema


def annotated_batch(batch: Any, annotations: Iterator[Annotation], schema: Any) -> Any:
    """Return a batch with columns of the next annotations, which the schema of a copy has too."""
    numbered_keys = schema.field(FIELDS[0]).type == "int64"
    added = islice(annotations, batch.num_rows)
    return widened(batch, annotation_batch(added, numbered_keys=numbered_keys))


def annotation_batch(annotations: Iterable[Annotation], *, numbered_keys: bool) -> Any:
    """Return annotations as columns of pyarrow: keys are numbers, or all of them texts."""
    require()
    import pyarrow

    keys, *shares = list(zip(*annotations, strict=True)) or [()] * len(FIELDS)
    texts = keys if numbered_keys else list(map(str, keys))
    columns = [
        pyarrow.array(texts, pyarrow.int64() if numbered_keys else pyarrow.string()),
        *(pyarrow.array(column, pyarrow.float64()) for column in shares),
    ]
    return pyarrow.RecordBatch.from_arrays(columns, names=list(FIELDS))


def _related(relation: Any, fpdb_rows: Any) -> Any:
    """Return rows as a relation of DuckDB, with the connection and the types of another."""
    columns = []
    for name, kind in zip(relation.columns, relation.types, strict=True):
        quoted = '"' + name.replace('"', '""') + '"'
        columns.append(f"CAST({quoted} AS {kind}) AS {quoted}")
    columns += fpdb_rows.schema.names[len(columns) :]
    # DuckDB finds the rows by the name of the variable.
    return relation.query("fpdb_relation", f"SELECT {', '.join(columns)} FROM fpdb_rows")  # noqa: S608


def table_columns(
    table: Any, reading: Reading, *, annotated: bool = False
) -> Iterator[FieldColumns]:
    """Read a table in memory, of any library with the Arrow interface, some rows at a time.

    If it will be annotated, it may have no column of these fields.
    """
    require()
    import pyarrow

    batches: Iterable[Any]
    try:
        if is_dataset(table):
            names = table.column_names
            parts = table.with_format("arrow").iter(_DATASET_ROWS)
            batches = (batch for part in parts for batch in part.to_batches())
        elif hasattr(table, "__arrow_c_array__") and not hasattr(table, "__arrow_c_stream__"):
            batch = pyarrow.record_batch(table)
            names, batches = batch.schema.names, [batch]
        else:
            stream = pyarrow.RecordBatchReader.from_stream(table)
            names, batches = stream.schema.names, stream
    except (TypeError, ValueError) as error:  # a column is a stream of Arrow as well
        if hasattr(table, "columns"):
            raise InputError(
                f"the table can't be read: {'; '.join(map(str, error.args))}",
                hint="give each column a name of its own, and values of one type",
            ) from None
        raise InputError(
            f"found {type(table).__name__}, expected a table",
            hint="pass the whole table, not a column of it: a DataFrame of pandas or polars, a "
            "table or reader of pyarrow, or a Dataset of Hugging Face; or dictionaries",
        ) from None
    if reason := header_reason(tuple(names), reading):
        raise InputError(
            f"the table {reason}", hint='name the column: reading=fpdb.Reading(text_field="…")'
        )
    if annotated:
        require_free(names, "the table")
    yield from decoding.column_blocks(batches, reading)


class TableWriter:
    """Writes rows to a Parquet file, 50,000 at a time."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, str]) -> None:
        require()
        import pyarrow

        time = pyarrow.timestamp("s", "UTC")
        self._schema = pyarrow.schema(
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
        import pyarrow

        columns = list(zip(*self._rows, strict=True)) or [()] * len(self._schema)
        self._writer.write_table(pyarrow.table(list(map(list, columns)), schema=self._schema))
        self._rows = []


def print_files(source: str) -> tuple[list[str], PrintSchema] | None:
    """Return the Parquet files of a path that have keys and fingerprints, and their schema."""
    path = Path(source)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or files[0].suffix != ".parquet" or not files[0].is_file():
        return None
    paths = list(map(str, files))
    with named(source):
        schemas = list(_decoded(ColumnFile(paths[0], decoding.schema)))
    return (paths, schemas[0]) if schemas else None


def fingerprint_blocks(
    path: str, watch: Watch = UNWATCHED, *, sketched: bool = False
) -> Iterator[FingerprintBlock]:
    """Yield the columns of such a file in blocks; with sketches, all of them as documents."""
    read = partial(decoding.fingerprints, sketched=sketched)
    return _shared(ColumnFile(path, read), watch)
