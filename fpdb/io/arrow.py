"""Records of Parquet and Arrow: files, which a child process decodes, and tables in memory."""

import importlib.util
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Self

from fpdb.errors import InputError, MissingExtraError, WorkerError
from fpdb.io.decoding import ColumnFile, Decoder, FingerprintBlock, row_blocks, unreadable
from fpdb.io.records import Reading
from fpdb.io.streams import StreamError, named
from fpdb.io.tables import Named, header_reason
from fpdb.processes import KeptWorkers

_GROUP = 50_000
# What `fpdb.integrations.spark.fingerprint` writes.
_COLUMNS = ("key", "fingerprint", "digest", "characters", "sketch", "problem")


def require() -> None:
    """Raise an error if pyarrow isn't installed, which isn't imported for that."""
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError(
            "Parquet and Arrow are read and written by the package pyarrow, which isn't installed",
            hint="pip install 'fpdb[arrow]'",
        )


def file_rows(form: Literal["Parquet", "Arrow"], path: str, reading: Reading) -> Iterator[Named]:
    """Read the rows of a file, and of them only the columns that are needed.

    An Arrow file may be in the format of files or of streams.
    """
    for block in _decoded(ColumnFile(os.path.abspath(path), form, "rows", reading)):
        yield from block.rows()


_decoders = KeptWorkers(Decoder(), require)


def _decoded(file: ColumnFile) -> Iterator[Any]:
    """Yield what a child process makes of a file; it makes the next block meanwhile."""
    worker = _decoders.take()
    answered = False
    try:
        block = worker.call(file)
        while block is not None:
            worker.send(None)
            yield block
            block = worker.receive()
        answered = True
    except StreamError:
        answered = True
        raise
    except MemoryError:
        reason = f"it takes more than {file.memory >> 20} MiB of memory"
        raise unreadable(file.form, reason) from None
    except WorkerError:
        if worker.gave_up:
            raise
        killer = -(worker.exit_code or 0)
        reason = "the process that read it ended"
        if killer == signal.SIGPROF:
            reason = f"it takes more than {file.seconds:.0f} seconds of processor time"
        elif killer > 0:
            name = signal.Signals(killer).name
            reason = f"it killed the process that read it by {name}: {signal.strsignal(killer)}"
        raise unreadable(file.form, reason) from None
    finally:
        if answered:
            _decoders.keep(worker)
        else:
            worker.kill()
            worker.close()


def table_rows(table: Any, reading: Reading) -> Iterator[Named]:
    """Read the rows of a table in memory, of any library with the Arrow interface."""
    require()
    import pyarrow

    if hasattr(table, "__arrow_c_stream__"):
        batches = pyarrow.RecordBatchReader.from_stream(table)
    elif hasattr(table, "__arrow_c_array__"):
        batches = pyarrow.Table.from_batches([pyarrow.record_batch(table)]).to_reader()
    else:
        raise InputError(
            f"found {table!r:.40}, expected a table",
            hint="a DataFrame of pandas or polars, or a table or reader of pyarrow",
        )
    if reason := header_reason(tuple(batches.schema.names), reading):
        yield 0, reason, False
        return
    for block in row_blocks(batches, reading):
        yield from block.rows()


class TableWriter:
    """Writes rows to a Parquet file, 50,000 at a time."""

    def __init__(self, file: IO[bytes], columns: Mapping[str, str]) -> None:
        require()
        import pyarrow

        self._pyarrow = pyarrow
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


@dataclass(frozen=True)
class Columns:
    """Parquet files from Spark: their columns, kinds of keys and of sketches, and the recipe."""

    files: list[Path]
    names: tuple[str, ...]
    keys: str
    recipe_id: str | None
    sketch: str | None

    def blocks(self, *, sketched: bool) -> Iterator[tuple[Path, FingerprintBlock]]:
        """Yield the columns in blocks, each with the file that it is from."""
        for path in self.files:
            file = ColumnFile(
                os.path.abspath(path),
                "Parquet",
                "fingerprints",
                names=self.names,
                sketched=sketched,
            )
            for block in _decoded(file):
                yield path, block


def find_columns(source: str) -> Columns | None:
    """Return the columns of a Parquet file or directory whose fingerprints are signed words."""
    path = Path(source)
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files or files[0].suffix != ".parquet" or not files[0].is_file():
        return None
    with named(source):
        found = list(_decoded(ColumnFile(os.path.abspath(files[0]), "Parquet", "schema")))
    if not found:
        return None
    schema = found[0]
    names = tuple(name for name in _COLUMNS if name in schema.names)
    return Columns(files, names, schema.keys, schema.recipe_id, schema.sketch)
