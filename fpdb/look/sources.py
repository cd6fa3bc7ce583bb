"""The sources of documents: files, compared as columns, and the texts, titles, days and hosts.

A database doesn't keep texts: they are in files.
"""

import contextlib
import sqlite3
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from fpdb.arrays import Column, Marks, Places
from fpdb.database import Database
from fpdb.documents import layout
from fpdb.documents.prepare import Preparer
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.flow import Flow, Ingested, parse_key
from fpdb.io.files import read_parts, read_records
from fpdb.io.paths import meter_of
from fpdb.io.records import Reading, Record
from fpdb.io.streams import Watch, ignore
from fpdb.joins.clusters import Clustering, clustering_of
from fpdb.joins.columns import GrowingColumn, GrowingTexts, Room
from fpdb.joins.fetched_texts import FetchedTexts
from fpdb.joins.pairs import TextsInColumns
from fpdb.look.fields import ShownFields
from fpdb.look.groups import Origins
from fpdb.look.listing import ListedDocument, ListedText
from fpdb.look.page import first_line, writing_of
from fpdb.models import MOST_BYTES, Document, Key
from fpdb.storage.block import Block
from fpdb.tables.bits import to_ints
from fpdb.threads import mapped

# The copies of a text that are named.
MOST_NAMED = 20


class ComparedFiles:
    """Documents under the numbers of their records, in the order of reading.

    Those that are kept, if it is known by their numbers, are the first ones of their groups.
    """

    key_type = "integer"

    def __init__(
        self, room: Room, recipe: str | Recipe, similarity: float | None, kept: Marks | None = None
    ) -> None:
        self._kept = kept
        self._room = room
        self.recipe, header = layout.header_for(
            recipe, similarity=similarity or "recipe", keys=self.key_type
        )
        self.similarity = header.get("similarity")
        self._preparer = Preparer(header, *layout.layout(header), self.recipe)
        self._bits = self._preparer.index.plan.bits
        self._texts = GrowingTexts(room, self._bits)
        self._numbers = GrowingColumn(room, np.int64)

    def fill(self, flow: Flow[Ingested], paths: Sequence[str]) -> None:
        for numbers, documents in numbered_texts(flow, paths, self._preparer):
            # A short text resembles only those that are equal, by their digests.
            documents.sketches[documents.short] = 0
            self._numbers.add(numbers)
            self._texts.add(documents)

    def __len__(self) -> int:
        return len(self._numbers)

    def clustering(
        self, *, similarity: float | None = None, texts: Callable[[Key], str | None]
    ) -> Clustering:
        """Find the groups, in which documents are compared by the texts of their numbers."""
        [bands] = filter(None, [self._preparer.index.bands])
        least = similarity or self.similarity or 0.0
        every, numbers = self._texts.all, self._numbers.values
        [usable] = (~every.short | every.digested).nonzero()
        stays = None if self._kept is None else self._kept[numbers]
        compared = TextsInColumns(every, bands.shape, usable)
        recipe = self.recipe.replace(largest=MOST_BYTES)
        known = FetchedTexts(recipe, lambda at: texts(int(numbers[at])), self._room)
        clustering = clustering_of(compared, least, stays=stays, known=known)
        return replace(clustering, ids=numbers[clustering.ids.astype(np.int64)].astype(np.uint64))

    def keys_of(self, ids: Column) -> list[Key | None]:
        return list(ids.tolist())

    def get(self, key: Key) -> Document | None:
        """Return a document with its fingerprint and digest, without its text."""
        place = int(np.searchsorted(self._numbers.values, key))
        texts = self._texts.all[place : place + 1]
        [fingerprint] = to_ints(texts.fingerprints)
        return Document(key, fingerprint=fingerprint, digest=texts.digests.tobytes())


def numbered_texts(
    flow: Flow[Ingested], paths: Sequence[str], preparer: Preparer
) -> Iterator[tuple[Places, Block]]:
    """Yield the documents of files with the numbers of their records, and count them."""
    first = 0
    preparer = preparer.adapted(flow.reading.max_bytes)
    for records, documents, _ in flow.prepared(flow.parts(paths), preparer, texts_only=True):
        short = int(np.count_nonzero(documents.short))
        flow.counts.tally("short", short)
        flow.counts.tally("added", len(documents) - short)
        yield first + np.array(records.good, np.int64), documents
        first += len(records)
        flow.show()


D = TypeVar("D", bound=Database | ComparedFiles)


