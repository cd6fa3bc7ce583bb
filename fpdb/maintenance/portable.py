"""The portable form of a database: JSON lines that any machine writes and reads."""

import base64
import contextlib
import hashlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain, islice
from typing import IO, Any, Self

from fpdb.documents.catalog import Catalog
from fpdb.documents.prepare import BATCH
from fpdb.errors import DamagedError, FormatError, InputError, RecipeError, RecipeMismatchError
from fpdb.fingerprint import canonical
from fpdb.io.records import json_object
from fpdb.io.streams import TooLong, raw_lines
from fpdb.models import CARRIED, FIELDS, GROUPS, MINHASH, PASSAGES, PORTABLE, Document, Key
from fpdb.progress import tracked
from fpdb.storage import ReadTransaction
from fpdb.storage.format import Counters, Header, Stored
from fpdb.storage.origin import unpack_meta

VERSION = 1  # part of the form: the highest that this code reads, and the one that it writes

BEGINNING = f'{{"{PORTABLE}":'.encode()
# Bytes of a line: no document takes more, whatever its metadata and passages; a recipe may hold a
# long table.
_LONGEST = 1 << 23
_LONGEST_HEAD = 1 << 26
# An empty list takes three bytes here and 64 in memory; no header has more lists and objects.
_MOST_CONTAINERS = 1 << 20
# Bytes of lines that are held at once.
_ROOM = 1 << 22
_FIELDS = frozenset({"key", "fingerprint", "added", *(field.name for field in FIELDS)})
_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "number": int,
    "value": unpack_meta,
    "hex": bytes.hex,
    "base64": lambda value: base64.b64encode(value).decode(),
}
# What a database keeps if the first line says so.
_FEATURES = PASSAGES, GROUPS
_AGAIN = "export it again, and copy the complete file"
_FORMS = [(field.name, _WRITTEN[field.form]) for field in FIELDS]
_compact = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Head:
    """What all documents of a database have in common, as the first line has it.

    The recipe is plain data, with the id of its secret only.
    """

    recipe: dict[str, Any]
    recipe_id: str
    bits: int
    k: int
    keys: str
    similarity: float | None
    capacity: int
    passages: bool = False
    groups: bool = False

    @classmethod
    def of(cls, stored: Header) -> Self:
        names = "recipe", "recipe_id", "keys", "similarity", "capacity"
        values: dict[str, Any] = {name: stored.get(name) for name in names}
        values |= {name: name in stored["features"] for name in _FEATURES}
        return cls(bits=stored["plan"]["bits"], k=stored["plan"]["k"], **values)

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Parse the first line, and check its fields."""
        if not line.startswith(BEGINNING):
            raise InputError(
                f"line 1 doesn't begin with {BEGINNING.decode()}, as the portable form does",
                hint="db.dump and `fpdb export` write it; records have another format, e.g. jsonl",
            )
        plain = _parsed(line, 1)
        version = plain.pop(PORTABLE)
        if version != VERSION:
            raise FormatError(
                f"the portable form has version {version!r:.40}, this fpdb reads {VERSION}",
                hint="load it with a newer fpdb, or export it with one that writes this version",
            )
        names = frozenset(cls.__dataclass_fields__)
        _require_fields(plain, 1, names, names - {*_FEATURES})
        try:
            recipe, recipe_id = canonical(plain["recipe"])
        except RecipeError as error:
            raise InputError(f"line 1: {error}", hint=error.hint) from None
        for name, value in (("recipe_id", recipe_id), ("bits", recipe["bits"])):
            if plain[name] != value:
                raise _wrong(1, f"has {name} {plain[name]!r:.40}", f"{value}, that of its recipe")
        return cls(**plain | {"recipe": recipe, "bits": recipe["bits"]})

    @property
    def fields(self) -> dict[str, Any]:
        """The fields as the first line has them."""
        return {name: value for name, value in vars(self).items() if name not in _FEATURES or value}

    def require_fit(self, other: "Head", place: str) -> None:
        """Raise RecipeMismatchError if a database can't take everything of these documents."""
        # Each database with sketches has its own bands; without, none may be lost or missing.
        bits = None in (self.similarity, other.similarity)
        kept = self.similarity if bits else other.similarity
        for what, found, expected in (
            ("the recipe", _named(self), _named(other)),
            ("keys", self.keys, other.keys),
            ("similarity", kept, other.similarity),
            ("passages", self.passages, other.passages),
        ):
            if found != expected:
                raise RecipeMismatchError(
                    f"{place} was created with {what} {expected}, the file has {found}",
                    hint="load it into a database of its own",
                )


