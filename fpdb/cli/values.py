"""Values as the command line reads and writes them: counts, ages, keys, times, documents."""

import re
from datetime import UTC, datetime
from typing import Any

import typer

import fpdb

_COUNT = re.compile(r"([0-9]{1,3}(?:[,_][0-9]{3})+|[0-9]{1,19})(?:(?:\*\*|\^)([0-9]{1,2}))?")
_LARGEST_COUNT = 1 << 63
_BYTES = re.compile(r"([0-9]{1,19})([KMGT]?)")
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_LEAST_BYTES = 1 << 20
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])")


def parse_count(given: str | int) -> int:
    """Read a whole number that may be large: 8000000000, 8,000,000,000, 8e9 or 2**33."""
    text = str(given)
    try:
        if found := _COUNT.fullmatch(text):
            number: int = int(re.sub("[,_]", "", found[1])) ** int(found[2] or 1)
        else:
            # A limit first: so no huge power of ten is ever a whole number.
            real = float(text)
            number = int(real) if 1 <= real <= _LARGEST_COUNT and real.is_integer() else 0
    except ValueError:
        number = 0
    if not 1 <= number <= _LARGEST_COUNT:
        raise typer.BadParameter(f"{text!r} is no whole number from 1, such as 50000, 8e9 or 2**33")
    return number


def parse_bytes(given: str | int) -> int:
    """Read a number of bytes such as 512M or 4G."""
    text = str(given)
    found = _BYTES.fullmatch(text)
    number = int(found[1]) << _SHIFTS[found[2]] if found else 0
    if not _LEAST_BYTES <= number < _LARGEST_COUNT:
        raise typer.BadParameter(f"{text!r} is no number of bytes from 1M, such as 512M or 4G")
    return number


def parse_age(text: str) -> int:
    """Read a time such as 30d, 12h or 2w, in seconds."""
    found = _AGE.fullmatch(text)
    if not found or not int(found[1]):
        raise typer.BadParameter(f"{text!r} is no time such as 45s, 90m, 12h, 30d or 2w")
    return int(found[1]) * _SECONDS[found[2]]


def size(given: float) -> str:
    """Write a number of bytes, as 1.5 GB."""
    units = ["PB", "TB", "GB", "MB", "kB", "B"]
    while given >= 1000 and len(units) > 1:
        given /= 1000
        units.pop()
    return f"{given:.3g} {units[-1]}"


def duration(seconds: float) -> str:
    """Write a time, as 20 µs or 3.5 s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def iso(seconds: int) -> str:
    """Write a time as ISO 8601, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def near_dict(near: fpdb.Match | fpdb.Pair) -> dict[str, Any]:
    """Give a match or a pair as plain data; its Jaccard similarity only if it was verified."""
    plain = near._asdict()
    if near.jaccard is None:
        del plain["jaccard"]
    return plain


def jaccard_cells(near: fpdb.Match | fpdb.Pair) -> tuple[str, ...]:
    """Give the further column of what was verified."""
    return () if near.jaccard is None else (f"{near.jaccard:.4f}",)


def as_dict(document: fpdb.Document, bits: int) -> dict[str, Any]:
    """Give a stored document as plain data."""
    number = document.fingerprint
    return {
        "key": document.key,
        "id": document.id,
        "fingerprint": None if number is None else f"{number:0{bits // 4}x}",
        "short": document.short,
        "added": iso(document.added or 0),
        "meta": document.meta,
    } | ({} if document.sketch is None else {"sketch": document.sketch.hex()})
