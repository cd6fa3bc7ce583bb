"""Documents of Word, LibreOffice and PDF: the text of XML or of pages, read by a child process.

As with HTML, a file may be made to keep its reader busy or to fill the memory, so its process has
limits, and so has the unpacking before. Text that a reader doesn't see is left out: deleted and
moved text, comments, descriptions of pictures, and the second form of a text box, which is for old
programs.
"""

import importlib.util
import os
import re
import zipfile
from functools import partial
from posixpath import dirname
from typing import IO, cast
from xml.parsers import expat

from fpdb.errors import MissingExtraError
from fpdb.io.streams import StreamError, too_long
from fpdb.processes import CallError, KeptWorkers, limit

SECONDS = 10.0
MEMORY = 256 << 20
# The parts that are read unpack to so many bytes, and so many times the size of the file.
_UNPACKED, _TIMES = 1 << 22, 100
# The parser begins a tag or a comment again with each chunk that doesn't end it.
_CHUNK, _LONGEST_TAG = 1 << 16, 1 << 22
_OLD, _PDF, _ZIP = b"\xd0\xcf\x11\xe0", b"%PDF-", b"PK"
# A PDF may begin with something else; a sign of its reader's ends the first part of a word.
_HEAD, _HYPHEN = 1024, re.compile("[\x02\ufffe](?:\r?\n)?")
_PDF_DATES = {"CreationDate": "file_created", "ModDate": "file_modified"}
_PDF_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)(\d\d)")
_BODY = re.compile(r"word/document[0-9]*\.xml|content\.xml")
_MANIFEST = "META-INF/manifest.xml"
_PROPERTIES = "docProps/core.xml", "meta.xml"
_DATE = re.compile(
    rb"<(?:\w+:)?(?:(created|creation-date)|modified|date)(?:\s[^<>]*)?>\s*(\d{4}-\d\d-\d\d)"
)
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


def require_pdf() -> None:
    """Raise MissingExtraError unless the package is installed that reads PDF."""
    if importlib.util.find_spec("pypdfium2") is None:
        raise MissingExtraError(
            "PDF needs the package pypdfium2, which isn't installed",
            hint="install the extra pdf, or make text of it: pdftotext a.pdf a.txt",
        )


def read_office(path: str, largest: int) -> dict[str, str]:
    """Return the text of a document of at most N bytes, and its dates, or raise StreamError.

    Each paragraph is a line, or each line of PDF, and footnotes of Word come at the end. The dates
    are those of its properties, as far as they are there: `file_created` and `file_modified`.
    """
    try:
        [fields] = _readers.values((os.path.abspath(path), largest), MEMORY, SECONDS)
    except CallError as error:
        raise StreamError(f"can't be read as a document: it {error}") from None
    return cast("dict[str, str]", fields)


def _read(item: tuple[str, int]) -> dict[str, str]:
    """Return the fields of the document at a path; the system ends this process in time."""
    path, largest = item
    limit(MEMORY, SECONDS)
    try:
        with open(path, "rb") as file:
            return _fields(file, largest)
    except (StreamError, MemoryError):
        raise
    except Exception as error:  # whatever damage leads to
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StreamError(f"can't be read as a complete document: {reason:.200}") from None


_readers = KeptWorkers(_read, lambda: None)


def _fields(file: IO[bytes], largest: int) -> dict[str, str]:
    head = file.read(_HEAD)
    if head.startswith(_OLD):
        raise StreamError(_ENCRYPTED)
    if _PDF in head:
        return _pdf_fields(file, largest)
    if not head.startswith(_ZIP) and not zipfile.is_zipfile(file):
        raise StreamError("is neither a PDF nor a ZIP, as .docx and .odt are")
    archive = zipfile.ZipFile(file)
    names = archive.namelist()
    body = next(filter(_BODY.fullmatch, names), "")
    texts = [body, *(f"{dirname(body)}/{notes}.xml" for notes in ("footnotes", "endnotes"))]
    sizes = {
        name: archive.getinfo(name).file_size
        for name in (*texts, _MANIFEST, *_PROPERTIES)
        if name in names
    }
    # No more than these sizes is unpacked.
    most = _UNPACKED + _TIMES * file.seek(0, os.SEEK_END)
    if (size := sum(sizes.values())) > most:
        raise StreamError(f"unpacks to {size:,} bytes, expected at most {most:,}")
    if "encrypted-package" in names or (
        _MANIFEST in sizes and b"encryption-data" in archive.read(_MANIFEST)
    ):
        raise StreamError(_ENCRYPTED)
    if not body:
        raise StreamError("holds no text, as .docx and .odt do")
    text = _Text(largest, is_word=body != "content.xml")
    for name in filter(sizes.__contains__, texts):
        text.read(cast("zipfile.ZipExtFile", archive.open(name)))
    whole = "\n".join(line for piece in text.paragraphs if (line := "".join(piece)).strip())
    if len(whole.encode()) > largest:
        raise too_long(largest)
    dates = {
        "file_created" if created else "file_modified": day.decode()
        for name in filter(sizes.__contains__, _PROPERTIES)
        for created, day in _DATE.findall(archive.read(name))
    }
    return {"text": whole, **dates}


def _pdf_fields(file: IO[bytes], largest: int) -> dict[str, str]:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(file)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise StreamError("is encrypted: save it without a password") from None
        raise
    pages, size = list[str](), 0
    for page in document:
        text = _HYPHEN.sub("", page.get_textpage().get_text_range()).replace("\r\n", "\n")
        size += len(text.encode("utf-8", "surrogatepass"))
        if size > largest:
            raise too_long(largest)
        pages.append(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        page.close()
    whole = "\n".join(filter(str.strip, pages))
    if not whole:
        raise StreamError("has no text: its pages are pictures, of which OCR makes text")
    properties = document.get_metadata_dict(skip_empty=True)
    dates = {
        field: "-".join(day.groups())
        for name, field in _PDF_DATES.items()
        if (day := _PDF_DATE.match(properties.get(name, "")))
    }
    return {"text": whole, **dates}


class _Text:
    """Takes the paragraphs of XML, in the order of their beginnings: one may hold others."""

    def __init__(self, largest: int, *, is_word: bool) -> None:
        self.paragraphs: list[list[str]] = []
        self._open: list[list[str]] = []
        self._largest = largest
        self._size = 0
        # In Word, only the content of a "t" is text.
        self._is_word, self._is_text = is_word, not is_word
        self._left_out = 0

    def read(self, file: zipfile.ZipExtFile) -> None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._take
        parser.StartDoctypeDeclHandler = self._refuse
        size = 0
        for chunk in iter(partial(file.read, _CHUNK), b""):
            parser.Parse(chunk)
            size += len(chunk)
            if size - parser.CurrentByteIndex > _LONGEST_TAG:
                raise StreamError(f"holds a tag or comment of more than {_LONGEST_TAG:,} bytes")
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
