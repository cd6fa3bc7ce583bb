"""Web archives of Browsertrix and others: a ZIP of WARC files, with a list of pages."""

import contextlib
import io
import json
import re
import struct
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, cast

from fpdb.io.html import Page
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import StreamError, Watch
from fpdb.io.warc import read_pages

_WARC = re.compile(r"archive/.*\.warc(?:\.gz|\.zst)?", re.DOTALL)
# Raised where a ZIP, or a file in it, is damaged.
_DAMAGE = (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError)
# A local header has 30 bytes, the last of which are the lengths of two fields after it.
_HEADER, _LENGTHS = 30, struct.Struct("<HH")
# Bytes of the lists of pages, together, of a line, and characters of a title.
_LISTED, _LONGEST_LINE, _LONGEST_TITLE = 1 << 23, 1 << 16, 200


def read_wacz(
    path: str, file: io.BufferedReader, reading: Reading, watch: Watch
) -> Iterator[Page | BadRecord]:
    """Yield the pages of all WARC files in a ZIP, with titles of its list of pages."""
    try:
        archive = zipfile.ZipFile(file)
    except _DAMAGE as error:
        raise StreamError(f"can't be read as a ZIP: {error}") from None
    titles = _titles(archive)
    files = [info for info in archive.infolist() if _WARC.fullmatch(info.filename)]
    if not files:
        raise StreamError("holds no WARC file in its folder archive, as a WACZ does")
    ends = sorted({archive.start_dir, *(info.header_offset for info in archive.infolist())})
    begun = set[int]()
    for info in files:
        name = f"{path}/{info.filename}"
        if info.header_offset in begun:  # under another name
            continue
        begun.add(info.header_offset)
        # As the format says: a WARC file is packed itself, record by record.
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            yield BadRecord(name, "is packed or encrypted in the ZIP, expected it as it is")
            continue
        try:
            end = ends[min(bisect_right(ends, info.header_offset), len(ends) - 1)]
            member = io.BufferedReader(_Stored(file, info, end))
        except _DAMAGE as error:
            yield BadRecord(name, f"can't be read in the ZIP: {error}")
            continue
        pages = read_pages(name, cast("io.BufferedReader", member), reading, watch)
        try:
            yield from (_titled(page, titles) for page in pages)
        except StreamError as error:  # of its dictionary, without which nothing is unpacked
            yield BadRecord(name, str(error))


class _Stored(io.RawIOBase):
    """A file that is in a ZIP as it is.

    The reader of `zipfile` fails as a whole where one byte is wrong, which costs here a record.
    """

    def __init__(self, file: io.BufferedReader, info: zipfile.ZipInfo, end: int) -> None:
        """Take the size that a header says, up to the place where the next one begins."""
        self._file, self._place = file, 0
        file.seek(info.header_offset)
        head = file.read(_HEADER)
        if len(head) < _HEADER:
            raise zipfile.BadZipFile("it ends before a file")
        self._start = info.header_offset + _HEADER + sum(_LENGTHS.unpack(head[-_LENGTHS.size :]))
        if self._start > end:
            raise zipfile.BadZipFile("its header reaches into what follows it")
        self._size = min(info.file_size, end - self._start)

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


def _titles(archive: zipfile.ZipFile) -> dict[str, str]:
    """Return the titles of pages by their addresses, as far as the lists have them."""
    titles: dict[str, str] = {}
    left = _LISTED
    for info in archive.infolist():
        listed = info.filename.startswith("pages/") and info.filename.endswith(".jsonl")
        if not listed or info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            continue
        with contextlib.suppress(*_DAMAGE), archive.open(info) as packed:
            lines = io.BufferedReader(cast("io.RawIOBase", packed))  # ten times as fast
            while left > 0 and (line := lines.readline(_LONGEST_LINE)):
                left -= len(line)
                if b'"title"' in line:
                    titles |= _title_in(line)
    return titles


def _title_in(line: bytes) -> dict[str, str]:
    """Return the title of a page by its address; as that of HTML, it is on one line."""
    try:
        page = json.loads(line)
        title = " ".join(page["title"].split())[:_LONGEST_TITLE]
        return {str(page["url"]): title.encode("utf-8", "replace").decode()} if title else {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def _titled(page: Page | BadRecord, titles: dict[str, str]) -> Page | BadRecord:
    if isinstance(page, Page) and page.meta is not None and (title := titles.get(str(page.key))):
        page.meta.setdefault("title", title)
    return page


# What yields the pages of an archive, by its format.
ARCHIVES = {"warc": read_pages, "wacz": read_wacz}
