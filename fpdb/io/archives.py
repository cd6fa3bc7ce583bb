"""The records of WARC and ARC files: a broken one is told with its place, and passed over."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from fpdb.io.members import BrokenError, MemberError, Members

_LINE = 1 << 16
_HEADERS = 200
_WARC = re.compile(rb"WARC/\d{1,3}\.\d{1,3}[ \t]*\r?\n")
_SCHEME = re.compile(rb"[A-Za-z][\w+.-]{0,30}:")
_ADDRESS = re.compile(rb"[0-9A-Fa-f.:]{1,45}|-")
_DATE = re.compile(rb"\d{12,18}")
_KEPT = frozenset({"response", "resource", "conversion"})


@dataclass(frozen=True)
class Capture:
    """A record: where it lies, its headers by their small names, and its block if it is kept."""

    place: str
    kind: str
    headers: dict[str, str]
    block: bytes = field(repr=False)


@dataclass(frozen=True)
class Broken:
    """A place where no record can be read, and why."""

    place: str
    reason: str


def read_captures(members: Members, largest: int) -> Iterator[Capture | Broken]:
    """Read an archive; the blocks of responses, resources and conversions are kept.

    A block of more than `largest` bytes makes its record a broken one.
    """
    reader = _Reader(members, largest)
    while True:
        members.begin()
        place = members.place
        try:
            place = reader.find()
            if not place:
                return
            yield reader.record(place)
        except BrokenError as error:
            yield Broken(place or members.place, str(error))
            if isinstance(error, MemberError):
                members.abandon()
            reader.recover()


class _Reader:
    def __init__(self, members: Members, largest: int) -> None:
        self._members = members
        self._largest = largest
        # Up to here everything was read twice already, so that nothing is read over and over.
        self._horizon = 0

    def find(self) -> str:
        """Go to the next record, past empty lines, and say where it lies; empty at the end."""
        while True:
            self._members.member_ended()
            line = self._members.line(_LINE, keep=True)
            if not line:
                return ""
            if line.strip(b"\r\n"):
                return self._members.place
            self._members.line(_LINE)

    def record(self, place: str) -> Capture:
        """Read the record that begins here."""
        first = self._members.line(_LINE)
        if _WARC.fullmatch(first):
            headers = self._headers()
            length = headers.get("content-length", "")
            kind = headers.get("warc-type", "").lower()
        elif arc := _arc_header(first):
            url, date, media, length = arc
            kind = "warcinfo" if url.startswith("filedesc:") else "response"
            headers = {"warc-target-uri": url, "warc-date": _date(date), "arc-type": media}
        else:
            raise BrokenError("no record begins here")
        if not (length.isascii() and length.isdigit() and len(length) <= 18):
            raise BrokenError(f"found the length {length[:40]!r}, expected a number")
        return Capture(place, kind, headers, self._block(kind, int(length)))

    def recover(self) -> None:
        """Go to the next line that looks like the beginning of a record."""
        while True:
            try:
                self._members.begin()
                line = self._members.line(_LINE, keep=True)
                if not line or _begins_record(line):
                    return
                self._members.line(_LINE)
            except BrokenError:
                self._members.abandon()

    def _headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        name = ""
        for _ in range(_HEADERS):
            line = self._members.line(_LINE)
            if line in {b"\r\n", b"\n"}:
                return headers
            if not line.endswith(b"\n"):
                raise BrokenError("has a header that doesn't end")
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text[:1] in {" ", "\t"} and name:
                headers[name] += " " + text.strip()
                continue
            before, colon, after = text.partition(":")
            if not colon:
                raise BrokenError("has a header without a colon")
            name = before.strip().lower()
            headers.setdefault(name, after.strip())
        raise BrokenError(f"has more than {_HEADERS} headers")

    def _block(self, kind: str, length: int) -> bytes:
        members, start = self._members, self._members.position
        kept = kind in _KEPT and length <= self._largest
        # What isn't kept is, up to a bound, held back in case that the length is wrong.
        block = members.read(min(length, self._largest))
        got = len(block) + members.skip(length - len(block))
        ended = got == length and self._ends()
        if not ended:
            if start >= self._horizon and len(block) == members.position - start:
                self._horizon = members.position
                members.put_back(block)
            if got < length:
                raise BrokenError(f"ends after {got:,} of {length:,} bytes")
            raise BrokenError(f"has {length:,} bytes, and then there is no other record")
        if kind in _KEPT and not kept:
            raise BrokenError(f"holds {length:,} bytes, expected at most {self._largest:,}")
        return block if kept else b""

    def _ends(self) -> bool:
        """Whether behind a block there is the end of its member, or of the file, or a record."""
        while not self._members.member_ended():
            line = self._members.line(_LINE, keep=True)
            if line.strip(b"\r\n"):
                return _begins_record(line)
            if not line:
                break
            self._members.line(_LINE)
        return True


def _begins_record(line: bytes) -> bool:
    return bool(_WARC.fullmatch(line) or _arc_header(line))


def _arc_header(line: bytes) -> tuple[str, str, str, str] | None:
    """Split the header line of an ARC record: its URL, date, type and length."""
    if not (_SCHEME.match(line) and line.endswith(b"\n")):
        return None
    fields = line.rstrip(b"\r\n \t").split(b" ")
    # A URL may hold spaces, so the date tells where it ends.
    for place in range(2, len(fields) - 2):
        if _DATE.fullmatch(fields[place]) and _ADDRESS.fullmatch(fields[place - 1]):
            url = b" ".join(fields[: place - 1])
            parts = (url, fields[place], fields[place + 1], fields[-1])
            first, date, media, length = (part.decode("utf-8", "replace") for part in parts)
            return first, date, media, length
    return None


def _date(digits: str) -> str:
    """Write the date of an ARC record as WARC does; one that is none is left out."""
    if len(digits) != 14:
        return ""
    day = f"{digits[:4]}-{digits[4:6]}-{digits[6:8]}"
    return f"{day}T{digits[8:10]}:{digits[10:12]}:{digits[12:14]}Z"
