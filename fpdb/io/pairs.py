"""Read a table of pairs that are known: two keys, and how alike their documents are."""

import re
from collections.abc import Iterator
from pathlib import PurePath

from fpdb.errors import InputError
from fpdb.io import streams
from fpdb.io.streams import StreamError
from fpdb.io.tables import csv_rows, tsv_rows
from fpdb.models import LARGEST_TEXT

_LABELS = {
    "1": True,
    "true": True,
    "duplicate": True,
    "0": False,
    "false": False,
    "different": False,
}
_SHARE = re.compile(r"[01]?\.[0-9]{1,20}|[0-9](?:\.[0-9]{1,20})?e-?[0-9]{1,3}")


def read_pairs(path: str, largest: int = LARGEST_TEXT) -> Iterator[tuple[str, str, float | bool]]:
    """Read a TSV or CSV file of keys in pairs; each row tells a similarity, or a yes or no.

    The third column holds a Jaccard similarity with a decimal point, or a label: 1, true or
    duplicate, and 0, false or different. The first row may name the columns instead. Standard
    input ("-") is TSV.
    """
    rows_of = csv_rows if PurePath(streams.unpacked_name(path)).suffix == ".csv" else tsv_rows
    try:
        streams.check(path)
        with streams.opened(path) as stream:
            rows = rows_of(streams.lines(stream, largest), largest)
            for place, (number, row, _) in enumerate(rows):
                pair = _pair(row)
                if isinstance(pair, str) and (place or isinstance(row, str) or len(row) != 3):
                    raise InputError(
                        f"{path}:{number}: {pair}",
                        hint="give key, key and a similarity such as 0.85, or 1 and 0",
                    )
                if not isinstance(pair, str):
                    yield pair
    except StreamError as error:
        raise InputError(f"{path} {error}", hint=error.hint) from None


def _pair(row: list[str] | str) -> tuple[str, str, float | bool] | str:
    """Give the pair of a row, or say why it has none."""
    if isinstance(row, str):
        return row
    if len(row) != 3:
        return f"found {len(row)} columns, expected 3"
    one, other, written = row
    word = written.strip().lower()
    if word in _LABELS:
        return one, other, _LABELS[word]
    if _SHARE.fullmatch(word) and 0 <= float(word) <= 1:
        return one, other, float(word)
    return f"found {written[:40]!r}, expected a similarity from 0.0 to 1.0, or a label"
