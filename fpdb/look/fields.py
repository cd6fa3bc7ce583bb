"""Where the metadata of a document have its title, date, host and link."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from fpdb.io.records import Reading

_USUAL = {
    "title": ("title", "headline", "name", "标题", "题目", "题名"),
    "date": (
        *("date", "published", "published_at", "pubdate", "publish_time", "publish_date"),
        *("日期", "发布日期", "发布时间", "发表时间", "时间"),
    ),
    "host": ("host", "site", "source", "来源", "媒体", "网站"),
    "url": ("url", "link", "href", "链接", "网址"),
}


class ShownFields(NamedTuple):
    """The names of fields; where none is given, usual names are looked for."""

    title: str | None = None
    date: str | None = None
    host: str | None = None
    url: str | None = None

    @classmethod
    def of(cls, reading: Reading) -> Self:
        """Return the fields that a way of reading names."""
        return cls(reading.title_field, reading.date_field, reading.host_field, reading.url_field)

    def value(self, kind: str, meta: object) -> Any:
        """Return the title, date or host in metadata, or None; a host may be that of a URL."""
        if not isinstance(meta, Mapping):
            return None
        name = getattr(self, kind)
        names = _USUAL[kind] if name is None else (name,)
        found = next((meta[each] for each in names if meta.get(each) not in (None, "")), None)
        if found is None and kind == "host" and name is None:
            return self.link(meta) or None
        return found

    def link(self, meta: object) -> str:
        """Return the address of a document, if it is one that a browser may open."""
        names = _USUAL["url"] if self.url is None else (self.url,)
        found = (str(meta.get(name)) for name in names) if isinstance(meta, Mapping) else ()
        return next((each for each in found if each.startswith(("http://", "https://"))), "")

    def title_of(self, meta: object) -> str:
        """Return the title, or nothing."""
        found = self.value("title", meta)
        return found if isinstance(found, str) else ""
