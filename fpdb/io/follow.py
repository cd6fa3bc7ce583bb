"""Follow what grows: lines of standard input, or of the files of a directory, as they come."""

import io
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO

from fpdb.errors import InputError
from fpdb.io import folders
from fpdb.io.fields import BadRecord, Fields
from fpdb.io.formats import FORMATS, SUFFIXES, Source
from fpdb.io.markup import Markup
from fpdb.io.parts import PART, PART_BYTES, Part
from fpdb.io.records import Reader
from fpdb.io.streams import TooLong

# Waits until a file (by its number) has something to read, or for so many seconds, and says
# whether to go on.
Wait = Callable[[int | None, float | None], bool]
Tell = Callable[[str], object]

_CHUNK = 1 << 18
_MARK = b"\xef\xbb\xbf"
_POLL_SECONDS = 0.1
# Looking for what is new takes at most about this share of a processor.
_POLL_SHARE = 0.1
# So many bytes tell whether a file is still the one that was read.
_HEAD = 256
# A file that is moved while the directory is read may be missed; it isn't forgotten at once.
_MISSES = 10


def wait_for_input(number: int | None, seconds: float | None) -> bool:
    """Wait until a file, by its number, has something to read, or for some seconds."""
    select.select([] if number is None else [number], [], [], seconds)
    return True


