"""What turns HTML into text, in a child process that may be ended.

No parser is safe from pages that are made to keep it busy or to fill the memory, and nothing but
the end of its process stops one. So each page has its processor time, and all have the memory.
"""

import codecs
import contextlib
import functools
import gc
import json
import re
from collections.abc import Iterator
from itertools import chain

from fpdb.io.encodings import UTF8, WIDER, decode, forced, likely
from fpdb.io.main_content import START, main_content, unescaped
from fpdb.models import HtmlText
from fpdb.processes import CallError, limit

SECONDS = 2.0
MEMORY = 256 << 20
# Objects after which garbage is collected: by default, a page would cost several collections.
GARBAGE = 50_000

# Bytes of a page that shows hardly anything, of its head, and of its title.
_FEW = 200
_HEAD = 1 << 13
_SHOWN_TITLE = 200
# Tags with metadata that are read, and linked data that is the same on all pages.
_MOST_TAGS = 20
_SITES = ("Organization", "WebSite")
_MARKS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
# It begins with plain letters, for which a search is fast.
_TEMPLATE = re.compile(
    r"ype\s*=\s*[\"']?\s*text/(?:html|(?:x-)?[\w.-]{0,40}"
    r"(?:template|handlebars|mustache|tmpl|underscore|jsrender))\b"
)
_SCRIPT = re.compile(r"<script\b([^<>]{0,1000})>(.*?)</script\b[^<>]{0,100}>", re.I | re.S)
_CONTENT = re.compile(r"\bcontent=\"([^\"]*)")


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
            data, encoding, replaced = decode_page(data, label)
        text, title = extract(data, main)
    except MemoryError:
        raise
    except Exception as error:  # whatever the parser makes of it
        raise CallError(f"ended with {type(error).__name__}: {error!s:.200}") from None
    return HtmlText(text, title, encoding, replaced)


@functools.cache
def _load() -> None:
    import chardetng_py  # noqa: F401 - what the first page would load
    import resiliparse.extract.html2text
    import resiliparse.parse.encoding
    import resiliparse.parse.html  # noqa: F401 - what the first page would load

    gc.set_threshold(GARBAGE)


def decode_page(data: bytes, label: str) -> tuple[str, str, bool]:
    """Decode a page; return the text, its encoding, and whether bytes were replaced.

    A byte order mark decides, or what HTTP says, the page says, or the bytes look like.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            text = forced(data[len(mark) :], name)
            return text, name, "\ufffd" in text
    labels = filter(None, (label, _declared(data[:_HEAD])))
    said = list(filter(None, map(_known, labels)))
    if decoded := decode(data, said):
        return decoded
    name = next(chain(likely(data), said), UTF8)
    text = forced(data, name)
    return text, name, "\ufffd" in text


def _declared(head: bytes) -> str:
    declared = re.search(
        rb"<(?:meta\b[^<>]*?\bcharset|\?xml\b[^<>]*?\bencoding)\s*=\s*[\"']?\s*([\w:.-]{1,40})",
        head,
        re.IGNORECASE,
    )
    # A page whose declaration can be read byte by byte isn't in UTF-16, whatever it says.
    label = declared[1].decode("ascii", "replace").lower() if declared else ""
    return "utf-8" if label.startswith("utf-16") else label


def _known(label: str) -> str:
    """Return Python's name of an encoding of the web; empty for any other."""
    from resiliparse.parse.encoding import map_encoding_to_html5

    name = map_encoding_to_html5(label.strip().lower(), fallback_utf8=False) or ""
    name = WIDER.get(name, name)
    try:
        return name if codecs.lookup(name) else ""
    except LookupError:
        return ""


def open_templates(page: str) -> str:
    """Make elements of the scripts that hold a template: a browser will show their content."""
    if not _TEMPLATE.search(page):  # as most pages, which are passed over quickly
        return page
    return _SCRIPT.sub(_opened, page)


def _opened(script: re.Match[str]) -> str:
    return f"<div>{script[2]}</div>" if _TEMPLATE.search(script[1]) else script[0]


def extract(page: str, main: bool) -> tuple[str, str]:  # noqa: FBT001
    """Return the text and the title of a page: its main content, or all that it shows."""
    text, title = _shown(page, main)
    if len(text) < _FEW and (opened := open_templates(page)) != page:
        text = max(text, _shown(opened, main)[0], key=len)
    if len(text.encode()) < _FEW and (described := _described(page)):
        # A short page may show its description.
        shown = " ".join(_shown(page, main=False)[0].split())
        if not any(line[:START] in shown for line in described):
            text = "\n".join(dict.fromkeys(filter(None, [title, *described, text])))
    return text, title


def _described(page: str) -> list[str]:
    """Return the texts by which a page describes itself to readers that don't run its scripts."""
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(page)
    written = tree.document.html if tree.document else ""
    texts: list[object] = [
        unescaped(content[1])
        for tag in _tags(written, 'property="og:description"')
        if (content := _CONTENT.search(tag))
    ]
    for tag in _tags(written, 'type="application/ld+json"'):
        with contextlib.suppress(ValueError, RecursionError):
            texts += _names(json.loads(tag.partition(">")[2]))
    lines = (" ".join(text.split()) for text in texts if isinstance(text, str))
    return list(filter(None, lines))


def _tags(written: str, attribute: str) -> Iterator[str]:
    """Yield the first tags with an attribute in the HTML of a parser, up to the next tag."""
    # Its own searches take time that is quadratic in the number of hits.
    at = 0
    for _ in range(_MOST_TAGS):
        at = written.find(attribute, at)
        if at < 0:
            return
        start, at = written.rfind("<", 0, at), at + len(attribute)
        end = written.find("</script>" if written.startswith("<script", start) else "<", at)
        yield written[start:end]


def _names(data: object) -> Iterator[object]:
    """Yield the names and descriptions in linked data, unless they are of the site."""
    for thing in data if isinstance(data, list) else [data]:
        if isinstance(thing, dict) and thing.get("@type") not in _SITES:
            yield from _names(thing["@graph"]) if "@graph" in thing else ()
            if "description" in thing:
                yield from (thing.get("name"), thing["description"])


def _shown(page: str, main: bool) -> tuple[str, str]:  # noqa: FBT001
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    tree = HTMLTree.parse(page)
    title = " ".join((tree.title or "").split())[:_SHOWN_TITLE]
    if main:
        text = main_content(tree.body.html if tree.body else "", title)
    else:
        text = extract_plain_text(tree, alt_texts=False, list_bullets=False).strip()
    return text, title
