"""Follow what grows: lines of standard input, or of the files of a directory, as they come."""

import hashlib
import os
import select
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import IO, NamedTuple

import numpy as np

from fpdb.arrays import Places
from fpdb.errors import InputError
from fpdb.io.files import FolderEntry, LineParts, Part, Source, walk
from fpdb.io.records import BadRecord, Reading
from fpdb.io.streams import SUFFIXES, explained, named, opened
from fpdb.storage.format import FileIdentity, FilePlace, FilePlaces

Note = Callable[[str], object]

_CHUNK = 1 << 18
_POLL_SECONDS = 0.1
# Looking for what is new takes at most about this share of a processor.
_POLL_SHARE = 0.1
# These first bytes, and those before the place, show whether a file is still what was read.
_HEAD = 256
# A file that is moved while the directory is read may be missed; it isn't forgotten at once.
_MISSES = 10


class NewPart(NamedTuple):
    """Lines that are new, and how far the files are read with them."""

    part: Part
    places: FilePlaces = MappingProxyType({})


def follow_parts(
    path: str, reading: Reading, note: Note, known: Iterable[FilePlace] = ()
) -> Iterator[NewPart]:
    """Yield the lines that come through standard input ("-") or into a directory, as JSON lines.

    Parts are never kept back to become larger. Of a directory, which doesn't end, those files are
    read whose names end like JSON lines, each from the place on that is `known`. `note` is called
    when a file was replaced.
    """
    require_followable(path)
    if path == "-":
        return map(NewPart, _follow_input(reading))
    return _Folder(reading, path, note, known).parts()


def require_followable(path: str) -> None:
    """Raise InputError unless a path is a directory or standard input."""
    if path != "-" and not os.path.isdir(path):
        raise InputError(
            f"{path} is no directory, expected one that files are written into, or -",
            hint="tail -F FILE | fpdb follow DB - follows a single file",
        )


def _follow_input(reading: Reading) -> Iterator[Part]:
    lines = LineParts(Source("-", "-", "jsonl", reading))
    with named("-"), explained(), opened("-") as file:
        # Not through the buffer, whose content select wouldn't see.
        number = file.fileno()
        while data := os.read(number, _CHUNK):
            yield from lines.feed(data)
            if not select.select([number], [], [], 0)[0]:
                yield from lines.rest()
    yield from lines.finish()


@dataclass
class _File:
    """A file, and how far it was read: to the offset, in parts to the place."""

    lines: LineParts
    place: FilePlace | None = None
    offset: int = 0
    # Where the lines end that are in no part yet.
    ends: Places = field(default_factory=lambda: np.empty(0, np.int64))


