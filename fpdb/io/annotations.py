"""Fields that a record gets of the one that stays in its place: as bytes in a line, as columns."""

import csv
import io
import json
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from fpdb.errors import InputError
from fpdb.io.records import json_object
from fpdb.models import Key

# Whole numbers of a column are smaller.
_LARGEST = 1 << 63
LINE_END, JSON_SPACE = b"\r\n", b" \t\r\n"


class Annotation(NamedTuple):
    """The key of the record that stays, which may be the same one; and how near another one is."""

    kept_key: Key
    similarity: float | None = None
    own_share: float | None = None


FIELDS = Annotation._fields


def require_free(names: Iterable[str], where: str) -> None:
    """Raise InputError if there is a field already that an annotated copy gets."""
    for name in sorted(set(FIELDS).intersection(names)):
        raise InputError(
            f"{where} has a field {name!r}, which an annotated copy gets",
            hint="rename it, or leave it out",
        )


def have_numbered_keys(annotations: Iterable[Annotation]) -> bool:
    """Return whether a column of numbers has room for all keys, and there is one."""
    fits = False
    for annotation in annotations:
        key = annotation.kept_key
        fits = type(key) is int and -_LARGEST <= key < _LARGEST
        if not fits:
            break
    return fits


def annotated_object(line: bytes, added: Annotation, place: str) -> bytes:
    """Return a line of JSON with more fields at the end of its object; one without stays."""
    names = _names_in(line)
    if names is None:
        return line
    require_free(names, place)
    end = len(line.rstrip(JSON_SPACE)) - 1
    before = line[:end]
    comma = b"" if before.rstrip(JSON_SPACE).endswith(b"{") else b", "
    fields = json.dumps(added._asdict())[1:-1].encode()
    return b"".join([before, comma, fields, line[end:]])


def _names_in(line: bytes) -> Iterable[str] | None:
    """Return those names of `FIELDS`, or all, that an object has; None if a line is none."""
    try:
        values = _parser().decode(line)
        return [name for name in FIELDS if getattr(values, name)]
    except (ValueError, TypeError, RecursionError):  # json.loads takes more
        fields = json_object(line)
        return None if isinstance(fields, str) else fields


@cache
def _parser() -> Any:
    """Return the decoder of the fields in a JSON object, each as its bytes; others are skipped."""
    import msgspec  # which only records of JSON need

    fields = [(name, msgspec.Raw, msgspec.Raw()) for name in FIELDS]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", fields, gc=False))


def csv_row(cells: Iterable[object], delimiter: str) -> bytes:
    """Return a row of CSV, without its end, whose cells are quoted where they have to be."""
    row = io.StringIO()
    # Of the line ends in a cell, only those of the writer are quoted.
    csv.writer(row, delimiter=delimiter, lineterminator="\r\n").writerow(cells)
    return row.getvalue()[:-2].encode()


def annotated_row(lines: bytes, added: Iterable[object], delimiter: str, *, quoted: bool) -> bytes:
    """Return a row of a table with more cells at its end; raise InputError if one can't be there.

    In CSV, cells are `quoted` where they have to be.
    """
    end = len(lines.rstrip(LINE_END))
    if quoted:
        return b"".join([lines[:end], csv_row(["", *added], delimiter), lines[end:]])
    plain = ["" if value is None else str(value) for value in added]
    for cell in plain:
        is_cut = cell.startswith('"') and cell.count('"') % 2  # as it is read
        if is_cut or any(sign in cell for sign in (delimiter, "\n", "\r")):
            raise InputError(
                f"the key {cell[:40]!r} can't be in a table where nothing is quoted",
                hint="write CSV, JSON lines or Parquet",
            )
    return b"".join([lines[:end], delimiter.join(["", *plain]).encode(), lines[end:]])
