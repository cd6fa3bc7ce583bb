"""The titles, dates, hosts and links of documents, which their metadata have."""

import contextlib
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fpdb.io.records import Reading

_USUAL = {
    "title": ("title", "headline", "name", "标题", "题目", "题名"),
    "date": (
        *("date", "published", "published_at", "pubdate", "publish_time", "publish_date"),
        *("日期", "发布日期", "发布时间", "发表时间", "时间"),
        *("file_created", "file_modified"),
    ),
    "host": ("host", "site", "source", "来源", "媒体", "网站"),
    "url": ("url", "link", "href", "链接", "网址"),
}
# As the readers of documents of Word and LibreOffice call them.
_PROPERTIES = {
    "file_created": "the property “created” of files",
    "file_modified": "the property “modified” of files",
}
_DATE = re.compile(r"\s*(\d{4})(?:(\d\d)(\d\d)\b|\D{1,2}(\d{1,2})\D{1,2}(\d{1,2}))")
_FIRST_YEAR, _LAST_YEAR = 1000, 2999
_MILLISECONDS = 1e11
_LONGEST_HOST = 253


class ShownFields(NamedTuple):
    """The fields that a way of reading names; where it names none, usual names are looked for."""

    reading: Reading = Reading()

    def name(self, kind: str) -> str | None:
        """Return the given name of the field of a title, date, host or url."""
        name: str | None = getattr(self.reading, f"{kind}_field")
        return name

    def value(self, kind: str, meta: object) -> Any:
        """Return the title, date or host in metadata, or None; a host may be that of a URL."""
        if not isinstance(meta, Mapping):
            return None
        field = self.field(kind, meta)
        if field is None and kind == "host" and self.name(kind) is None:
            return self.link(meta) or None
        return meta.get(field)

    def field(self, kind: str, meta: Mapping[str, Any]) -> str | None:
        """Return the field with the title, date or host in metadata, if one has it."""
        name = self.name(kind)
        names = _USUAL[kind] if name is None else (name,)
        return next((field for field in names if meta.get(field) not in (None, "")), None)

    def link(self, meta: object) -> str:
        """Return the address of a document, if it is one that a browser may open."""
        name = self.name("url")
        names = _USUAL["url"] if name is None else (name,)
        links = (str(meta.get(name)) for name in names) if isinstance(meta, Mapping) else ()
        return next((link for link in links if link.startswith(("http://", "https://"))), "")

    def title_of(self, meta: object) -> str:
        title = self.value("title", meta)
        return title if isinstance(title, str) else ""

    def note(self, meta: object) -> str:
        """Return the day and the host, as far as they are known."""
        day, host = parse_day(self.value("date", meta)), host_of(self.value("host", meta))
        return ", ".join(filter(None, [f"{day or ''}", host]))


def date_origin(field: str) -> str:
    """Say where a date is from that is in a field."""
    return _PROPERTIES.get(field, f"the field “{field}”")


def parse_day(value: object) -> date | None:
    parsed: date | None = None
    with contextlib.suppress(ValueError, OverflowError, OSError, TypeError, IndexError):
        if isinstance(value, date):
            parsed = value.date() if isinstance(value, datetime) else value
        elif isinstance(value, str) and (match := _DATE.match(value)):
            year, month, day, month_apart, day_apart = match.groups()
            parsed = date(int(year), int(month or month_apart), int(day or day_apart))
        elif isinstance(value, str) and not value.strip().isdecimal():
            from email.utils import parsedate  # most commands show no dates

            parsed = date(*(parsedate(value.partition(".")[0] + " +0000") or ())[:3])
        elif isinstance(value, int | float | str):
            seconds = float(value) / (1000 if float(value) > _MILLISECONDS else 1)
            parsed = datetime.fromtimestamp(seconds, UTC).date()
    return parsed if parsed and _FIRST_YEAR <= parsed.year <= _LAST_YEAR else None


def host_of(value: object) -> str:
    name = "" if value is None else str(value).strip()
    with contextlib.suppress(ValueError):
        name = (urlsplit(name).hostname or name) if "://" in name else name
    return name[:_LONGEST_HOST]
