"""What the sources of a report say of its documents: their names, texts, days and hosts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from itertools import chain
from typing import NamedTuple

from fpdb.database import Database
from fpdb.errors import InputError
from fpdb.io.files import meter_of, read_parts, with_all_fields
from fpdb.io.records import Record
from fpdb.look.compared import ComparedFiles
from fpdb.look.fields import ShownFields
from fpdb.look.groups import NO_DAY, Origins
from fpdb.look.listing import ListedDocument, ListedText
from fpdb.look.page import first_line
from fpdb.look.texts import Texts
from fpdb.models import Key
from fpdb.threads import mapped

# The copies of a text that are named.
MOST_NAMED = 20


class _SourceNames(NamedTuple):
    """What the sources say of a document that is shown."""

    key: str
    source: str
    title: str
    url: str


@dataclass
class Sources:
    """The sources of documents, which have rows by their keys; the `wanted` rows are shown.

    `missing` are rows whose text isn't there, or isn't as it was.
    """

    texts: Texts[Database | ComparedFiles]
    keys: Sequence[Key | None]
    origins: Origins
    wanted: Collection[int]
    missing: set[int] = field(default_factory=set)
    _named: dict[int, _SourceNames] = field(default_factory=dict)

    def read(self, fields: ShownFields, jobs: int) -> None:
        """Read the sources, whose documents go by their keys, or else by their numbers."""
        paths, origins = self.texts.files, self.origins
        rows = {key: row for row, key in enumerate(self.keys) if key is not None}
        meter = meter_of("read the texts again", paths)
        read = partial(read_parts, progress=meter.add, tell=lambda *_: None)
        found = (read(path, with_all_fields(path, self.texts.reading)) for path in paths)
        parts = mapped(lambda part: list(part()), chain.from_iterable(found), jobs)
        names: set[str] = set()
        with self.texts.written() as add:
            for number, record in enumerate(chain.from_iterable(part for _, part in parts)):
                if isinstance(record, Record):
                    key = self.texts.key_of(record) if self.texts.reading.keyed else number
                    if key is not None and key in rows:
                        names.update(record.meta or {})
                        self._note(rows[key], record, fields)
                        if rows[key] in self.wanted:
                            add(key, record.text or "")
        for kind, name, there in (
            ("date", fields.date, origins.dated.any()),
            ("host", fields.host, (origins.hosts >= 0).any()),
        ):
            if name and rows and not there:
                raise InputError(
                    f"found no {kind} in the field {name!r}, expected one in some document",
                    hint=f"the fields are: {', '.join(sorted(names)[:20]) or 'none'}",
                )

    def _note(self, row: int, record: Record, fields: ShownFields) -> None:
        """Keep the day and the host of a document, and its names if it is to be shown."""
        # The field of the key isn't among the metadata.
        meta = dict.fromkeys(self.texts.reading.keys, record.key) | (record.meta or {})
        self.origins.note(row, fields.value("date", meta), fields.value("host", meta))
        if row in self.wanted:
            # As a text, since a browser rounds large numbers; a path need not be Unicode.
            key = str(record.source if record.key is None else record.key)
            key = key.encode("utf-8", "replace").decode()
            title = first_line(fields.title_of(record.meta) or record.text or "")
            self._named[row] = _SourceNames(key, record.source, title, fields.link(meta))

    def listed(self, rows: Sequence[int]) -> ListedText:
        """Return documents with the same text, each with its day, host and link."""
        found = [each for each in rows[:MOST_NAMED] if each in self._named]
        named = dict.fromkeys(self._listed(each) for each in found)
        source = self._named[found[0]].source if found else ""
        return ListedText(list(named), len(rows), source)

    def _listed(self, row: int) -> ListedDocument:
        day, host = int(self.origins.days[row]), int(self.origins.hosts[row])
        notes = [date.fromordinal(day).isoformat()] if day < NO_DAY else []
        notes += [list(self.origins.names)[host]] if host >= 0 else []
        return ListedDocument(self._named[row].key, ", ".join(notes), self._named[row].url)

    def title(self, row: int) -> str:
        """Return the title of a document."""
        return self._named[row].title if row in self._named else ""

    def text(self, row: int) -> str | None:
        """Return a text as it was when it was stored, and count it if it isn't there."""
        key = self.keys[row]
        document = None if key is None else self.texts.database.get(key)
        text, note = self.texts.of(document) if document else (None, "")
        if text is None or note:
            self.missing.add(row)
            return None
        return text
