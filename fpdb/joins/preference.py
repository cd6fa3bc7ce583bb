"""Which of several similar documents stays."""

import contextlib
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError

_OTHERS = "*"


@dataclass(frozen=True)
class Preference:
    """Which of several documents stays: the one with the largest value, and the first of these.

    "first" has no values, "longest" counts characters. Others make them of a field: "newest:FIELD"
    takes dates or numbers, "source:FIELD=a,b,*" an `order` of sources, where the asterisk stands
    for all others, which come last without it.
    """

    kind: str
    field: str = ""
    order: tuple[str, ...] = ()

    @classmethod
    def of(cls, keep: str) -> "Preference":
        """Parse a preference.

        Raises:
            InputError: It is none of these.
        """
        kind, colon, field = str(keep).partition(":")
        listed, order = "", tuple[str, ...]()
        if kind == "source":
            field, _, listed = field.partition("=")
            order = tuple(listed.split(","))
        named = {*order} - {_OTHERS, ""}
        valid = {
            "first": not colon,
            "longest": not colon,
            "newest": field,
            "source": field and named and len({*order} - {""}) == len(order),
        }
        if not valid.get(kind):
            raise InputError(
                f"found keep {keep!r}, expected first, longest, newest:FIELD or source:FIELD=A,B,*",
                hint="newest:date keeps the one with the latest date; source:site=a,b one of a, "
                "else one of b, else any; each value once, without commas",
            )
        return cls(kind, field, order)

    @property
    def dated(self) -> str:
        """The field of a date, or nothing."""
        return self.field if self.kind == "newest" else ""

    @property
    def _missing(self) -> float:
        """The value of a document without the field: older than all, or after other sources."""
        return -math.inf if self.dated else -0.5

    def value(self, content: object) -> float:
        """Return the value of a document, given the content of its field."""
        if content in (None, ""):
            return self._missing
        if self.dated:
            return _time_of(self.field, content)
        name = content if isinstance(content, str) else json_of(content)
        rank = self.order.index(_OTHERS) if _OTHERS in self.order else len(self.order)
        return float(rank - self.order.index(name)) if name in self.order else 0.0

    def has_field(self, values: NDArray[np.float64]) -> bool:
        """Return whether a document had the field, given the values; or none is needed."""
        return not self.field or bool((values != self._missing).any())

    def require_field(self, *, there: bool) -> None:
        """Raise InputError unless a document had the field, if one is needed."""
        if self.field and not there:
            what, kind = ("a date or a number", "date") if self.dated else ("a value", "source")
            raise InputError(
                f"no record has {what} in {self.field!r}",
                hint=f"name the field of the {kind}, or keep the first record",
            )


def json_of(value: object) -> str:
    """Return a value as JSON, such that two are equal if they are as JSON; 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True, default=str)


def _time_of(name: str, value: object) -> float:
    """Return a date or a number as a number."""
    if isinstance(value, int | float):
        return float(value)
    with contextlib.suppress(ValueError, OverflowError):
        return float(str(value))
    with contextlib.suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(str(value).strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    raise InputError(
        f"{name} is {str(value)[:40]!r}, expected a number, or a date such as 2026-11-23"
    )