class _Folder:
    """A directory that is followed, from the places on that were stored."""

    def __init__(self, reading: Reading, root: str, note: Note, known: Iterable[FilePlace]) -> None:
        self._reading, self._root, self._note = reading, root, note
        self._real = os.path.realpath(root)
        self._files: dict[FileIdentity, _File] = {}
        # The places of files that aren't among those; and what was stored, by the paths of then,
        # under each of which several files may have been.
        self._known = {place.identity: place for place in known}
        self._paths: defaultdict[str, list[FilePlace]] = defaultdict(list)
        for place in sorted(self._known.values(), key=attrgetter("offset"), reverse=True):
            self._paths[place.path].append(place)
        # In how many looks, one after the other, files were missing.
        self._misses: dict[FileIdentity, int] = {}
        self._waited = False
        self._noted: set[str] = set()

    def parts(self) -> Iterator[NewPart]:
        while True:
            started = time.monotonic()
            found = False
            for part in self._new():
                found = True
                yield part
            if not found:
                took = time.monotonic() - started
                time.sleep(max(_POLL_SECONDS, took / _POLL_SHARE))

    def _new(self) -> Iterator[NewPart]:
        older: list[FolderEntry] = []
        newer: list[FolderEntry] = []
        missing = self._files.keys() | self._known.keys()
        for entry in walk(self._root):
            if entry.problem:
                yield from self._problem(entry.path, entry.problem)
                continue
            missing.discard(entry.identity)
            # A log that is rotated gets another name, and is read to its end nevertheless.
            if file := self._files.get(entry.identity):
                if entry.size != file.offset:
                    older.append(entry)
            elif entry.identity in self._known:
                older.append(entry)
            elif SUFFIXES.get(os.path.splitext(entry.name)[1].lower()) == "jsonl":
                newer.append(entry)
        # A file that was moved while the directory was read comes before what replaced it: so new
        # ones wait for the next look if one is missing.
        self._waited = not self._waited and bool(missing - self._misses.keys())
        self._misses = {identity: self._misses.get(identity, 0) + 1 for identity in missing}
        for entries in (older, [] if self._waited else newer):
            for entry in sorted(entries, key=attrgetter("modified", "path")):
                yield from self._read(entry)

    def _read(self, entry: FolderEntry) -> Iterator[NewPart]:
        try:
            with open(entry.path, "rb", buffering=0) as stream:
                status = os.fstat(stream.fileno())
                # Another file may have this name now, and is read in its turn.
                if (status.st_dev, status.st_ino) == entry.identity:
                    yield from self._read_open(entry, stream, status.st_size)
        except FileNotFoundError:
            return  # it was moved just now, and is found again
        except OSError as error:
            yield from self._problem(entry.path, f"can't be read: {error.strerror}")

    def _read_open(self, entry: FolderEntry, stream: IO[bytes], size: int) -> Iterator[NewPart]:
        file = self._file_of(entry, stream.fileno(), size)
        stream.seek(file.offset)
        while data := stream.read(min(_CHUNK, size - file.offset)):
            ends = (np.frombuffer(data, np.uint8) == ord("\n")).nonzero()[0]
            file.ends = np.concatenate([file.ends, ends + (file.offset + 1)])
            file.offset += len(data)
            for part in file.lines.feed(data):
                yield self._placed(entry, file, stream.fileno(), part)
        for part in file.lines.rest():
            yield self._placed(entry, file, stream.fileno(), part)

    def _file_of(self, entry: FolderEntry, number: int, size: int) -> _File:
        """Return how far an open file was read; one that isn't what was read begins anew."""
        file, path = self._files.get(entry.identity), self._path(entry)
        own = file.place if file else self._known.pop(entry.identity, None)
        stored = [own, *self._paths[path]] if own else self._paths[path]
        # The one up to which the file still has what was read.
        place = next((each for each in stored if _digest(number, each.offset) == each.digest), None)
        if file and place and place == own and size >= file.offset:
            return file
        if own and not place and (file or own.path == path):
            self._note(f"{entry.path} isn't what it was: read from its beginning again")
        first, offset = (place.lines + 1, place.offset) if place else (1, 0)
        source = Source(entry.path, entry.name, "jsonl", self._reading, first=first)
        file = self._files[entry.identity] = _File(LineParts(source), place, offset)
        return file

    def _placed(self, entry: FolderEntry, file: _File, number: int, part: Part) -> NewPart:
        """Say how far the file is read with a part."""
        count = file.lines.taken - (file.place.lines if file.place else 0)
        offset = int(file.ends[count - 1])
        file.ends = file.ends[count:]
        digest = _digest(number, offset)
        file.place = FilePlace(entry.identity, self._path(entry), offset, file.lines.taken, digest)
        # Until then, a file that is missing may come back.
        gone = [each for each in self._files if self._misses.get(each, 0) > _MISSES]
        for each in gone:
            del self._files[each]
        return NewPart(part, {**dict.fromkeys(gone), entry.identity: file.place})

    def _path(self, entry: FolderEntry) -> str:
        return os.path.join(self._real, entry.name)

    def _problem(self, path: str, reason: str) -> Iterable[NewPart]:
        if path in self._noted:
            return []
        self._noted.add(path)
        return [NewPart(partial(tuple, [BadRecord(path, reason)]))]


def _digest(number: int, offset: int) -> bytes:
    """Return the digest of the head of an open file, and of what is before an offset."""
    length = min(_HEAD, offset)
    ends = os.pread(number, length, 0) + os.pread(number, length, offset - length)
    return hashlib.blake2b(ends, digest_size=16).digest()
