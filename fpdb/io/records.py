"""Records, the reading of files into records, and the meaning of their fields."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fpdb.errors import InputError
from fpdb.fingerprint.digits import NOTATIONS, Base, Notation
from fpdb.io.encodings import checked_encoding, few_replaced
from fpdb.io.streams import NOT_DECODED
from fpdb.models import LARGEST_TEXT, MOST_BYTES, Key, require_choice

_KEYS = ("key", "id", "url", "doc_id", "uuid", "编号", "序号")
_TEXTS = ("text", "content", "body", "正文", "内容")
# Files that are named when they are left out.
_MOST_NAMED = 10
_KINDS = {
    dict: "an object",
    list: "a list",
    bool: "true or false",
    float: "a fraction",
    int: "a number",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Record:
    """A document as it was read; `replaced` says that bytes that don't fit were replaced.

    A negative fingerprint is a two's complement, of a width that only its database has.
    """

    source: str
    key: Key | None
    text: str | None
    fingerprint: int | None = None
    meta: dict[str, Any] | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that can't be used, or the rest of a file: where it was read, why, and a cure."""

    source: str
    reason: str
    hint: str = ""
    key: Key | None = None
    is_file: bool = False


class LeftOut(dict[str, list[str]]):
    """The first files that are left out, by the reasons."""

    def add(self, path: str, reason: str) -> None:
        """Take a file; one more than are named shows that there are more."""
        names = self.setdefault(reason, [])
        if len(names) <= _MOST_NAMED:
            names.append(path)

    def named(self) -> Iterator[tuple[str, str]]:
        """Yield the names of files together, and their reason."""
        for reason, names in self.items():
            yield ", ".join(names[:_MOST_NAMED]) + ", …" * (len(names) > _MOST_NAMED), reason


@dataclass(frozen=True)
class Reading:
    """How files become records: their format, which fields mean what, what is HTML, and limits.

    - `format`: one of `FORMATS`; if not given, the suffix decides, and standard input is JSON lines
    - `key_field`: if not given, the first of "key", "id", "url", "doc_id", "uuid", "编号" and
      "序号" that is there
    - `text_field`: several are joined by a line feed; if not given, the first of "text", "content",
      "body", "正文" and "内容" that is there, or none when a fingerprint is given
    - `meta_field`: fields to keep as metadata; "*" keeps all others
    - `fingerprint_field`: a field with a ready fingerprint
    - `base`: how fingerprints in quotes or tables are written, as in `parse_fingerprint`
    - `encoding`: of texts, tables, lines and HTML files; if not given, it is found by what the
      bytes are
    - `delimiter`: what separates the fields of a table; if not given, it is a tab in TSV, and in
      CSV whichever of `,`, `;`, a tab and `|` gives a header with the fields that are wanted
    - `keyed`: whether a record must have a key
    - `html`: "auto" takes the main content of .html files and of what a web archive calls HTML,
      "main" that of all texts, "page" all of the page of all texts; the format "text" takes
      .html files as they are
    - `max_bytes`: the most bytes that a text or a page may have
    - `title_field`, `date_field`, `host_field` and `url_field`: what pages show of a document; if
      not given, the usual names are looked for, such as title, date, source and url, or 标题, 日期,
      来源 and 链接

    The first line of a table names its columns, unless all fields are numbers: then "1" is the
    first column of a table without names.
    """

    format: str | None = None
    key_field: str | None = None
    text_field: str | Sequence[str] = ()
    meta_field: str | Sequence[str] = ()
    fingerprint_field: str | None = None
    base: Base = "hex"
    encoding: str | None = None
    delimiter: str | None = None
    keyed: bool = True
    html: Literal["auto", "main", "page"] = "auto"
    max_bytes: int = LARGEST_TEXT
    title_field: str | None = None
    date_field: str | None = None
    host_field: str | None = None
    url_field: str | None = None

    def __post_init__(self) -> None:
        require_choice("base", self.base, NOTATIONS)
        require_choice("html", self.html, ("auto", "main", "page"))
        if self.encoding is not None:
            object.__setattr__(self, "encoding", checked_encoding(self.encoding))
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise InputError(f"found the delimiter {self.delimiter!r}, expected one character")
        if not 1 <= self.max_bytes <= MOST_BYTES:
            raise InputError(f"found max_bytes {self.max_bytes}, expected 1 to {MOST_BYTES}")

    @property
    def all_html(self) -> bool:
        """Whether all texts are HTML."""
        return self.html != "auto"

    @property
    def texts(self) -> tuple[str, ...]:
        """The fields whose texts are joined."""
        return _several(self.text_field)

    @property
    def kept(self) -> tuple[str, ...]:
        """The fields that are kept as metadata."""
        return _several(self.meta_field)

    @property
    def keys(self) -> tuple[str, ...]:
        """The names that a key may have."""
        return _KEYS if self.key_field is None else (self.key_field,)

    @property
    def given(self) -> list[str]:
        """The fields that are given by name or number, and not as all others."""
        fields = (self.key_field, *self.texts, *self.kept, self.fingerprint_field)
        return [field for field in fields if field not in (None, "*")]

    def required(self) -> list[tuple[str, tuple[str, ...]]]:
        """Return the fields that a record must hold: their kinds, and the names of each."""
        needed: list[tuple[str, tuple[str, ...]]] = []
        if self.keyed or self.key_field is not None:
            needed.append(("key", self.keys))
        needed += [("text", (name,)) for name in self.texts]
        if self.fingerprint_field:
            needed.append(("fingerprint", (self.fingerprint_field,)))
        elif not self.texts:
            needed.append(("text", _TEXTS))
        return needed

    @property
    def names_of_text(self) -> tuple[str, ...]:
        """The names that the field of the text may have; the first one that is there counts."""
        return next(names for what, names in self.required() if what == "text")

    def needed(self) -> list[str]:
        """Return the names of the fields that records are made of, of which "*" means all."""
        required = [name for _, names in self.required() for name in names]
        return list(dict.fromkeys([*self.keys, *required, *self.kept]))


