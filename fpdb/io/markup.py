"""Texts that may be HTML: what is read as such, and how a page becomes a record."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fpdb.errors import HtmlError, InputError
from fpdb.io.fields import BadRecord, Record, UnfitError, check_key
from fpdb.io.html import LARGEST_HTML, charset_of, html_text, require_html

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
# As browsers understand these names.
_WIDER = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso-8859-1": "cp1252",
    "latin-1": "cp1252",
    "ascii": "cp1252",
    "us-ascii": "cp1252",
}


@dataclass(frozen=True)
class Markup:
    """What is read as HTML, and what of it is taken.

    - `html`: "auto" takes .html files and what an archive calls HTML, "html" all texts, "none"
      nothing
    - `text`: the "main" content of a page, or all of the "page"
    - `largest`: how many bytes of HTML a page may have
    """

    html: Literal["auto", "html", "none"] = "auto"
    text: Literal["main", "page"] = "main"
    largest: int = LARGEST_HTML

    def __post_init__(self) -> None:
        if self.html not in {"auto", "html", "none"}:
            raise InputError(f"found the markup {self.html!r}, expected auto, html or none")
        if self.text not in {"main", "page"}:
            raise InputError(f"found the HTML text {self.text!r}, expected main or page")
        if self.html == "html":
            require_html()


@dataclass(frozen=True, slots=True)
class Page:
    """A document whose text isn't decoded or is still HTML, as a reader found it."""

    source: str
    key: str | int | None
    data: bytes | str
    meta: dict[str, Any] | None = None
    content_type: str = ""
    html: bool = True
    replaced: bool = False


Found = Record | BadRecord | Page


def finished(items: Iterable[Found], markup: Markup) -> Iterator[Record | BadRecord]:
    """Make records of pages; others stay as they are."""
    for item in items:
        yield _read(item, markup) if isinstance(item, Page) else item


def marked(item: Record | BadRecord, markup: Markup) -> Found:
    """Take the text of a record as HTML, if all texts are."""
    if markup.html == "html" and isinstance(item, Record) and item.text is not None:
        return Page(item.source, item.key, item.text, item.meta, replaced=item.replaced)
    return item


def is_html(content_type: str) -> bool:
    """Tell whether a media type is one of HTML."""
    return media_type(content_type) in _HTML_TYPES


def media_type(content_type: str) -> str:
    """Drop the parameters of a media type."""
    return content_type.partition(";")[0].strip().lower()


def _read(page: Page, markup: Markup) -> Record | BadRecord:
    meta = page.meta
    try:
        check_key("key", page.key, replaced=True) if page.key is not None else None
        if page.html and markup.html != "none":
            found = html_text(
                page.data,
                content_type=page.content_type,
                main=markup.text == "main",
                max_bytes=markup.largest,
            )
            text, replaced = found.text, found.replaced
            if meta is not None:
                meta = meta | ({"title": found.title} if found.title else {})
        elif isinstance(page.data, str):
            text, replaced = page.data, False
        else:
            text, replaced = _decoded(page.data, page.content_type)
    except (HtmlError, UnfitError) as error:
        return BadRecord(page.source, str(error))
    return Record(page.source, page.key, text, None, meta, page.replaced or replaced)


def _decoded(data: bytes, content_type: str) -> tuple[str, bool]:
    """Decode a plain text: by the charset that is named if it fits, or else as UTF-8."""
    label = charset_of(content_type).strip().lower()
    for name in ("utf-8-sig", _WIDER.get(label, label)):
        try:
            # This refuses codecs that are none of texts, and would unpack what came from the web.
            return data.decode(name), False
        except (LookupError, ValueError):
            continue
    return data.decode("utf-8", "replace"), True
