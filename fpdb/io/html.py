"""Turn HTML into text, in processes of their own that are ended when a page takes too much."""

import contextlib
import importlib.util
from dataclasses import dataclass
from typing import Any, cast

from fpdb.errors import HtmlError, InputError, MissingExtraError
from fpdb.io import extraction
from fpdb.io.encodings import UTF8, checked_encoding, decode, has_escapes
from fpdb.io.records import BadRecord, Reading, Record, UnfitError, check_key
from fpdb.models import LARGEST_TEXT, HtmlText
from fpdb.processes import CallError, KeptWorkers

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})


def html_text(
    data: bytes | str,
    *,
    content_type: str | None = None,
    main: bool = True,
    max_bytes: int = LARGEST_TEXT,
) -> HtmlText:
    """Return the text of an HTML page: its main content, or all of it. It needs the extra `web`.

    Args:
        data: The page as it was received, or decoded. Bytes are decoded by their byte order mark,
            the charset of `content_type`, the one that the page declares, UTF-8, or what they look
            like: the first that decodes them without an error, or UTF-8 with few errors.
        content_type: The header Content-Type of the page.
        main: Leave out navigation, footers and the like.
        max_bytes: The largest page to parse.

    Returns:
        The `text`, the `title`, and the `encoding` that decoded the page.

    Raises:
        HtmlError: The page is larger than `max_bytes`, or takes more than 2 seconds of processor
            time or 256 MiB.
        MissingExtraError: The extra `web` isn't installed.
    """
    size = len(data.encode("utf-8", "replace") if isinstance(data, str) else data)
    if size > max_bytes:
        raise HtmlError(
            f"holds {size:,} bytes of HTML, expected at most {max_bytes:,}",
            hint="max_bytes allows more, up to what 256 MiB of memory can hold",
        )
    try:
        page = data, charset_of(content_type), main
        [text] = _readers.values(page, extraction.MEMORY, extraction.SECONDS)
    except CallError as error:
        limits = f"{extraction.SECONDS:.0f} seconds and {extraction.MEMORY >> 20} MiB"
        raise HtmlError(
            f"can't be read as HTML within {limits}: it {error}",
            hint="such pages are hardly ever meant to be read; leave it out",
        ) from None
    return cast("HtmlText", text)


def require_html() -> None:
    """Raise at once if HTML and web archives can't be read here."""
    if not all(map(importlib.util.find_spec, ("resiliparse", "fastwarc"))):
        raise MissingExtraError(
            "HTML and web archives are read by the package resiliparse, which isn't installed",
            hint="pip install 'fpdb-store[web]'",
        )


def charset_of(content_type: str | None) -> str:
    if not content_type or "charset" not in content_type.lower():
        return ""
    from email.message import Message  # costs time that most commands don't need

    message = Message()
    message["Content-Type"] = content_type[:1000].replace("\r", " ").replace("\n", " ")
    charset = message.get_param("charset")
    return charset[:40] if isinstance(charset, str) else ""


_readers = KeptWorkers(extraction.read_page, require_html)


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


def is_html(content_type: str) -> bool:
    return media_type(content_type) in _HTML_TYPES


def media_type(content_type: str) -> str:
    """Drop the parameters of a media type."""
    return content_type.partition(";")[0].strip().lower()


def as_html(record: Record | BadRecord, reading: Reading) -> Record | BadRecord:
    """Take the text of a record for a page, if it has one."""
    if isinstance(record, BadRecord) or record.text is None:
        return record
    page = Page(record.source, record.key, record.text, record.meta, replaced=record.replaced)
    return record_of_page(page, reading)


def record_of_page(page: Page | BadRecord, reading: Reading) -> Record | BadRecord:
    """Decode a page, and take its text."""
    if isinstance(page, BadRecord):
        return page
    meta = page.meta
    try:
        check_key("key", page.key, replaced=True) if page.key is not None else None
        if page.html:
            shown = html_text(
                page.data,
                content_type=page.content_type,
                main=reading.html != "page",
                max_bytes=reading.max_bytes,
            )
            text, replaced = shown.text, shown.replaced
            if meta is not None and shown.title:
                meta = meta | {"title": shown.title}
        elif isinstance(page.data, str):
            text, replaced = page.data, False
        else:
            text, replaced = _decoded(page.data, page.content_type)
    except (HtmlError, UnfitError) as error:
        return BadRecord(page.source, str(error))
    return Record(page.source, page.key, text, None, meta, page.replaced or replaced)


def _decoded(data: bytes, content_type: str) -> tuple[str, bool]:
    """Decode a plain text: as UTF-8 or by the charset that is named, or else by evidence."""
    said = [] if has_escapes(data) else [UTF8]
    with contextlib.suppress(InputError):
        said.append(checked_encoding(charset_of(content_type).strip()))
    decoded = decode(data, said)
    if decoded is None:
        raise UnfitError("isn't UTF-8, nor what it says, and no other encoding is certain")
    text, _, replaced = decoded
    return text.removeprefix("\ufeff"), replaced