def _named(head: Head) -> str:
    return f"{head.recipe['name']} ({head.recipe_id})"


def write(
    file: IO[bytes],
    txn: ReadTransaction,
    catalog: Catalog,
    head: Head,
    times: tuple[float, float] | None = None,
) -> int:
    """Write the documents of a snapshot in the order of their ids; return their number.

    With times, they are those that were added from one on and before the other.
    """
    stored_count = Counters.unpack(txn.get("counters", b"counters")).documents
    documents = tracked(catalog.each(txn), "", "document", stored_count)
    if times is None:
        return _write_documents(file, documents, head, stored_count)
    chosen = (stored for stored in documents if times[0] <= stored.added < times[1])
    return _write_documents(file, chosen, head)


def save(
    file: IO[bytes], txn: ReadTransaction, catalog: Catalog, header: Header, keys: Iterable[Key]
) -> None:
    """Write the documents with some keys, as far as they are there; they are on disk then."""
    documents = (catalog.find(txn, key) for key in dict.fromkeys(keys))
    there = (stored for stored in documents if stored is not None)
    _write_documents(file, there, Head.of(header))
    file.flush()
    with contextlib.suppress(io.UnsupportedOperation):  # it is in memory
        os.fsync(file.fileno())


def _write_documents(
    file: IO[bytes], documents: Iterable[Stored], head: Head, expected: int | None = None
) -> int:
    digest, count = hashlib.sha256(), -1  # the first line isn't that of a document
    lines = chain(
        [_line({PORTABLE: VERSION, **head.fields})],
        (_document_line(stored, head.bits) for stored in documents),
    )
    while block := list(islice(lines, BATCH)):
        count += len(block)
        data = b"".join(block)
        digest.update(data)
        _write(file, data)
    if expected not in (None, count):
        raise DamagedError(f"found {count:,} documents, the counters say {expected:,}")
    _write(file, _line({"documents": count, "sha256": digest.hexdigest()}))
    return count


def _write(file: IO[bytes], data: bytes) -> None:
    """Write all data; a file without a buffer may take only a part at a time."""
    while data:
        taken = file.write(data)
        data = data[taken or 0 :] if isinstance(file, io.RawIOBase) else b""


def _document_line(stored: Stored, bits: int) -> bytes:
    number = stored.fingerprint
    fields: dict[str, Any] = {
        "key": stored.key,
        "fingerprint": None if number is None else f"{number:0{bits // 4}x}",
        "added": stored.added,
    }
    for name, written in _FORMS:
        if value := getattr(stored, name):
            fields[name] = written(value)
    return _line(fields)


def _line(fields: Mapping[str, Any]) -> bytes:
    # JSON lets one character of ASCII pass that isn't printable.
    return _compact(fields).replace("\x7f", "\\u007f").encode("ascii") + b"\n"


