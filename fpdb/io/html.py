"""Turn HTML into text, in processes of their own that are ended when a page takes too much."""

import atexit
import importlib.util
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from email.message import Message
from typing import Any

from fpdb.errors import HtmlError, MissingExtraError
from fpdb.io import extraction
from fpdb.io.records import LARGEST_HTML, BadRecord, Reading, Record, UnfitError, check_key
from fpdb.models import HtmlText
from fpdb.processes import start_python

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
# Only a stalled machine comes near this: the limit of processor time is reached much earlier.
_PATIENCE = 60.0


def html_text(
    data: bytes | str,
    *,
    content_type: str | None = None,
    main: bool = True,
    max_bytes: int = LARGEST_HTML,
) -> HtmlText:
    """Return the text of an HTML page: its main content, or all of it when `main` is false.

    Bytes are decoded by their byte order mark, the charset of `content_type`, the one that the
    page declares, or what they look like: the first that decodes them without an error. A page of
    more than `max_bytes`, or one that takes more than 2 seconds of processor time or 256 MiB, is an
    `HtmlError`. Needs the extra `web`.
    """
    raw = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
    if len(raw) > max_bytes:
        raise HtmlError(
            f"holds {len(raw):,} bytes of HTML, expected at most {max_bytes:,}",
            hint="max_bytes allows more, up to what 256 MiB of memory can hold",
        )
    flags = extraction.TEXT * isinstance(data, str) | extraction.MAIN * main
    label = charset_of(content_type)
    helper = _take()
    try:
        answer = helper.ask(raw, label, flags)
    except BaseException:
        # Half of an answer may be under way.
        helper.end()
        raise
    _idle.append(helper)
    return answer


def require_html() -> None:
    """Raise at once if HTML can't be read here."""
    if importlib.util.find_spec("resiliparse") is None:
        raise MissingExtraError(
            "HTML is read by the package resiliparse, which isn't installed",
            hint="pip install 'fpdb[web]'",
        )


def charset_of(content_type: str | None) -> str:
    """Find the charset in the value of a Content-Type."""
    if not content_type or "charset" not in content_type.lower():
        return ""
    message = Message()
    message["Content-Type"] = content_type[:1000].replace("\r", " ").replace("\n", " ")
    found = message.get_param("charset")
    return found[:40] if isinstance(found, str) else ""


class _Helper:
    """A process that reads one page at a time, and the socket to it."""

    def __init__(self) -> None:
        require_html()
        self.process, self.connection = start_python(
            "-PS", extraction.__file__, stderr=subprocess.DEVNULL
        )
        self.connection.settimeout(_PATIENCE)

    def ask(self, data: bytes, label: str, flags: int) -> HtmlText:
        name = label.encode("utf-8", "replace")
        try:
            head = extraction.QUESTION.pack(len(data), len(name), flags, 0)
            self.connection.sendall(head + name + data)
            replaced, *sizes = extraction.ANSWER.unpack(self._receive(extraction.ANSWER.size))
            text, title, encoding = (self._receive(size).decode() for size in sizes)
        except (EOFError, OSError):
            self.end()
            raise HtmlError(
                self._reason(),
                hint="such pages are hardly ever meant to be read; leave it out",
            ) from None
        return HtmlText(text, title, encoding or None, bool(replaced))

    def _reason(self) -> str:
        if self.process.returncode == -signal.SIGPROF:
            return f"takes more than {extraction.SECONDS:.0f} seconds to read as HTML"
        return f"can't be read as HTML in {extraction.MEMORY >> 20} MiB of memory"

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.connection.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise EOFError
            data += piece
        return bytes(data)

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.connection.close()
        # What ended by itself says why.
        try:
            self.process.wait(0.05)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# At most as many as there were calls at the same time.
_idle: list[_Helper] = []
_lock = threading.Lock()


def _take() -> _Helper:
    with _lock:
        if _idle:
            return _idle.pop()
    return _Helper()


def _end_all() -> None:
    while _idle:
        _idle.pop().end()


def _leave_to_parent() -> None:
    """Forget, in a forked child, the processes of its parent."""
    for helper in _idle:
        helper.connection.close()
        helper.process.returncode = 0
    _idle.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_leave_to_parent)


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


def finished(items: Iterable[Found], reading: Reading) -> Iterator[Record | BadRecord]:
    """Make records of pages; others stay as they are."""
    for item in items:
        yield _read(item, reading) if isinstance(item, Page) else item


def marked(item: Record | BadRecord, reading: Reading) -> Found:
    """Take the text of a record as HTML, if all texts are."""
    if reading.html == "html" and isinstance(item, Record) and item.text is not None:
        return Page(item.source, item.key, item.text, item.meta, replaced=item.replaced)
    return item


def is_html(content_type: str) -> bool:
    """Return whether a media type is one of HTML."""
    return media_type(content_type) in _HTML_TYPES


def media_type(content_type: str) -> str:
    """Drop the parameters of a media type."""
    return content_type.partition(";")[0].strip().lower()


def _read(page: Page, reading: Reading) -> Record | BadRecord:
    meta = page.meta
    try:
        check_key("key", page.key, replaced=True) if page.key is not None else None
        if page.html and reading.html != "none":
            found = html_text(
                page.data,
                content_type=page.content_type,
                main=reading.html_text == "main",
                max_bytes=reading.max_html,
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
