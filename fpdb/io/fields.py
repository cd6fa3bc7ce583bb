"""What a record is, and which of the fields that were found mean what."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fpdb.errors import InputError

_KEYS = ("key", "id", "url")
_TEXTS = ("text", "content", "body")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]{1,64}")
_DIGITS = {
    "hex": (16, re.compile(r"[0-9a-fA-F]{1,64}")),
    "decimal": (10, re.compile(r"[0-9]{1,64}")),
}
_KINDS = {
    dict: "an object",
    list: "a list",
    bool: "true or false",
    float: "a fraction",
    int: "a number",
    type(None): "null",
}
# Fails where a database would: at numbers that are not finite and at halves of characters.
_storable = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class Record:
    """What a reader found; nothing is decided yet.

    `source` names the file and the line; `replaced` says that bytes which are no UTF-8 were
    replaced.
    """

    source: str
    key: str | int | None
    text: str | None
    fingerprint: int | None = None
    meta: dict[str, Any] | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record, or a whole file, that can't be used, and why."""

    source: str
    reason: str


@dataclass(frozen=True)
class Fields:
    """Which fields of an object, or columns of a table, mean what.

    - `key`: if not given, the first of "key", "id" and "url" that is there
    - `text`: several are joined by one line feed, in the given order; if not given, the first of
      "text", "content" and "body" that is there, or none when a fingerprint is given
    - `fingerprint`: a field with a ready fingerprint
    - `meta`: further fields to keep; ("*",) keeps all others
    - `fingerprint_base`: how a fingerprint in quotes or in a table is written, "hex" or
      "decimal"; with 0x before it, it is always hex, and a number of JSON is always itself
    - `header`: whether a table's first line names its columns; if not given, it does unless all
      fields are numbers. Columns that are not named are "1", "2" and so on.
    - `keyed`: whether a record must have a key; one without has the key None
    """

    key: str | None = None
    text: tuple[str, ...] = ()
    meta: tuple[str, ...] = ()
    fingerprint: str | None = None
    fingerprint_base: Literal["hex", "decimal"] = "hex"
    header: bool | None = None
    keyed: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.text, str) or isinstance(self.meta, str):
            raise InputError(
                "found a string as text or meta of Fields, expected a tuple of names",
                hint='write text=("content",)',
            )
        if self.fingerprint_base not in _DIGITS:
            raise InputError(
                f"found the fingerprint base {self.fingerprint_base!r}, expected hex or decimal"
            )

    @property
    def numbered(self) -> bool:
        """Whether the fields are columns by their numbers."""
        named = [name for name in (self.key, *self.text, *self.meta, self.fingerprint) if name]
        numbers = [name for name in named if name != "*"]
        return bool(numbers) and all(map(_NUMBER.fullmatch, numbers))

    @property
    def headed(self) -> bool:
        """Whether a table's first line names its columns."""
        return not self.numbered if self.header is None else self.header

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that a key may have."""
        return _KEYS if self.key is None else (self.key,)

    def required(self) -> list[tuple[str, tuple[str, ...]]]:
        """List what a record must hold: what it is, and the names that it may have."""
        needed: list[tuple[str, tuple[str, ...]]] = []
        if self.keyed or self.key is not None:
            needed.append(("key", self.keys))
        needed += [("text", (name,)) for name in self.text]
        if self.fingerprint:
            needed.append(("fingerprint", (self.fingerprint,)))
        elif not self.text:
            needed.append(("text", _TEXTS))
        return needed


class UnfitError(ValueError):
    """What was found can't become a record; says why."""


Pick = Callable[[str, Mapping[str, Any], bool], Record]


def picker(fields: Fields) -> Pick:
    """Make the function that turns the fields of one record into a Record, or raises UnfitError."""
    required = fields.required()
    must = any(what == "key" for what, _ in required)
    texts = [names for what, names in required if what == "text"]
    fingerprints = [names for what, names in required if what == "fingerprint"]
    everything, kept = "*" in fields.meta, set(fields.meta)
    base, digits = _DIGITS[fields.fingerprint_base]

    def pick(source: str, found: Mapping[str, Any], replaced: bool) -> Record:  # noqa: FBT001
        name, key = _first("key", fields.keys, found) if must else _optional(fields.keys, found)
        if key is not None:
            check_key(name, key, replaced)
        used, parts, fingerprint, meta = [name], [], None, None
        for names in texts:
            name, part = _first("text", names, found)
            if type(part) is not str:
                raise UnfitError(f"{_field(name)} holds {_kind(part)}, expected a text")
            parts.append(part)
            used.append(name)
        for names in fingerprints:
            name, value = _first("fingerprint", names, found)
            fingerprint = _fingerprint(name, value, base, digits)
            used.append(name)
        if kept:
            wanted = found.keys() - used if everything else kept
            meta = {name: value for name, value in found.items() if name in wanted} or None
            _check_meta(meta)
        return Record(source, key, "\n".join(parts) if texts else None, fingerprint, meta, replaced)

    return pick


def lacking(what: str, names: Iterable[str], found: Iterable[str]) -> str:
    """Say that none of these names is there, and which there are."""
    there = sorted(found)
    shown = ", ".join(map(shorten, there[:10])) + (", …" if len(there) > 10 else "")
    wanted = " or ".join(map(shorten, names))
    return f"found no {what}: expected the field {wanted}, there are: {shown or 'none'}"


def shorten(text: str) -> str:
    """Quote the beginning of a text that may be long."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def check_key(name: str, key: object, replaced: bool) -> None:  # noqa: FBT001
    """Raise UnfitError if a key isn't one, or isn't the one that was meant."""
    if type(key) is int:
        return
    if type(key) is not str:
        raise UnfitError(f"{_field(name)} holds {_kind(key)}, expected a string or a whole number")
    if not key:
        raise UnfitError(f"{_field(name)} is empty, expected a key")
    if key.isascii():
        return
    # Replaced bytes would make one key of two.
    if (replaced and "\ufffd" in key) or not _is_unicode(key):
        raise UnfitError(f"{_field(name)} is no valid Unicode: {shorten(key)}")


def _first(what: str, names: tuple[str, ...], found: Mapping[str, Any]) -> tuple[str, Any]:
    for name in names:
        value = found.get(name)
        if value is not None:
            return name, value
    raise UnfitError(lacking(what, names, (name for name in found if found[name] is not None)))


def _optional(names: tuple[str, ...], found: Mapping[str, Any]) -> tuple[str, Any]:
    there = (name for name in names if found.get(name) is not None)
    name = next(there, "")
    return name, found.get(name)


def _fingerprint(name: str, value: object, base: int, digits: re.Pattern[str]) -> int:
    if type(value) is int and value >= 0:
        return value
    if type(value) is str:
        if digits.fullmatch(value):
            return int(value, base)
        if _HEX.fullmatch(value):
            return int(value, 16)
    kind = {16: "hex digits, with or without 0x", 10: "decimal digits, or 0x and hex digits"}[base]
    text = shorten(value) if type(value) is str else _kind(value)
    raise UnfitError(f"{_field(name)} holds {text}, expected a fingerprint: up to 64 {kind}")


def _check_meta(meta: dict[str, Any] | None) -> None:
    try:
        _storable(meta).encode()
    except UnicodeEncodeError:
        raise UnfitError("the metadata is no valid Unicode: half of a character") from None
    except ValueError:
        raise UnfitError("the metadata holds a number that is not finite") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(name: str) -> str:
    return f"the field {shorten(name)}"


def _kind(value: object) -> str:
    if type(value) is int and value < 0:
        return "a negative number"
    return _KINDS.get(type(value), "a string")
