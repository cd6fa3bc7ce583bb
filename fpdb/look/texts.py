"""The texts of documents, which a database doesn't keep: in files, or where a crawler has them."""

import contextlib
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from fpdb.database import Database
from fpdb.errors import FpdbError, InputError
from fpdb.flow import parse_key
from fpdb.io.files import read_records
from fpdb.io.html import html_text, is_html
from fpdb.io.records import Reading, Record
from fpdb.look.compared import ComparedFiles
from fpdb.models import Document, Key
from fpdb.scratch import new_file

_SECONDS = 2.0
_FIELD = "{key}"


D = TypeVar("D", bound=Database | ComparedFiles)


@dataclass
class Texts(Generic[D]):
    """Looks texts up by the keys of documents: at a URL, or in a file with all of them.

    It is a file of SQLite with compressed texts by their names, of which a name may have several.
    `packed` says whether it is complete.
    """

    database: D
    reading: Reading
    path: Path
    files: Sequence[str] = ()
    address: str = ""
    packed: bool = False

    @contextlib.contextmanager
    def written(self) -> Iterator[Callable[[Key, str], None]]:
        """Make the file; the block gets a function that adds the text of a key."""
        self.path.unlink(missing_ok=True)  # of a try that failed
        os.close(new_file(self.path))
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
            found = chain.from_iterable(read_records(path, self.reading) for path in self.files)
            for number, record in enumerate(found):
                yield number
                if isinstance(record, Record) and (key := self.key_of(record)) is not None:
                    add(key, record.text or "")

    def key_of(self, record: Record) -> Key | None:
        """Return the key of a document that a record would be, if it has one."""
        with contextlib.suppress(InputError):
            return None if record.key is None else parse_key(record.key, self.database.keys)
        return None

    def of(self, document: Document) -> tuple[str | None, str]:
        """Return the text of a document, or None, and a note on it."""
        if not self.address and not self.files:
            return None, "No texts were given: fpdb doesn't store them."
        if not self.address and not self.packed:
            return None, "The texts are still being read."
        try:
            if self.files:
                with self.opened() as stored:
                    found = stored(document.key)
            else:
                found = self._fetched(document)
        except (OSError, ValueError, HTTPException, FpdbError) as error:
            return None, f"The text can't be read: {error}"
        short, digest = document.short, document.digest
        for text in found:
            if digest is None or digest == self.database.recipe.digest(text, short=short):
                return text, ""
        if found:
            return found[0], "The text has changed since it was stored."
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

    def _fetched(self, document: Document) -> list[str]:
        """Fetch a text, by HTTP alone and without going where an answer leads."""
        address = urlsplit(self.address.replace(_FIELD, quote(str(document.key), safe="")))
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        most = self.reading.max_bytes
        with contextlib.closing(kind(address.netloc, timeout=_SECONDS)) as connection:
            connection.request("GET", urlunsplit(("", "", address.path, address.query, "")))
            answer = connection.getresponse()
            data = answer.read(most + 1)
        if answer.status == 404:
            return []
        if answer.status != 200 or len(data) > most:
            more = f"it has more than {most:,} bytes" if len(data) > most else answer.reason
            raise InputError(f"HTTP status {answer.status}, {more}")
        content = answer.headers.get("Content-Type") or ""
        if is_html(content):
            main = self.reading.html != "page"
            return [html_text(data, content_type=content, main=main, max_bytes=most).text]
        return [data.decode("utf-8", "replace")]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def split_sources(given: list[str]) -> tuple[list[str], str]:
    """Return the files among the sources of texts, or the address with the field {key}."""
    addresses = [each for each in given if each.startswith(("http://", "https://"))]
    if addresses and (len(given) > 1 or _FIELD not in addresses[0]):
        raise InputError(
            f"found the texts {', '.join(given)!r:.200}, expected files, or one URL with {_FIELD}",
            hint=f"for instance http://localhost:8000/texts/{_FIELD}",
        )
    return ([], addresses[0]) if addresses else (given, "")
