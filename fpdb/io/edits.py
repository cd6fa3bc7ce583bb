"""Records whose text changes, each written anew in the format in which it was read."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from fpdb.io.annotations import JSON_SPACE, LINE_END, csv_row
from fpdb.io.records import json_object

Edit = Callable[[str], str]


def edited_object(line: bytes, names: Iterable[str], edit: Edit) -> bytes:
    """Return a line of JSON with another text in the first of some fields that is there.

    The other values stay as they are written; of an object that only json.loads takes, only their
    meaning does.
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
    """Return the decoder of a JSON object to the bytes of its values."""
    import msgspec  # which only records of JSON need

    return msgspec.json.Decoder(dict[str, msgspec.Raw])


def edited_row(lines: bytes, column: int, delimiter: str, edit: Edit) -> bytes:
    """Return a row of CSV with another text in a column."""
    end = len(lines.rstrip(LINE_END))
    text = io.StringIO(lines[:end].decode(errors="replace"), newline="")
    [cells] = csv.reader(text, delimiter=delimiter, strict=True)
    cells[column] = edit(cells[column])
    return b"".join([csv_row(cells, delimiter), lines[end:]])
