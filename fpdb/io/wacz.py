"""Web archives of Browsertrix and others: a ZIP of WARC files, with a list of pages."""

import contextlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, cast

from fpdb.io.html import Page
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import StreamError, Watch
from fpdb.io.warc import read_pages

_WARC = (".warc", ".warc.gz", ".warc.zst")
# Raised where a ZIP, or what is in it, is damaged.
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError)
# A local header has 30 bytes, of which the last are the lengths of what follows it.
_HEADER, _LENGTHS = 30, struct.Struct("<HH")
# Bytes of a list of pages, which has their titles.
_LARGEST_LIST = 1 << 26


def read_wacz(
    path: str, file: io.BufferedReader, reading: Reading, watch: Watch
) -> Iterator[Page | BadRecord]:
    """Yield the pages of all WARC files in a ZIP, with titles of its list of pages."""
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGE as error:
        raise StreamError(f"can't be read as a ZIP: {error}") from None
    titles = _titles(archive)
    files = [info for info in archive.infolist() if _is_warc(info.filename)]
    if not files:
        raise StreamError("holds no WARC file in its folder archive, as a WACZ does")
    for info in files:
        name = f"{path}/{info.filename}"
        # As the format says: a WARC file is packed itself, record by record.
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            yield BadRecord(name, "is packed or encrypted in the ZIP, expected it as it is")
            continue
        try:
            member = io.BufferedReader(_Stored(file, info))
        except _DAMAGE as error:
            yield BadRecord(name, f"can't be read in the ZIP: {error}")
            continue
        pages = read_pages(name, cast("io.BufferedReader", member), reading, watch)
        yield from (_titled(page, titles) for page in pages)


class _Stored(io.RawIOBase):
    """A file that is in a ZIP as it is.

    The reader of `zipfile` fails as a whole where one byte is wrong, which costs here a record.
    """

    def __init__(self, file: io.BufferedReader, info: zipfile.ZipInfo) -> None:
        self._file, self._size, self._place = file, info.file_size, 0
        file.seek(info.header_offset)
        head = file.read(_HEADER)
        if len(head) < _HEADER:
            raise zipfile.BadZipFile("it ends before a file")
        self._start = info.header_offset + _HEADER + sum(_LENGTHS.unpack(head[-_LENGTHS.size :]))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        self._place = place + {io.SEEK_SET: 0, io.SEEK_CUR: self._place}[whence]
        return self._place

    def readinto(self, buffer: Any) -> int:
        self._file.seek(self._start + self._place)
        size = max(min(len(buffer), self._size - self._place), 0)
        size = self._file.readinto(memoryview(buffer)[:size])
        self._place += size
        return size


def _is_warc(name: str) -> bool:
    return name.startswith("archive/") and name.endswith(_WARC)


def _titles(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the titles of pages by their addresses, as far as the lists have them."""
    titles: dict[str, str] = {}
    for name in archive.namelist():
        if name.startswith("pages/") and name.endswith(".jsonl"):
            lines: list[bytes] = []
            with contextlib.suppress(*_DAMAGE), archive.open(name) as file:
                lines = file.read(_LARGEST_LIST).splitlines()
            for page in filter(None, map(_listed, lines)):
                url, title = page.get("url"), page.get("title")
                if isinstance(url, str) and isinstance(title, str) and title:
                    titles[url] = title
    return titles


def _listed(line: bytes) -> dict[str, Any] | None:
    try:
        page = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return page if isinstance(page, dict) else None


def _titled(page: Page | BadRecord, titles: dict[str, str]) -> Page | BadRecord:
    title = titles.get(str(page.key)) if isinstance(page, Page) else None
    if isinstance(page, Page) and page.meta is not None and title:
        page.meta.setdefault("title", title)
    return page


# What yields the pages of an archive, by its format.
ARCHIVES = {"warc": read_pages, "wacz": read_wacz}