def follow_parts(
    path: str,
    *,
    fields: Fields,
    max_bytes: int,
    every: bool,
    wait: Wait,
    tell: Tell,
    markup: Markup | None = None,
) -> Iterator[Part]:
    """Give the lines that come through standard input ("-") or into a directory, as JSON lines.

    They come in parts of what is there, which are never kept back to become larger. Standard
    input ends; a directory doesn't, and of its files those are read whose names say that they
    hold JSON lines, or `every` one. A last line without an end counts as one when standard input
    has ended; in a file it is waited for. `tell` is told what happens to files.
    """
    require_followable(path)
    reader = Reader(fields, min(max_bytes, sys.maxsize // 2), markup or Markup())
    if path == "-":
        return _follow_input(reader, wait)
    return _Folder(reader, path, every, wait, tell).parts()


def require_followable(path: str) -> None:
    """Raise InputError unless a path is a directory or standard input."""
    if path != "-" and not os.path.isdir(path):
        raise InputError(
            f"{path} is no directory, expected one that files are written into, or -",
            hint="tail -F FILE | fpdb ingest DB --follow - follows a single file",
        )


class _Lines:
    """Cuts bytes into lines as they come; a line that is too long is passed over."""

    def __init__(self, reader: Reader, path: str, name: str) -> None:
        self._reader = reader
        self._path = path
        self._name = name
        self._number = 1
        self._rest = bytearray()
        self._passing = False
        self.found: list[bytes | TooLong] = []
        self.size = 0

    def feed(self, data: bytes) -> None:
        """Take bytes; what ends in them is found."""
        self.size += len(data)
        *ended, rest = data.split(b"\n")
        for line in ended:
            self._rest += line
            self._end()
        self._rest += rest
        self._bound()

    def finish(self) -> None:
        """Take what has no end as a line."""
        if self._rest or self._passing:
            self._end()

    def _bound(self) -> None:
        if len(self._rest) > self._reader.largest + 1:  # a carriage return doesn't count
            self._passing = True
        if self._passing:
            self._rest.clear()

    def _end(self) -> None:
        line = bytes(self._rest)
        if self._number + len(self.found) == 1:
            line = line.removeprefix(_MARK)
        long = self._passing or len(line.removesuffix(b"\r")) > self._reader.largest
        self.found.append(TooLong(0) if long else line + b"\n")
        self._rest.clear()
        self._passing = False

    @property
    def full(self) -> bool:
        """Whether there is enough for a part."""
        return len(self.found) >= PART or self.size >= PART_BYTES

    def parts(self) -> Iterator[Part]:
        """Hand over what was found."""
        for start in range(0, len(self.found), PART):
            lines = self.found[start : start + PART]
            first = self._number + start
            taken = Source(
                io.BytesIO(), self._name, self._reader.fields, self._reader.largest, lines, first
            )
            yield partial(self._reader.found, self._path, FORMATS["jsonl"], taken)
        self._number += len(self.found)
        self.found = []
        self.size = 0


def _follow_input(reader: Reader, wait: Wait) -> Iterator[Part]:
    lines = _Lines(reader, "-", "-")
    # Not through the buffer, whose content select wouldn't see.
    number = sys.stdin.buffer.fileno()
    going = wait(number, None)
    while going:
        data = os.read(number, _CHUNK)
        if not data:
            lines.finish()
            yield from lines.parts()
            return
        lines.feed(data)
        if lines.full or not select.select([number], [], [], 0)[0]:
            yield from lines.parts()
            going = wait(number, None)


@dataclass
class _File:
    """How far a file was read."""

    lines: _Lines
    offset: int = 0
    head: bytes = b""
    misses: int = 0


@dataclass
class _Folder:
    reader: Reader
    root: str
    every: bool
    wait: Wait
    tell: Tell

    def __post_init__(self) -> None:
        self._files: dict[tuple[int, int], _File] = {}  # by device and inode
        self._told: set[str] = set()

    def parts(self) -> Iterator[Part]:
        pause = 0.0
        while self.wait(None, pause):
            started = time.monotonic()
            found = False
            for part in self._new():
                found = True
                yield part
                if not self.wait(None, 0):
                    return
            took = time.monotonic() - started
            pause = 0 if found else max(_POLL_SECONDS, took / _POLL_SHARE)

    def _new(self) -> Iterator[Part]:
        for file in self._files.values():
            file.misses += 1
        for entry in folders.walk(self.root):
            if entry.problem:
                yield from self._problem(entry.path, entry.problem)
                continue
            known = self._files.get(entry.identity)
            if known is None:
                # A log that is rotated gets another name, and is read to its end nevertheless.
                if not (self.every or _holds_lines(entry.name)):
                    continue
                known = self._begin(entry)
            known.misses = 0
            if entry.size != known.offset:
                yield from self._read(entry)
        for identity in [each for each, file in self._files.items() if file.misses > _MISSES]:
            del self._files[identity]

    def _begin(self, entry: folders.Entry) -> _File:
        file = _File(_Lines(self.reader, entry.path, entry.name))
        self._files[entry.identity] = file
        return file

    def _read(self, entry: folders.Entry) -> Iterator[Part]:
        try:
            with open(entry.path, "rb", buffering=0) as stream:
                yield from self._read_open(entry, stream)
        except FileNotFoundError:
            return  # it was moved just now, and is found again
        except OSError as error:
            yield from self._problem(entry.path, f"can't be read: {error.strerror}")

    def _read_open(self, entry: folders.Entry, stream: IO[bytes]) -> Iterator[Part]:
        status = os.fstat(stream.fileno())
        if (status.st_dev, status.st_ino) != entry.identity:
            return  # another file has this name now; its turn comes
        file = self._files[entry.identity]
        if status.st_size < file.offset or stream.read(len(file.head)) != file.head:
            self.tell(f"{entry.path} isn't what it was: read from its beginning again")
            file = self._begin(entry)
        stream.seek(file.offset)
        while file.offset < status.st_size:
            data = stream.read(min(_CHUNK, status.st_size - file.offset))
            if not data:
                break
            if len(file.head) < _HEAD:
                file.head += data[: _HEAD - len(file.head)]
            file.offset += len(data)
            file.lines.feed(data)
            if file.lines.full:
                yield from file.lines.parts()
        yield from file.lines.parts()

    def _problem(self, path: str, reason: str) -> Iterable[Part]:
        """Say what is wrong with a file, once."""
        if path in self._told:
            return []
        self._told.add(path)
        return [partial(tuple, [BadRecord(path, reason)])]


def _holds_lines(name: str) -> bool:
    return SUFFIXES.get(os.path.splitext(name)[1].lower()) == "jsonl"
