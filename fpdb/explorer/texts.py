"""The texts of documents, which a database doesn't keep: in files, or where a crawler has them."""

import urllib.request
from dataclasses import dataclass
from typing import NamedTuple
from urllib.error import URLError
from urllib.parse import quote

from fpdb.database import Database
from fpdb.errors import FpdbError, InputError
from fpdb.explorer.findings import Background
from fpdb.io.html import html_text, is_html
from fpdb.io.records import Reading
from fpdb.models import Document

_SECONDS = 2.0
_FIELD = "{key}"


class FoundText(NamedTuple):
    """The text of a document, or None, and what there is to say of it."""

    text: str | None
    note: str = ""


@dataclass(frozen=True)
class Texts:
    """Looks texts up by the keys of documents: at a URL, or in files."""

    database: Database
    background: Background
    reading: Reading
    address: str = ""

    def of(self, document: Document) -> FoundText:
        """Return the text of a document."""
        if not self.address and not self.background.task.files:
            return FoundText(None, "No texts were given: fpdb doesn't store them.")
        packed = self.background.packed
        try:
            if self.address:
                texts = self._fetched(document)
            else:
                texts = packed.texts(document.key) if packed else []
        except (OSError, ValueError, FpdbError) as error:
            return FoundText(None, f"The text can't be read: {error}")
        note = ""
        if texts and document.digest is not None:
            digests = [self.database.recipe.digest(text, short=document.short) for text in texts]
            if document.digest in digests:
                return FoundText(texts[digests.index(document.digest)])
            note = "The text has changed since it was stored."
        elif not texts:
            reading = not self.address and packed is None
            note = "The texts are still being read." if reading else "The text isn't there."
        return FoundText(texts[0] if texts else None, note)

    def _fetched(self, document: Document) -> list[str]:
        """Fetch a text, by HTTP alone and without going where an answer leads."""
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.HTTPHandler,
            urllib.request.HTTPSHandler,
            urllib.request.HTTPErrorProcessor,
            urllib.request.HTTPDefaultErrorHandler,
        ):
            opener.add_handler(handler())
        address = self.address.replace(_FIELD, quote(str(document.key), safe=""))
        most = self.reading.max_bytes
        try:
            with opener.open(address, timeout=_SECONDS) as answer:
                kind = answer.headers.get("Content-Type") or ""
                data = answer.read(most + 1)
        except URLError as error:
            if getattr(error, "code", None) == 404:
                return []
            raise
        if len(data) > most:
            raise InputError(f"it has more than {most:,} bytes")
        if is_html(kind):
            main = self.reading.html != "page"
            return [html_text(data, content_type=kind, main=main, max_bytes=most).text]
        return [data.decode("utf-8", "replace")]


def split_sources(given: list[str]) -> tuple[list[str], str]:
    """Return the files among the sources of texts, or the address with the field {key}."""
    addresses = [each for each in given if each.startswith(("http://", "https://"))]
    if addresses and (len(given) > 1 or _FIELD not in addresses[0]):
        raise InputError(
            f"found the texts {', '.join(given)!r:.200}, expected files, or one URL with {_FIELD}",
            hint=f"for instance http://localhost:8000/texts/{_FIELD}",
        )
    return ([], addresses[0]) if addresses else (given, "")
