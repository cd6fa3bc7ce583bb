"""Records whose text changes, each written anew in the format in which it was read."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from fpdb.io.annotations import JSON_SPACE, LINE_END
from fpdb.io.records import json_object

Edit = Callable[[str], str]


def edited_object(line: bytes, names: Iterable[str], edit: Edit) -> bytes:
    """Return a line of JSON with another text in the first of some fields that is there.

    The other values stay as they are written; of an object that only json.loads takes, what they
    mean.
    """
    import msgspec  # which only records of JSON need

    end = line[len(line.rstrip(JSON_SPACE)) :]
    try:
        raw = _parser().decode(line)
        fields = {name: msgspec.json.decode(raw[name]) for name in names if name in raw}
    except (ValueError, TypeError, RecursionError):
        loaded = json_object(line)
        if isinstance(loaded, str):
            return line
        return json.dumps(loaded | edited_fields(loaded, names, edit)).encode() + end
    # An edit counts what it cuts, so it isn't tried twice.
    edited = edited_fields(fields, names, edit)
    raw |= {name: msgspec.Raw(msgspec.json.encode(text)) for name, text in edited.items()}
    return b"".join([msgspec.json.encode(raw), end])


def edited_fields(fields: Mapping[str, Any], names: Iterable[str], edit: Edit) -> dict[str, str]:
    """Return the first of some fields that is there, with another text."""
    name = next(name for name in names if fields.get(name) is not None)
    return {name: edit(fields[name])}


@cache
def _parser() -> Any:
    """Return what finds the values in a JSON object, each with its bytes."""
    import msgspec  # which only records of JSON need

    return msgspec.json.Decoder(dict[str, msgspec.Raw])


def edited_row(lines: bytes, column: int, delimiter: str, edit: Edit) -> bytes:
    """Return a row of CSV with another text in a column."""
    end = len(lines.rstrip(LINE_END))
    text = io.StringIO(lines[:end].decode(errors="replace"), newline="")
    [cells] = csv.reader(text, delimiter=delimiter, strict=True)
    cells[column] = edit(cells[column])
    row = io.StringIO()
    # Of the line ends in a cell, only those of the writer are quoted.
    csv.writer(row, delimiter=delimiter, lineterminator="\r\n").writerow(cells)
    return b"".join([row.getvalue()[:-2].encode(), lines[end:]])
