"""Which of several similar documents stays."""

import contextlib
import dataclasses
import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from fpdb.errors import InputError
from fpdb.progress import announce

_OTHERS = "*"
_NAMED = 10  # of the sources that the order lacks


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
    _unordered: set[str] = dataclasses.field(default_factory=set, compare=False, repr=False)

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
        if name not in self.order and len(self._unordered) < _NAMED:
            self._unordered.add(name)
        return self._rank(name) if name in self.order else 0.0

    def _rank(self, source: str) -> float:
        """Return the value of a document of a source in the order."""
        last = self.order.index(_OTHERS) if _OTHERS in self.order else len(self.order)
        return float(last - self.order.index(source))

    def check(self, values: NDArray[np.float64], noun: str = "record") -> None:
        """Raise InputError if no document has the field; announce sources that none is from.

        `values` are of all documents that the noun names.
        """
        absent = [name for name in self.order if name != _OTHERS and self._rank(name) not in values]
        if self.field and not (values != self._missing).any():
            what, kind = ("a date or a number", "date") if self.dated else ("a value", "source")
            raise InputError(
                f"no {noun} has {what} in {self.field!r}",
                hint=f"name the field of the {kind}, or keep the first record",
            )
        if absent:
            names, unordered = (
                ", ".join(map(repr, sources)) for sources in (absent, sorted(self._unordered))
            )
            announce(f"no {noun} has {names} in {self.field!r}; others have {unordered or 'none'}")


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
        f"{name} is {str(value)[:40]!r}, expected a number, or a date such as 2026-11-23",
        hint="name the field of the date, or keep the first record",
    )