def _several(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def json_object(data: bytes | str) -> dict[str, Any] | str:
    """Parse a JSON object; return why it is none as a string."""
    try:
        value = json.loads(data)
    except RecursionError:
        return "is nested too deeply"
    except json.JSONDecodeError as error:
        return f"isn't JSON: {error.msg} at column {error.colno}"
    except UnicodeDecodeError as error:
        return f"isn't UTF-8: {error.reason} at byte {error.start}"
    except ValueError:
        return "holds a JSON number with too many digits"
    return value if type(value) is dict else "is JSON, but no object"


class UnfitError(ValueError):
    """What was found can't become a record."""


# Makes a record of its place, its fields or the reason why there are none, and whether bytes of it
# were replaced.
Pick = Callable[[str, Mapping[str, Any] | str, bool], Record | BadRecord]


def picker(reading: Reading) -> Pick:
    """Return the function that makes records of fields."""
    required, keys, meta_of = reading.required(), reading.keys, meta_keeper(reading)
    texts = [names for what, names in required if what == "text"]
    fingerprints = [names for what, names in required if what == "fingerprint"]
    notation = NOTATIONS[reading.base]

    def fit(source: str, fields: Mapping[str, Any], *, damaged: bool) -> Record:
        name, key = _first(keys, fields)
        if key is not None:
            check_key(name, key)
        elif required[0][0] == "key":
            raise UnfitError(lacking("key", keys, fields))
        parts, fingerprint = [], None
        for names in texts:
            name, part = _first(names, fields)
            if part is None:
                raise UnfitError(lacking("text", names, fields))
            if type(part) is not str:
                raise UnfitError(f"{_field(name)} holds {_kind(part)}, expected a text")
            parts.append(part)
        for names in fingerprints:
            name, value = _first(names, fields)
            if value is None and fields.keys().isdisjoint(names):
                raise UnfitError(lacking("fingerprint", names, fields))
            fingerprint = _fingerprint(names[0], value, notation)
        text = "\n".join(parts) if texts else None
        # Replaced bytes would make one key of two.
        if damaged and ("\ufffd" in str(key) or not few_replaced(text or "")):
            raise UnfitError(NOT_DECODED)
        return Record(source, key, text, fingerprint, meta_of(fields), damaged)

    def pick(
        source: str,
        fields: Mapping[str, Any] | str,
        damaged: bool,  # noqa: FBT001
    ) -> Record | BadRecord:
        if isinstance(fields, str):
            return BadRecord(source, fields)
        try:
            return fit(source, fields, damaged=damaged)
        except UnfitError as error:
            return BadRecord(source, str(error))

    return pick


def meta_keeper(reading: Reading) -> Callable[[Mapping[str, Any]], dict[str, Any] | None]:
    """Return the function that chooses the metadata of a record, in the order of its fields."""
    choices = {reading.keys, *(names for _, names in reading.required())}
    everything, chosen = "*" in reading.kept, set(reading.kept)

    def meta_of(fields: Mapping[str, Any]) -> dict[str, Any] | None:
        used = {_first(names, fields)[0] for names in choices} if everything else ()
        names = fields.keys() - used if everything else chosen
        return {name: value for name, value in fields.items() if name in names} or None

    return meta_of if chosen else lambda _: None


def lacking(what: str, names: Iterable[str], fields: Mapping[str, Any]) -> str:
    """Return the message that none of some fields is there, and which there are."""
    return f"found no {what}: {expected_field(names, fields)}; {what}_field names another"


def expected_field(names: Iterable[str], fields: Mapping[str, Any]) -> str:
    """Return the message that one of some fields is expected, and which there are."""
    there = sorted(name for name, value in fields.items() if value is not None)
    shown = ", ".join(map(shorten, there[:10])) + (", …" if len(there) > 10 else "")
    wanted = " or ".join(map(shorten, names))
    return f"expected the field {wanted}, there are: {shown or 'none'}"


def shorten(text: str) -> str:
    """Quote the beginning of a text that may be long."""
    return repr(text if len(text) <= 40 else f"{text[:39]}…")


def check_key(name: str, key: object, *, replaced: bool = False) -> None:
    """Raise UnfitError if a key can't be used, or isn't the one that was written."""
    if type(key) is int:
        return
    if type(key) is not str:
        raise UnfitError(f"{_field(name)} holds {_kind(key)}, expected a string or a whole number")
    if not key:
        raise UnfitError(f"{_field(name)} is empty, expected a key")
    try:
        valid = bool(key.encode())
    except UnicodeEncodeError:
        valid = False
    # Replaced bytes would make one key of two.
    if not valid or (replaced and "\ufffd" in key):
        raise UnfitError(f"{_field(name)} is no valid Unicode: {shorten(key)}")


def _first(names: tuple[str, ...], fields: Mapping[str, Any]) -> tuple[str, Any]:
    for name in names:
        value = fields.get(name)
        if value is not None:
            return name, value
    return "", None


def _fingerprint(name: str, value: object, notation: Notation) -> int:
    if type(value) is int and (value >= 0 or notation.negative):
        return value
    if type(value) is str and (number := notation.parse(value)) is not None:
        return number
    text = shorten(value) if type(value) is str else _kind(value)
    if value in (None, "short"):  # as an export has it
        raise UnfitError(
            f"{_field(name)} holds {text}: a short text has no fingerprint, and comes "
            "only with the portable form, .fpdb.jsonl"
        )
    raise UnfitError(f"{_field(name)} holds {text}, expected a fingerprint: {notation.expected}")


def _field(name: str) -> str:
    return f"the field {shorten(name)}"


def _kind(value: object) -> str:
    if type(value) is int and value < 0:
        return "a negative number"
    return _KINDS.get(type(value), "a string")
