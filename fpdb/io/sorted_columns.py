"""Read columns out of directories of Parquet files, whose names in their order give the rows'."""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.io.arrow import BUFFER, explained
from fpdb.io.streams import StreamError

# Rows that are read at once: of numbers, and where texts or bytes are among the columns.
ROWS = 1 << 16
_LONG_ROWS = 1 << 13

_SUFFIX = ".parquet"
# What begins so is of the engine that wrote the files, as `_SUCCESS` and `.part-0.crc`.
_HIDDEN = ("_", ".")

Numbers = NDArray[np.uint64]


class Kind(Enum):
    """What a column may hold; the bits of a whole number count, with a sign or without."""

    NUMBER = "whole numbers of 64 bits"
    TEXT = "texts"
    BYTES = "bytes"


@dataclass(frozen=True)
class Part:
    """Some rows of a file: columns of numbers, in which 0 stands for a null, and of other values.

    `absent` says of a column with nulls where they are.
    """

    path: Path
    first: int
    rows: int
    numbers: dict[str, Numbers] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    absent: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    def wrong(self, place: int, what: str, hint: str = "") -> InputError:
        """Make the error for a row that can't be used."""
        return InputError(f"{self.path}, row {self.first + place}: {what}", hint=hint)

    def out_of_order(self, place: int, what: str, *, twice: bool) -> InputError:
        """Make the error for a row that doesn't belong behind the one before it."""
        found = "the same" if twice else "a lower"
        return self.wrong(
            place,
            f"found {found} {what} {'as' if twice else 'than'} in the row before, "
            "expected ascending ones",
            "numbers are ordered without a sign, texts by their bytes in UTF-8, "
            "and files by their names",
        )

    def refuse(self, wrong: NDArray[np.bool_], what: str) -> None:
        """Raise an error for the first row that is wrong, if any is."""
        if wrong.any():
            raise self.wrong(int(wrong.argmax()), what)


def names_in(directory: Path) -> set[str]:
    """Name what is in a directory, but for what engines keep there for themselves."""
    return {path.name for path in _listed(directory)}


def read_columns(
    folder: Path, needed: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None
) -> Iterator[Part]:
    """Read the files of a directory one after the other; columns of other names are refused.

    Needed columns hold no nulls.
    """
    for path in sorted(_listed(folder), key=lambda path: path.name.encode(errors="replace")):
        if path.suffix != _SUFFIX:
            raise InputError(
                f"found {path}, expected files whose names end in {_SUFFIX}",
                hint="names that begin with a dot or an underscore are passed over",
            )
        yield from _read(path, needed, {**needed, **(optional or {})})


def _listed(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if not path.name.startswith(_HIDDEN)]
    except OSError as error:
        raise InputError(
            f"the directory {directory} can't be read: {error.strerror}",
            hint="name a directory of sorted columns",
        ) from None


def _read(path: Path, needed: Mapping[str, Kind], kinds: Mapping[str, Kind]) -> Iterator[Part]:
    long = {name for name, kind in kinds.items() if kind is not Kind.NUMBER}
    first = 1
    for batch in _batches(path, long):
        names = batch.schema.names
        _require_names(path, names, needed, kinds)
        part = Part(path, first, batch.num_rows)
        for name, column in zip(names, batch.columns, strict=True):
            _take(part, name, column, kinds[name], null=name not in needed)
        first += part.rows
        if part.rows:
            yield part


def _batches(path: Path, long: Set[str]) -> Iterator[Any]:
    try:
        with explained("Parquet"):
            from pyarrow import parquet

            with parquet.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
                rows = ROWS if long.isdisjoint(file.schema_arrow.names) else _LONG_ROWS
                yield from file.iter_batches(rows, use_threads=False)
    except StreamError as error:
        raise InputError(f"{path} {error}", hint="write it again") from None


def _require_names(
    path: Path, names: list[str], needed: Mapping[str, Kind], kinds: Mapping[str, Kind]
) -> None:
    good = len(set(names)) == len(names) and needed.keys() <= set(names) <= kinds.keys()
    if not good:
        others = [name for name in kinds if name not in needed]
        also = f", and maybe {', '.join(others)}" if others else ""
        raise InputError(
            f"{path}: found the columns {', '.join(names)}, expected {', '.join(needed)}{also}",
            hint="the documentation of sorted columns says what each of them holds",
        )


def _take(part: Part, name: str, column: Any, kind: Kind, *, null: bool) -> None:
    """Put a column of Arrow into a part."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        absent = column.is_null().to_numpy(zero_copy_only=False)
        if not null:
            raise part.wrong(int(absent.argmax()), f"the {name} is null")
        part.absent[name] = absent
    if types.is_null(column.type):
        column = column.cast(pyarrow.int64() if kind is Kind.NUMBER else pyarrow.binary())
    if not _fits(column.type, kind):
        raise InputError(
            f"{part.path}: found the column {name} of the type {column.type}, "
            f"expected {kind.value}",
            hint="the documentation of sorted columns says what each of them holds",
        )
    if kind is Kind.NUMBER:
        unsigned = types.is_unsigned_integer(column.type)
        column = column.cast(pyarrow.uint64() if unsigned else pyarrow.int64())
        column = column.fill_null(0) if column.null_count else column
        part.numbers[name] = column.to_numpy().view(np.uint64)
        return
    try:
        part.values[name] = column.to_pylist()
    except UnicodeDecodeError:
        raise InputError(f"{part.path}: a {name} isn't in UTF-8", hint="write it again") from None


def _fits(found: Any, kind: Kind) -> bool:
    from pyarrow import types

    checks = {
        Kind.NUMBER: (types.is_integer,),
        Kind.TEXT: (types.is_string, types.is_large_string),
        Kind.BYTES: (types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
    }
    return any(check(found) for check in checks[kind])
