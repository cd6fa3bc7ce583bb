"""What can be told of an LMDB data file without mapping it: its two meta pages, and its length.

LMDB trusts a data file: it reads a truncated one until the process dies of a bus error, and
takes an empty one for an empty database. So the file is looked at in plain Python first.
"""

import os
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from fpdb.errors import DamagedError, NotADatabaseError, TooNewError

DATA_FILE = "data.mdb"

LMDB_MAGIC = 0xBEEFC0DE
LMDB_FORMAT = 1  # of LMDB 0.9; LMDB 1.0 writes 3

# Layouts of LMDB's format 1 on a 64-bit machine.
_PAGE = struct.Struct("=Q2xHHH")  # number, flags, lower and upper bound of the free room
_DATABASE = struct.Struct("=IHHQQQQQ")  # pad, flags, depth, branch, leaf, overflow, entries, root
_META_HEAD = struct.Struct("=IIQQ")  # magic, version, address, map size
_META_TAIL = struct.Struct("=QQ")  # last page, transaction
_NODE = struct.Struct("=HHHH")  # low and high half, flags, length of the key
_META_BYTES = _META_HEAD.size + 2 * _DATABASE.size + _META_TAIL.size

_LATER_PAGE_BYTES = 24  # the head of a page since format 2

_BRANCH, _LEAF, _META = 0x01, 0x02, 0x08
_BIG_VALUE = 0x01
_NO_PAGE = 2**64 - 1
_LAST_PAGE = 2**48

_BACKUP_HINT = "restore it from a backup"
_PATH_HINT = "give the path of a directory that fpdb created"


class Meta(NamedTuple):
    """One meta page: the state of the environment after one transaction."""

    page_size: int
    transaction: int
    last_page: int
    free_root: int

    @property
    def end(self) -> int:
        """The length that a file with all of its pages has."""
        return (self.last_page + 1) * self.page_size


def require_sound(descriptor: int, name: str) -> Meta:
    """Return the newest meta page, or raise an error that says why LMDB may not map this file."""
    last_error = None
    # Another process may commit while this one reads; only what stays wrong is wrong.
    for _ in range(3):
        try:
            return _require_sound(descriptor, name)
        except DamagedError as error:
            last_error = error
    raise last_error or DamagedError(name)


def _require_sound(descriptor: int, name: str) -> Meta:
    size = os.fstat(descriptor).st_size
    if size == 0:
        raise DamagedError(f"{name} is empty, expected at least two pages", hint=_BACKUP_HINT)
    first = _read_meta(descriptor, 0, name)
    second = _read_meta(descriptor, first.page_size, name)
    newest = max(first, second, key=lambda meta: meta.transaction)
    if newest.last_page > _LAST_PAGE:
        raise DamagedError(
            f"{name} has a meta page that counts {newest.last_page:,} pages", hint=_BACKUP_HINT
        )
    size = os.fstat(descriptor).st_size
    if size >= newest.end:
        return newest
    # Pages that a transaction took and gave back are never written, and the last ones then lie
    # beyond the end of a sound file. Any other page beyond the end is a loss.
    beyond = range(size // newest.page_size, newest.last_page + 1)
    try:
        free = {
            page for pages in _free_pages(descriptor, newest) for page in pages if page in beyond
        }
    except (struct.error, ValueError, OverflowError, OSError):
        free = set()
    if len(free) < len(beyond):
        raise DamagedError(
            f"{name} is cut short: {size:,} bytes found, {newest.end:,} expected",
            hint=_BACKUP_HINT,
        )
    return newest


def _read_meta(descriptor: int, offset: int, name: str) -> Meta:
    data = os.pread(descriptor, _PAGE.size + _META_BYTES, offset)
    if len(data) < _PAGE.size + _META_BYTES:
        raise DamagedError(
            f"{name} is cut short: it ends in its meta page at byte {offset:,}", hint=_BACKUP_HINT
        )
    _, flags, _, _ = _PAGE.unpack_from(data)
    magic, version, _, _ = _META_HEAD.unpack_from(data, _PAGE.size)
    if magic != LMDB_MAGIC:
        magic, version, _, _ = _META_HEAD.unpack_from(data, _LATER_PAGE_BYTES)
    if magic != LMDB_MAGIC:
        _refuse_magic(data, offset, name)
    if version != LMDB_FORMAT:
        raise TooNewError(
            f"{name} is an LMDB file of format {version}, expected format {LMDB_FORMAT}",
            hint="dump it with the program that wrote it; fpdb writes LMDB 0.9's format",
            found=version,
            supported=LMDB_FORMAT,
        )
    tables = _PAGE.size + _META_HEAD.size
    page_size, *_, free_root = _DATABASE.unpack_from(data, tables)
    last_page, transaction = _META_TAIL.unpack_from(data, tables + 2 * _DATABASE.size)
    if not flags & _META or page_size not in (1 << bits for bits in range(9, 17)):
        raise DamagedError(
            f"{name} has a broken meta page at byte {offset:,}: flags {flags:#x}, "
            f"pages of {page_size:,} bytes",
            hint=_BACKUP_HINT,
        )
    return Meta(page_size, transaction, last_page, free_root)


def _refuse_magic(data: bytes, offset: int, name: str) -> None:
    if offset:
        raise DamagedError(f"{name} has lost its second meta page", hint=_BACKUP_HINT)
    magic = data[_PAGE.size : _PAGE.size + 4]
    if magic[::-1] == LMDB_MAGIC.to_bytes(4, sys.byteorder):
        raise NotADatabaseError(
            f"{name} was written on a machine with the other byte order",
            hint="export it there with --format portable, and ingest the export here",
        )
    raise NotADatabaseError(
        f"{name} isn't an LMDB file: it has {magic.hex()} where LMDB's magic belongs",
        hint=_PATH_HINT,
    )


def _free_pages(descriptor: int, meta: Meta) -> Iterator[tuple[int, ...]]:
    pending = [meta.free_root] if meta.free_root != _NO_PAGE else []
    seen: set[int] = set()
    while pending:
        number = pending.pop()
        page = os.pread(descriptor, meta.page_size, number * meta.page_size)
        found, flags, lower, _ = _PAGE.unpack_from(page)
        if found != number or not flags & (_BRANCH | _LEAF) or number in seen:
            raise ValueError(f"page {number} isn't a page of the free list")
        seen.add(number)
        for slot in range(_PAGE.size, min(lower, len(page)), 2):
            (start,) = struct.unpack_from("=H", page, slot)
            low, high, node_flags, key_length = _NODE.unpack_from(page, start)
            if flags & _BRANCH:
                pending.append(low | high << 16 | node_flags << 32)
                continue
            value, at = page, start + _NODE.size + key_length
            if node_flags & _BIG_VALUE:
                (overflow,) = struct.unpack_from("=Q", page, at)
                length = low | high << 16
                value = os.pread(descriptor, _PAGE.size + length, overflow * meta.page_size)
                at = _PAGE.size
            (count,) = struct.unpack_from("=Q", value, at)
            yield struct.unpack_from(f"={count}Q", value, at + 8)