class PortableFile:
    """A file in the portable form: its head, and its documents in batches.

    Whatever is wrong with it raises an InputError that names the line.
    """

    def __init__(self, data: Iterable[bytes]) -> None:
        self._lines = raw_lines(data, _LONGEST_HEAD)
        self._digest = hashlib.sha256()
        self._number = 0
        line = self._next(_LONGEST_HEAD) or b""
        self.head = Head.read(line)
        self._digest.update(line + b"\n")

    def batches(self, size: int) -> Iterator[tuple[int, list[Document]]]:
        """Yield the documents in batches of at most `size`, with the number of the first line.

        Those before an error come first.
        """
        batch: list[Document] = []
        first, room = 2, _ROOM
        try:
            for document, length in self._documents():
                batch.append(document)
                room -= length
                if len(batch) == size or room < 0:
                    yield first, batch
                    first, room, batch = first + len(batch), _ROOM, []
        except InputError:
            if batch:
                yield first, batch
            raise
        if batch:
            yield first, batch

    def _documents(self) -> Iterator[tuple[Document, int]]:
        while (line := self._next(_LONGEST)) is not None:
            plain = _parsed(line, self._number)
            if "key" not in plain and "documents" in plain:
                self._end(plain)
                return
            yield _document(plain, self._number, self.head), len(line)
            self._digest.update(line + b"\n")
        raise InputError(
            f"it ends after line {self._number}, without the line that counts its documents",
            hint=f"it was cut short: {_AGAIN}",
        )

    def _end(self, plain: dict[str, Any]) -> None:
        read = {"documents": self._number - 2, "sha256": self._digest.hexdigest()}
        for name, value in plain.items():
            if value != read.get(name):
                raise InputError(
                    f"the last line says {name} {value!r:.80}, found {read.get(name)}",
                    hint=f"lines were lost or changed on the way: {_AGAIN}",
                )
        if self._next(_LONGEST) is not None:
            raise _wrong(self._number, "comes after the last line", "nothing")

    def _next(self, longest: int) -> bytes | None:
        try:
            line = next(self._lines, None)
        except (EOFError, zlib.error) as error:
            raise InputError(
                f"it breaks off after line {self._number}: {error}",
                hint=f"it was cut short: {_AGAIN}",
            ) from None
        if line is None:
            return None
        self._number += 1
        if isinstance(line, TooLong) or len(line) > longest:
            raise _wrong(self._number, f"has more than {longest:,} bytes", "fewer")
        return line


def _document(plain: dict[str, Any], number: int, head: Head) -> Document:
    _require_fields(plain, number, _FIELDS, {"key", "fingerprint"})
    features = {"": True, MINHASH: head.similarity is not None, PASSAGES: head.passages}
    fields: dict[str, Any] = {}
    for field in CARRIED:
        name, value = field.name, plain.get(field.name)
        if value is not None and not features[field.feature]:
            raise _wrong(number, f"has the field {name}", "none, by the first line")
        if field.form == "number":
            fields[name] = value or 0
        else:
            length = field.size if field.form == "hex" else None
            fields[name] = _decoded(plain, name, number, length)
    fingerprint = _decoded(plain, "fingerprint", number, head.bits // 8)
    return Document(
        plain["key"],
        None,
        plain.get("meta"),
        None if fingerprint is None else int.from_bytes(fingerprint),
        added=plain.get("added"),
        short=fingerprint is None,
        **fields,
    )


def _decoded(
    plain: Mapping[str, Any], name: str, number: int, length: int | None = None
) -> bytes | None:
    """Decode a field of N bytes in hexadecimal digits, or one in Base64."""
    value = plain.get(name)
    if value is None:
        return None
    expected = "Base64" if length is None else f"{2 * length} hex digits"
    try:
        data = base64.b64decode(value, validate=True) if length is None else bytes.fromhex(value)
    except (TypeError, ValueError):
        raise _wrong(number, f"has the {name} {value!r:.60}", expected) from None
    if length not in {None, len(data)}:
        raise _wrong(number, f"has the {name} {value!r:.60}", expected)
    return data


def _parsed(line: bytes, number: int) -> dict[str, Any]:
    if line.count(b"[") + line.count(b"{") > _MOST_CONTAINERS:
        raise _wrong(number, "has too many lists and objects", "a document")
    plain = json_object(line)
    if isinstance(plain, str):
        raise _wrong(number, plain, "an object")
    return plain


def _require_fields(
    plain: Mapping[str, Any], number: int, known: Set[str], required: Set[str]
) -> None:
    for name in sorted(required - plain.keys()):
        raise _wrong(number, f"has no field {name}", "one")
    for name in sorted(plain.keys() - known):
        expected = f"none but {', '.join(sorted(known))}"
        hint = "install a newer fpdb, which may have written it"
        raise _wrong(number, f"has the field {name!r:.40}", expected, hint)


def _wrong(number: int, found: str, expected: str, hint: str = _AGAIN) -> InputError:
    return InputError(f"line {number} {found}, expected {expected}", hint=hint)
