"""What turns HTML into text, in a child process that may be ended.

No parser is safe from pages that are made to keep it busy or to fill the memory, and nothing but
the end of its process stops one. So each page has its processor time, and all have the memory.
"""

import codecs
import functools
import gc
import re

from fpdb.io.content import main_content
from fpdb.io.encodings import WIDER, likely
from fpdb.models import HtmlText
from fpdb.processes import CallError, limit

SECONDS = 2.0
MEMORY = 256 << 20
# Objects after which garbage is collected: by default, a page would cost several collections.
GARBAGE = 50_000

_FEW = 200
_HEAD = 1 << 13
_TITLE = 200
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
# It begins with plain letters, for which a search is fast.
_TEMPLATE = re.compile(
    r"ype\s*=\s*[\"']?\s*text/(?:html|(?:x-)?[\w.-]{0,40}"
    r"(?:template|handlebars|mustache|tmpl|underscore|jsrender))\b"
)
_SCRIPT = re.compile(r"<script\b([^<>]{0,1000})>(.*?)</script\b[^<>]{0,100}>", re.I | re.S)


def read_page(page: tuple[bytes | str, str, bool]) -> HtmlText:
    """Return the text of a page; the system ends this process when its time is over."""
    # The encoding is the one that HTTP says; `main` if only the main content counts.
    data, label, main = page
    _load()
    limit(MEMORY, SECONDS)
    try:
        if isinstance(data, str):
            data, encoding, replaced = data.encode("utf-8", "replace").decode(), None, False
        else:
            data, encoding, replaced = decode(data, label)
        text, title = extract(data, main)
    except MemoryError:
        raise
    except Exception as error:  # whatever the parser makes of it
        raise CallError(f"ended with {type(error).__name__}: {error!s:.200}") from None
    return HtmlText(text, title, encoding, replaced)


@functools.cache
def _load() -> None:
    import chardet  # noqa: F401 - what the first page would load
    import resiliparse.extract.html2text
    import resiliparse.parse.encoding
    import resiliparse.parse.html  # noqa: F401 - what the first page would load

    gc.set_threshold(GARBAGE)


def decode(data: bytes, label: str) -> tuple[str, str, bool]:
    """Decode a page; return the text, its encoding, and whether bytes were replaced.

    The candidates are, in this order: a byte order mark, what HTTP says, what the page says, and
    what the bytes look like. The first one wins that decodes the page without an error.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return _forced(data[len(mark) :], name)
    said = [name for name in (label, _declared(data[:_HEAD])) if name]
    names = [known for known in map(_known, said) if known]
    for name in (*names, "utf-8", _detected(data)):
        try:
            # A page that was cut may end in the middle of a character.
            return codecs.getincrementaldecoder(name)().decode(data), name, False
        except ValueError:
            continue
    return _forced(data, names[0] if names else "utf-8")


def _forced(data: bytes, name: str) -> tuple[str, str, bool]:
    text = codecs.getincrementaldecoder(name)("replace").decode(data)
    return text, name, "\ufffd" in text


def _declared(head: bytes) -> str:
    found = re.search(
        rb"<(?:meta\b[^<>]*?\bcharset|\?xml\b[^<>]*?\bencoding)\s*=\s*[\"']?\s*([\w:.-]{1,40})",
        head,
        re.IGNORECASE,
    )
    # A page whose declaration can be read byte by byte isn't in UTF-16, whatever it says.
    label = found[1].decode("ascii", "replace").lower() if found else ""
    return "utf-8" if label.startswith("utf-16") else label


def _known(label: str) -> str:
    """Return Python's name of an encoding of the web; empty for any other."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    return _usable(map_encoding_to_html5(label.strip().lower(), fallback_utf8=False) or "")


def _detected(data: bytes) -> str:
    return next(iter(likely(data)), "utf-8")


def _usable(name: str) -> str:
    name = WIDER.get(name, name)
    try:
        return name if codecs.lookup(name) else ""
    except LookupError:
        return ""


def open_templates(page: str) -> str:
    """Make elements of the scripts that hold a template: a browser will show what is in them."""
    if not _TEMPLATE.search(page):  # as most pages, which are passed over quickly
        return page
    return _SCRIPT.sub(lambda it: f"<div>{it[2]}</div>" if _TEMPLATE.search(it[1]) else it[0], page)


def extract(page: str, main: bool) -> tuple[str, str]:  # noqa: FBT001
    """Return the text and the title of a page: its main content, or all that it shows."""
    text, title = _shown(page, main)
    if len(text) < _FEW and (opened := open_templates(page)) != page:
        text = max(text, _shown(opened, main)[0], key=len)
    return text, title


def _shown(page: str, main: bool) -> tuple[str, str]:  # noqa: FBT001
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(page)
    title = " ".join((tree.title or "").split())[:_TITLE]
    if main:
        text = main_content(tree.body.html if tree.body else "", title)
    else:
        text = extract_plain_text(tree, alt_texts=False, list_bullets=False).strip()
    return text, title
