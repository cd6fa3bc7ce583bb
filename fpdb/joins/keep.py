"""Which of several near-duplicates stays: the first, the longest or the newest one."""

import contextlib
import math
from datetime import UTC, datetime

from fpdb.errors import InputError

_NEWEST = "newest:"


def newest_field(keep: str) -> str:
    """Return the field of "newest:FIELD", and nothing for "first" and "longest".

    Raises:
        InputError: It is none of these.
    """
    field = keep.removeprefix(_NEWEST) if str(keep).startswith(_NEWEST) else ""
    if keep not in ("first", "longest") and not field:
        raise InputError(
            f"found keep {keep!r}, expected first, longest or newest:FIELD",
            hint="newest:date keeps the one with the latest date",
        )
    return field


def require_dated(field: str, *, dated: object) -> None:
    """Raise InputError unless a record had a date or a number."""
    if not dated:
        raise InputError(
            f"no record has a date or a number in {field!r}",
            hint="name the field of the date, or keep the first record",
        )


def time_of(name: str, value: object) -> float:
    """Return a date or a number as a number; one that is missing is before all others."""
    if value in (None, ""):
        return -math.inf
    if isinstance(value, int | float):
        return float(value)
    with contextlib.suppress(ValueError, OverflowError):
        return float(str(value))
    with contextlib.suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(str(value).strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    raise InputError(
        f"{name} is {str(value)[:40]!r}, expected a number, or a date such as 2026-11-23"
    )
