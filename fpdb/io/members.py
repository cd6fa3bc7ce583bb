"""The bytes of an archive, unpacked, with the places where they lie in its file.

Each record of a packed archive is a member of its own, so that one can be found without those
before it. That is also what lets reading go on behind a damaged one.
"""

import time
from collections import deque
from collections.abc import Iterator

from fpdb.io.streams import Packing, Unpacker, packing_of

# No record that anybody wants comes near these.
MOST_BYTES = 1 << 30
MOST_SECONDS = 60.0
_COMPACT = 1 << 20
_RECORD = b"WARC/"


class BrokenError(Exception):
    """No record can be read at this place; says why."""


class MemberError(BrokenError):
    """What lies here can't be unpacked, or goes on for too long."""


class Members:
    """Reads an archive from its beginning to its end."""

    def __init__(
        self,
        chunks: Iterator[bytes],
        *,
        most_bytes: int = MOST_BYTES,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self._chunks = chunks
        self._most_bytes, self._most_seconds = most_bytes, most_seconds
        # What was read of the file, how much of it was taken, and the offset of what is left.
        self._raw = b""
        self._taken = 0
        self._offset = 0
        # What was unpacked, from `_next` on not given yet; `position` counts what was given.
        self._buffer = bytearray()
        self._next = 0
        self.position = 0
        self._begins: deque[tuple[int, int]] = deque([(0, 0)])
        self._unpacker: Unpacker | None = None
        self._failure: type[Exception] = ValueError
        self._waited = 0.0
        self._more_raw()
        self._packing: Packing | None = packing_of(self._raw)
        self.begin()

    @property
    def place(self) -> str:
        """The offset of what comes next in the file, and how far behind its member's beginning."""
        if self._packing is None:
            return str(self.position)
        if not self._waiting and self._unpacker is None:
            return str(self._offset)
        position, offset = self._member()
        inside = self.position - position
        return f"{offset}+{inside}" if inside else str(offset)

    def begin(self) -> None:
        """Begin to measure what a record takes."""
        self._since = self.position
        self._due = time.monotonic() - self._waited + self._most_seconds

    def line(self, limit: int, *, keep: bool = False) -> bytes:
        """Give the next line with its end, or so many bytes of it; keep it there if wished."""
        sought = 0
        while True:
            end = self._buffer.find(b"\n", self._next + sought)
            if end >= 0 or self._waiting >= limit:
                break
            sought = self._waiting
            if not self._step():
                break
        length = min(limit, end + 1 - self._next if end >= 0 else self._waiting)
        found = bytes(self._buffer[self._next : self._next + length])
        if not keep:
            self._advance(length)
        return found

    def read(self, count: int) -> bytes:
        """Give so many bytes, or fewer at the end, or where another record begins."""
        found = bytearray()
        while len(found) < count and self._ready():
            length = min(count - len(found), self._room())
            found += self._buffer[self._next : self._next + length]
            self._advance(length)
        return bytes(found)

    def skip(self, count: int) -> int:
        """Pass over so many bytes, or fewer at the end, or where another record begins."""
        left = count
        while left and self._ready():
            length = min(left, self._room())
            self._advance(length)
            left -= length
        return count - left

    def put_back(self, data: bytes) -> None:
        """Give once more what was given last."""
        self._buffer[self._next : self._next] = data
        self.position -= len(data)

    def member_ended(self) -> bool:
        """Whether a packed record ends here."""
        if self._packing is None:
            return False
        while not self._waiting and self._unpacker:
            self._step()
        return not self._room()

    def abandon(self) -> None:
        """Give up what is being unpacked, and go on at the next member that the file holds."""
        if self._packing is None:
            return
        self._next, self._buffer = 0, bytearray()
        self._unpacker = None
        self._begins.clear()
        magic = self._packing.magic
        # The first byte of what failed is left out, so that this comes to an end.
        self._take_raw(min(1, self._left))
        while (found := self._raw.find(magic, self._taken)) < 0:
            # A part of it may be at the end of what was read.
            self._take_raw(max(self._left - len(magic) + 1, 0))
            if not self._more_raw():
                self._take_raw(self._left)
                break
        else:
            self._take_raw(found - self._taken)
        self._begins.append((self.position, self._offset))

    @property
    def _waiting(self) -> int:
        return len(self._buffer) - self._next

    def _ready(self) -> bool:
        """Have something to give, unless another record begins here."""
        while not self._waiting:
            if not self._step():
                return False
        if self._packing is None or self.position in {self._since, 0}:
            return True
        if self._member()[0] != self.position:
            return True
        while self._unpacker and self._waiting < len(_RECORD):
            self._step()
        return not self._buffer.startswith(_RECORD, self._next)

    def _member(self) -> tuple[int, int]:
        """Give the position and the offset at which the present member begins."""
        while len(self._begins) > 1 and self._begins[1][0] <= self.position:
            self._begins.popleft()
        return self._begins[0]

    def _room(self) -> int:
        """Count what is unpacked and belongs to the present member."""
        self._member()
        if len(self._begins) > 1:
            return min(self._waiting, self._begins[1][0] - self.position)
        return self._waiting

    def _advance(self, count: int) -> None:
        self._next += count
        self.position += count
        if self._next > _COMPACT or self._next == len(self._buffer):
            del self._buffer[: self._next]
            self._next = 0

    def _step(self) -> bool:
        """Unpack a little more; false at the end."""
        self._check()
        if self._packing is None:
            if not self._left and not self._more_raw():
                return False
            self._buffer += self._raw[self._taken :]
            self._take_raw(self._left)
            return True
        if self._unpacker is None and not self._start(self._packing):
            return False
        if not self._left and not self._more_raw():
            self._unpacker = None
            raise MemberError("the file ends in the middle of it")
        assert self._unpacker is not None  # noqa: S101 - for mypy; it was started just now
        piece = self._raw[self._taken : self._taken + self._packing.piece]
        try:
            self._buffer += self._unpacker.decompress(piece)
        except self._failure as error:
            raise MemberError(f"is no whole {self._packing.name} member: {error}") from None
        used = len(piece)
        if self._unpacker.eof:
            used -= len(self._unpacker.unused_data)
            self._unpacker = None
        self._take_raw(used)
        return True

    def _start(self, packing: Packing) -> bool:
        while True:
            while self._left and not self._raw[self._taken]:  # zeros may fill up a file's end
                rest = self._raw[self._taken : self._taken + _COMPACT]
                self._take_raw(len(rest) - len(rest.lstrip(b"\0")))
            if self._left >= len(packing.magic) or not self._more_raw():
                break
        if not self._left:
            return False
        if not self._raw.startswith(packing.magic, self._taken):
            raise MemberError(f"no {packing.name} member begins here")
        self._unpacker, self._failure = packing.start()
        self._begins.append((self.position + self._waiting, self._offset))
        return True

    def _check(self) -> None:
        if self.position + self._waiting - self._since > self._most_bytes:
            raise MemberError(f"goes on for more than {self._most_bytes:,} bytes")
        if time.monotonic() - self._waited > self._due:
            raise MemberError(f"takes more than {self._most_seconds:.0f} seconds")

    def _more_raw(self) -> bool:
        # Whoever writes into a pipe may take its time.
        started = time.monotonic()
        chunk = next(self._chunks, b"")
        self._waited += time.monotonic() - started
        self._raw = self._raw[self._taken :] + chunk
        self._taken = 0
        return bool(chunk)

    @property
    def _left(self) -> int:
        return len(self._raw) - self._taken

    def _take_raw(self, count: int) -> None:
        self._taken += count
        self._offset += count
