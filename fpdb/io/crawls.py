"""From the records of an archive to pages: what is taken of a crawl, and what is passed over."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fpdb.io.archives import Broken, Capture, read_captures
from fpdb.io.fields import BadRecord
from fpdb.io.markup import Markup, Page, is_html, media_type
from fpdb.io.members import Members
from fpdb.io.responses import ResponseError, body_of, parse_response

# An HTTP head comes on top of the body, and chunks have ends of their own.
_HEAD = 1 << 18
_SNIFFED = 1 << 10
_LARGEST_FIELD = 200
# Tools note such things about their own work.
_OF_TOOLS = ("metadata:", "urn:", "dns:", "whois:")


@dataclass(frozen=True)
class Passing:
    """What an archive's reader asks and tells while it reads.

    `known` says of a key and metadata whether that very record is stored; `passed` is told why a
    record was passed over: its kind, or "status", "type" or "known".
    """

    known: Callable[[str, Mapping[str, Any]], bool]
    passed: Callable[[str], object]


def read_pages(
    path: str,
    chunks: Iterator[bytes],
    markup: Markup,
    largest: int,
    passing: Passing | None,
) -> Iterator[Page | BadRecord]:
    """Read the pages of an archive: responses with status 200, resources, and conversions."""
    for found in read_captures(Members(chunks), largest + _HEAD):
        if isinstance(found, Broken):
            yield BadRecord(f"{path}:{found.place}", found.reason)
            continue
        source = f"{path}:{found.place}"
        try:
            page = _page(found, source, markup, largest)
        except ResponseError as error:
            yield BadRecord(source, str(error))
        except _PassedOver as why:
            if passing:
                passing.passed(str(why))
        else:
            if passing and passing.known(str(page.key), page.meta or {}):
                passing.passed("known")
            else:
                yield page


class _PassedOver(Exception):  # noqa: N818 - it is none
    """A record is no page; says why."""


def _page(capture: Capture, source: str, markup: Markup, largest: int) -> Page:
    headers = capture.headers
    if capture.kind not in {"response", "resource", "conversion"}:
        known = capture.kind in {"revisit", "request", "metadata", "warcinfo"}
        raise _PassedOver(capture.kind if known else "other")
    uri = headers.get("warc-target-uri", "").strip()
    if uri.startswith("<") and uri.endswith(">"):  # as wget once wrote them
        uri = uri[1:-1]
    if not uri:
        raise ResponseError("has no WARC-Target-URI")
    if uri.lower().startswith(_OF_TOOLS):
        raise _PassedOver("other")
    body, content_type, status = capture.block, headers.get("content-type", ""), None
    if capture.kind == "response":
        body, content_type = _payload(capture, markup, largest)
        status = 200
    content_type = content_type or _sniffed(body)
    if not _is_text(content_type):
        raise _PassedOver("type")
    html = is_html(content_type)
    meta: dict[str, Any] = {
        "date": headers.get("warc-date"),
        "status": status,
        "digest": headers.get("warc-payload-digest")
        or headers.get("warc-block-digest")
        or _digest(body),
        "type": media_type(content_type),
        "truncated": headers.get("warc-truncated"),
        "html": markup.text if html and markup.html != "none" else None,
    }
    meta = {
        name: value[:_LARGEST_FIELD] if isinstance(value, str) else value
        for name, value in meta.items()
        if value
    }
    return Page(source, uri, body, meta, content_type[:_LARGEST_FIELD], html)


def _payload(capture: Capture, markup: Markup, largest: int) -> tuple[bytes, str]:
    """Unpack the body of an HTTP response, if it has one that is worth it; and give its type."""
    arc = capture.headers.get("arc-type")
    media = media_type(capture.headers.get("content-type", ""))
    spoken = capture.block.startswith(b"HTTP") if arc else media in {"", "application/http"}
    if not spoken:
        raise _PassedOver("other")
    response = parse_response(capture.block)
    if response.status != 200:
        raise _PassedOver("status")
    content_type = response.headers.get("content-type") or arc or ""
    if content_type and not _is_text(content_type):
        raise _PassedOver("type")
    html = is_html(content_type) and markup.html != "none"
    return body_of(response, markup.largest if html else largest), content_type


def _is_text(content_type: str) -> bool:
    return is_html(content_type) or media_type(content_type) == "text/plain"


def _sniffed(body: bytes) -> str:
    """Tell the type of a body that has none: HTML if it says so itself."""
    head = body[:_SNIFFED].lower()
    return "text/html" if b"<html" in head or b"<!doctype html" in head else ""


def _digest(body: bytes) -> str:
    """Digest a body as the headers of an archive do."""
    digest = hashlib.sha1(body, usedforsecurity=False).digest()
    return f"sha1:{base64.b32encode(digest).decode()}"
