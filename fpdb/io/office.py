"""Documents of Word and LibreOffice: the text in a ZIP of XML, read by a child process.

As with HTML, a file may be made to keep its reader busy or to fill the memory, so its process has
limits. What isn't in the text that a reader sees is left out: deleted and moved text, comments,
descriptions of pictures, and the second form of a text box, which is for old programs.
"""

import os
import re
import zipfile
from functools import partial
from posixpath import dirname
from typing import IO, cast
from xml.parsers import expat

from fpdb.io.streams import StreamError, too_long
from fpdb.processes import CallError, KeptWorkers, limit

SECONDS = 10.0
MEMORY = 256 << 20
_UNPACKED = 1 << 26
_CHUNK = 1 << 16
_OLD = b"\xd0\xcf\x11\xe0"
_BODY = re.compile(r"word/document[0-9]*\.xml|content\.xml")
_MANIFEST = "META-INF/manifest.xml"
_PARAGRAPHS = frozenset(("p", "h"))
_LEFT_OUT = frozenset(
    (
        *("del", "moveFrom", "Fallback", "pPr", "rPr", "rt"),
        *("tracked-changes", "annotation", "note-citation", "ruby-text", "binary-data"),
        *("svg:title", "svg:desc"),
    )
)
_SIGNS = {
    "tab": "\t",
    "br": "\n",
    "cr": "\n",
    "line-break": "\n",
    "noBreakHyphen": "-",
    "s": " ",
}
_BLANK = re.compile(r"[ \t\r\n]+")
_ENCRYPTED = "is encrypted, or of an old Word: save it as .docx without a password"


def office_text(path: str, largest: int) -> str:
    """Return the text of a document of at most N bytes, a paragraph a line, or raise StreamError.

    Footnotes of Word come at the end.
    """
    try:
        [text] = _readers.values((os.path.abspath(path), largest), MEMORY, SECONDS)
    except CallError as error:
        raise StreamError(f"can't be read as a document: it {error}") from None
    return cast("str", text)


def read_office(item: tuple[str, int]) -> str:
    """Return the text of the document at a path; the system ends this process in time."""
    path, largest = item
    limit(MEMORY, SECONDS)
    try:
        with open(path, "rb") as file:
            return _text(file, largest)
    except (StreamError, MemoryError):
        raise
    except Exception as error:  # whatever damage leads to
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StreamError(f"can't be read as a complete document: {reason:.200}") from None


_readers = KeptWorkers(read_office, lambda: None)


def _text(file: IO[bytes], largest: int) -> str:
    if file.read(len(_OLD)) == _OLD:
        raise StreamError(_ENCRYPTED)
    archive = zipfile.ZipFile(file)
    names = archive.namelist()
    if "encrypted-package" in names or (
        _MANIFEST in names and b"encryption-data" in _member(archive, _MANIFEST).read()
    ):
        raise StreamError(_ENCRYPTED)
    body = next(filter(_BODY.fullmatch, names), None)
    if body is None:
        raise StreamError("holds no text, as .docx and .odt do")
    text = _Text(largest, is_word=body != "content.xml")
    notes = [f"{dirname(body)}/{each}.xml" for each in ("footnotes", "endnotes")]
    for name in (body, *(each for each in notes if each in names)):
        text.read(_member(archive, name))
    found = "\n".join(line for piece in text.paragraphs if (line := "".join(piece)).strip())
    if len(found.encode()) > largest:
        raise too_long(largest)
    return found


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipExtFile:
    # No more than this size is unpacked.
    if (size := archive.getinfo(name).file_size) > _UNPACKED:
        raise StreamError(f"unpacks to {size:,} bytes, expected at most {_UNPACKED:,}")
    return cast("zipfile.ZipExtFile", archive.open(name))


class _Text:
    """Takes the paragraphs of XML, in the order of their beginnings: one may hold others."""

    def __init__(self, largest: int, *, is_word: bool) -> None:
        self.paragraphs: list[list[str]] = []
        self._open: list[list[str]] = []
        self._largest = largest
        self._size = 0
        # In Word, only what is in a "t" is text.
        self._is_word, self._is_text = is_word, not is_word
        self._left_out = 0

    def read(self, file: zipfile.ZipExtFile) -> None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._take
        parser.StartDoctypeDeclHandler = self._refuse
        for chunk in iter(partial(file.read, _CHUNK), b""):
            parser.Parse(chunk)
        parser.Parse(b"", True)  # noqa: FBT003 - it takes no names

    def _start(self, tag: str, _: object) -> None:
        name = tag.rpartition(":")[2]
        if self._left_out or name in _LEFT_OUT or tag in _LEFT_OUT:
            self._left_out += 1
        elif name in _PARAGRAPHS:
            self.paragraphs.append([])
            self._open.append(self.paragraphs[-1])
        elif name == "t":
            self._is_text = True
        elif self._open and name in _SIGNS:
            self._open[-1].append(_SIGNS[name])

    def _end(self, tag: str) -> None:
        name = tag.rpartition(":")[2]
        if self._left_out:
            self._left_out -= 1
        elif name in _PARAGRAPHS:
            self._open.pop()
        elif name == "t":
            self._is_text = not self._is_word

    def _take(self, data: str) -> None:
        if self._open and self._is_text and not self._left_out:
            self._size += len(data)
            if self._size > self._largest:
                raise too_long(self._largest)
            self._open[-1].append(_BLANK.sub(" ", data))

    def _refuse(self, *_: object) -> None:
        raise StreamError("declares types of its own (DTD), which no document needs")