@dataclass
class Texts(Generic[D]):
    """Looks texts up by the keys of documents, in a file with the texts of all files.

    It is a file of SQLite with compressed texts by their names, of which a name may have several.
    `packed` says whether it is complete.
    """

    database: D
    reading: Reading
    path: Path
    files: Sequence[str] = ()
    packed: bool = False

    @contextlib.contextmanager
    def written(self) -> Iterator[Callable[[Key, str], None]]:
        """Make the file; the block gets a function that adds the text of a key."""
        self.path.unlink(missing_ok=True)  # of a try that failed
        with contextlib.closing(sqlite3.connect(self.path)) as file:
            file.execute("PRAGMA journal_mode = OFF")
            file.execute("CREATE TABLE texts (name BLOB, text BLOB)")

            def add(key: Key, text: str) -> None:
                row = _bytes(str(key)), zlib.compress(_bytes(text), 1)
                file.execute("INSERT INTO texts VALUES (?, ?)", row)

            yield add
            file.execute("CREATE INDEX names ON texts (name)")
            file.commit()
        self.packed = True

    def pack(self) -> Iterator[int]:
        """Bring the texts of all files into one, and yield their numbers."""
        if self.packed or not self.files:
            return
        with self.written() as add:
            records = chain.from_iterable(read_records(path, self.reading) for path in self.files)
            for number, record in enumerate(records):
                yield number
                if isinstance(record, Record) and (key := self.key_of(record)) is not None:
                    add(key, record.text or "")

    def records(self, reading: Reading, jobs: int) -> Iterator[tuple[Key, Record]]:
        """Read the files again; yield the records with their keys, or else their numbers."""
        meter = meter_of("read the texts again", self.files)
        watch = Watch(meter.add, ignore)
        files = (read_parts(path, reading, watch) for path in self.files)
        parts = mapped(lambda part: part(), chain.from_iterable(files), jobs)
        for number, record in enumerate(chain.from_iterable(part for _, part in parts)):
            if isinstance(record, Record):
                key = self.key_of(record) if self.reading.keyed else number
                if key is not None:
                    yield key, record

    def key_of(self, record: Record) -> Key | None:
        """Return the key that a record has as a document, its place if it has none of its own."""
        with contextlib.suppress(InputError):
            key = record.source if record.key is None else record.key
            return parse_key(key, self.database.key_type)
        return None

    def of(self, document: Document) -> tuple[str | None, str]:
        """Return the text of a document, or None, and a note on it."""
        if not self.files:
            return None, "No texts were given: fpdb doesn't store them."
        if not self.packed:
            return None, "The texts are still being read."
        try:
            with self.opened() as stored:
                texts = stored(document.key)
        except (OSError, ValueError) as error:
            return None, f"The text can't be read: {error}"
        short, digest = document.short, document.digest
        for text in texts:
            if digest is None or digest == self.database.recipe.digest(text, short=short):
                return text, ""
        if texts:
            return texts[0], "The text has changed since it was stored."
        return None, "The text isn't there."

    @contextlib.contextmanager
    def opened(self) -> Iterator[Callable[[Key], list[str]]]:
        """Open the file; the block gets a function that returns the texts of a key, last first."""
        query = "SELECT text FROM texts WHERE name = ? ORDER BY rowid DESC"
        with contextlib.closing(sqlite3.connect(self.path)) as file:

            def stored(key: Key) -> list[str]:
                rows = file.execute(query, [_bytes(str(key))])
                return [zlib.decompress(row[0]).decode("utf-8", "surrogatepass") for row in rows]

            yield stored


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass
class Sources:
    """The sources of documents, which have rows by their keys; the `wanted` rows are shown.

    `missing` are rows whose text isn't there, or isn't as it was. `writings` counts texts of all
    sources by `writing_of`.
    """

    texts: Texts[Database | ComparedFiles]
    keys: Sequence[Key | None]
    origins: Origins
    wanted: Collection[int]
    missing: set[int] = field(default_factory=set)
    writings: Counter[str] = field(default_factory=Counter)
    _named: dict[int, tuple[str, ListedDocument]] = field(default_factory=dict)

    def read(self, jobs: int) -> None:
        """Read the sources, whose documents go by their keys, or else by their numbers."""
        reading, origins = self.texts.reading, self.origins
        fields = ShownFields(reading)
        rows = {key: row for row, key in enumerate(self.keys) if key is not None}
        reading = replace(reading, meta_field=(*reading.kept, "*"))
        names: set[str] = set()
        with self.texts.written() as add:
            for key, record in self.texts.records(reading, jobs):
                self.writings[writing_of(record.text or "")] += 1
                if key in rows:
                    names.update(record.meta or {})
                    self._note(rows[key], record, fields)
                    if rows[key] in self.wanted:
                        add(key, record.text or "")
        for kind, there in (("date", origins.dated), ("host", origins.hosts >= 0)):
            if (name := fields.name(kind)) and rows and not there.any():
                raise InputError(
                    f"found no {kind} in the field {name!r}, expected one in some document",
                    hint=f"the fields are: {', '.join(sorted(names)[:20]) or 'none'}",
                )

    def _note(self, row: int, record: Record, fields: ShownFields) -> None:
        """Keep the day and the host of a document, and its names if it is to be shown."""
        # The field of the key isn't among the metadata.
        meta = dict.fromkeys(self.texts.reading.keys, record.key) | (record.meta or {})
        day, host = (fields.value(kind, meta) for kind in ("date", "host"))
        self.origins.note(row, day, host, fields.field("date", meta) or "")
        if row in self.wanted:
            # As a text, since a browser rounds large numbers; a path need not be Unicode.
            key = str(record.source if record.key is None else record.key)
            key = key.encode("utf-8", "replace").decode()
            title = first_line(fields.title_of(record.meta) or record.text or "")
            named = ListedDocument(key, fields.note(meta), fields.link(meta))
            self._named[row] = title, named

    def listed(self, rows: Sequence[int], role: str = "") -> ListedText:
        """Return documents with one text, or one role, each with its day, host and link."""
        named = [self._named[row][1] for row in rows[:MOST_NAMED] if row in self._named]
        return ListedText(list(dict.fromkeys(named)), len(rows), role=role)

    def key(self, row: int) -> str:
        """Return the key of a row that is shown, as it is named there."""
        return self._named[row][1].key if row in self._named else str(self.keys[row])

    def title(self, row: int) -> str:
        return self._named[row][0] if row in self._named else ""

    def text(self, row: int) -> str | None:
        """Return a text as it was when it was stored, and count it if it isn't there."""
        key = self.keys[row]
        document = None if key is None else self.texts.database.get(key)
        text, note = self.texts.of(document) if document else (None, "")
        if text is None or note:
            self.missing.add(row)
            return None
        return text
