"""Follow what grows: lines of standard input, or of the files of a directory, as they come."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO

from fpdb.errors import InputError
from fpdb.io.files import SUFFIXES, FolderEntry, LineParts, Part, Source, walk
from fpdb.io.records import BadRecord, Reading

Note = Callable[[str], object]

_CHUNK = 1 << 18
_POLL_SECONDS = 0.1
# Looking for what is new takes at most about this share of a processor.
_POLL_SHARE = 0.1
# These first bytes show whether a file is still the one that was read.
_HEAD = 256
# A file that is moved while the directory is read may be missed; it isn't forgotten at once.
_MISSES = 10


def follow_parts(path: str, reading: Reading, note: Note) -> Iterator[Part]:
    """Yield the lines that come through standard input ("-") or into a directory, as JSON lines.

    Parts are never kept back to become larger. Of a directory, which doesn't end, those files are
    read whose names end like JSON lines. `note` is called when a file was replaced.
    """
    require_followable(path)
    if path == "-":
        return _follow_input(reading)
    return _Folder(reading, path, note).parts()


def require_followable(path: str) -> None:
    """Raise InputError unless a path is a directory or standard input."""
    if path != "-" and not os.path.isdir(path):
        raise InputError(
            f"{path} is no directory, expected one that files are written into, or -",
            hint="tail -F FILE | fpdb follow DB - follows a single file",
        )


def _follow_input(reading: Reading) -> Iterator[Part]:
    lines = LineParts(Source("-", "-", "jsonl", reading))
    # Not through the buffer, whose content select wouldn't see.
    number = sys.stdin.buffer.fileno()
    while data := os.read(number, _CHUNK):
        yield from lines.feed(data)
        if not select.select([number], [], [], 0)[0]:
            yield from lines.rest()
    yield from lines.finish()


@dataclass
class _File:
    """A file, and how far it was read."""

    lines: LineParts
    offset: int = 0
    head: bytes = b""
    misses: int = 0


@dataclass
class _Folder:
    reading: Reading
    root: str
    note: Note

    def __post_init__(self) -> None:
        self._files: dict[tuple[int, int], _File] = {}  # by device and inode
        self._noted: set[str] = set()

    def parts(self) -> Iterator[Part]:
        while True:
            started = time.monotonic()
            found = False
            for part in self._new():
                found = True
                yield part
            if not found:
                took = time.monotonic() - started
                time.sleep(max(_POLL_SECONDS, took / _POLL_SHARE))

    def _new(self) -> Iterator[Part]:
        for file in self._files.values():
            file.misses += 1
        for entry in walk(self.root):
            if entry.problem:
                yield from self._problem(entry.path, entry.problem)
                continue
            known = self._files.get(entry.identity)
            if known is None:
                # A log that is rotated gets another name, and is read to its end nevertheless.
                if SUFFIXES.get(os.path.splitext(entry.name)[1].lower()) != "jsonl":
                    continue
                known = self._begin(entry)
            known.misses = 0
            if entry.size != known.offset:
                yield from self._read(entry)
        for identity in [each for each, file in self._files.items() if file.misses > _MISSES]:
            del self._files[identity]

    def _begin(self, entry: FolderEntry) -> _File:
        file = _File(LineParts(Source(entry.path, entry.name, "jsonl", self.reading)))
        self._files[entry.identity] = file
        return file

    def _read(self, entry: FolderEntry) -> Iterator[Part]:
        try:
            with open(entry.path, "rb", buffering=0) as stream:
                yield from self._read_open(entry, stream)
        except FileNotFoundError:
            return  # it was moved just now, and is found again
        except OSError as error:
            yield from self._problem(entry.path, f"can't be read: {error.strerror}")

    def _read_open(self, entry: FolderEntry, stream: IO[bytes]) -> Iterator[Part]:
        status = os.fstat(stream.fileno())
        if (status.st_dev, status.st_ino) != entry.identity:
            return  # another file has this name now, and is read in its turn
        file = self._files[entry.identity]
        if status.st_size < file.offset or stream.read(len(file.head)) != file.head:
            self.note(f"{entry.path} isn't what it was: read from its beginning again")
            file = self._begin(entry)
        stream.seek(file.offset)
        while data := stream.read(min(_CHUNK, status.st_size - file.offset)):
            if len(file.head) < _HEAD:
                file.head += data[: _HEAD - len(file.head)]
            file.offset += len(data)
            yield from file.lines.feed(data)
        yield from file.lines.rest()

    def _problem(self, path: str, reason: str) -> Iterable[Part]:
        """Report what is wrong with a file, once."""
        if path in self._noted:
            return []
        self._noted.add(path)
        return [partial(tuple, [BadRecord(path, reason)])]
