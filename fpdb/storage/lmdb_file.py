"""The reader of LMDB's data file, format 1: page by page, without mapping it.

Besides, a kernel of number_pages walks leaves that LMDB has mapped, to read many records.

LMDB trusts its file: a truncated one ends the process by a bus error. So a file is checked here
before LMDB maps it, and a damaged one is read for a repair. Numbers have the machine's byte order.

    meta      page head, magic and version (u32), address and size of the map (u64), tree of the
              free pages, main tree, last page and transaction (u64); the first two pages
    page      head: number (u64), pad, kind, lower, upper (u16 each); offsets of the nodes (u16) in
              the order of their keys, up to `lower`; free room; nodes, from `upper` to the end
    overflow  head with the number of its pages (u32) in place of the bounds; the bytes of a value
    node      low, high, flags, length of the key (u16 each); key; value. In a leaf, low and high
              are the length of the value, and a big value is the number of its first overflow
              page (u64). In a branch, low, high and flags are the number of the page below.
    tree      pad (u32), flags, depth (u16), branch, leaf and overflow pages, entries, root (u64);
              the pad of the tree of free pages is the size of a page
"""

import os
import struct
import sys
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from fpdb import scratch
from fpdb.errors import DamagedError, NotADatabaseError
from fpdb.storage.format import Counters

DATA_FILE = scratch.DATA_FILE
LMDB_MAGIC = 0xBEEFC0DE
LMDB_FORMAT = 1  # of LMDB 0.9; LMDB 1.0 writes 3
METAS = 2

PAGE_HEAD = struct.Struct("=Q2xHHH")
NODE_HEAD = struct.Struct("=HHHH")
_RUN_HEAD = struct.Struct("=12xI")
_TREE = struct.Struct("=IHHQQQQQ")
_META = struct.Struct("=Q2xH4xIIQQ48s48sQQ")
_NUMBER = struct.Struct("=Q")

BRANCH, LEAF, OVERFLOW, _META_KIND = 0x01, 0x02, 0x04, 0x08
_KINDS = 0x6F  # all flags of the kind of a page; a page at rest has exactly one
_BIG_VALUE = 0x01
NO_PAGE = 2**64 - 1
_LAST_PAGE = 2**48
_PAGE_SIZES = [1 << bits for bits in range(9, 17)]
_USUAL_PAGE_SIZE = 4096

_GLANCES = 20
DEEPEST = 32  # levels of a tree; LMDB's cursors have no more
_SMALL = 64  # pages of the trees of names and of the header, unless a recipe has a table of weights
_LARGE = 1 << 20  # only a list of free pages, or a header with a table of weights, is longer

_NO_STATE = -1  # below every number of writes

LAST_COMMIT_LOST = "what the last commit added may be lost, what it deleted may be back"
_BACKUP_HINT = "restore it from a backup"
_REPAIR_HINT = (
    "run `fpdb repair`, which writes the newest state that can be read into a new database, "
    "or restore a backup"
)


class Tree(NamedTuple):
    """LMDB's description of one tree."""

    page_size: int  # only in the tree of free pages
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int


class Meta(NamedTuple):
    """One meta page: the state of the environment after one transaction."""

    kind: int
    magic: int
    version: int
    free: Tree
    main: Tree
    last_page: int
    transaction: int

    @property
    def valid(self) -> bool:
        """Whether LMDB accepts it, and its numbers are possible."""
        return (
            self.magic == LMDB_MAGIC
            and self.version == LMDB_FORMAT
            and bool(self.kind & _META_KIND)
            and self.free.page_size in _PAGE_SIZES
            and self.last_page <= _LAST_PAGE
        )


class Node(NamedTuple):
    """An entry of a leaf, or the way from a branch to a page below.

    `number` is that of the first overflow page of a big value, or of the page below a branch.
    """

    key: bytes
    value: bytes
    length: int  # of the value
    big: bool
    number: int


class NodePage(NamedTuple):
    """The nodes of a leaf or a branch, none if anything in their places is wrong."""

    kind: int
    nodes: list[Node]


def tree_of(value: bytes | None) -> Tree | None:
    """Parse the description of a tree, None if it can't be one."""
    return Tree(*_TREE.unpack(value)) if value and len(value) == _TREE.size else None


def parse_meta(data: bytes) -> Meta:
    """Parse the bytes of a meta page, valid or not."""
    _, kind, magic, version, _, _, free, main, last_page, transaction = _META.unpack_from(data)
    return Meta(
        kind,
        magic,
        version,
        Tree(*_TREE.unpack(free)),
        Tree(*_TREE.unpack(main)),
        last_page,
        transaction,
    )


def number_of(page: bytes) -> int:
    """Return the number that a page has for itself."""
    number: int = PAGE_HEAD.unpack_from(page)[0]
    return number


def kind_of(page: bytes) -> int:
    """Return the kind of a page, 0 if it can't be any."""
    kind: int = PAGE_HEAD.unpack_from(page)[1] & _KINDS
    return kind if kind in {BRANCH, LEAF, OVERFLOW} else 0


def run_length(page: bytes) -> int:
    """Return how many pages the value takes that begins on an overflow page."""
    pages: int = _RUN_HEAD.unpack_from(page)[0]
    return max(pages, 1)


def parse_page(page: bytes) -> NodePage:
    """Parse the nodes of a branch or a leaf, in the order of their keys.

    They must follow each other from `upper` to the end of the page: else a slot may lead to a node
    that was deleted.
    """
    kind, (_, _, lower, upper) = kind_of(page), PAGE_HEAD.unpack_from(page)
    if kind not in {BRANCH, LEAF} or not PAGE_HEAD.size <= lower <= len(page):
        return NodePage(0, [])
    slots = struct.unpack_from(f"={(lower - PAGE_HEAD.size) // 2}H", page, PAGE_HEAD.size)
    nodes: dict[int, Node] = {}
    at = upper
    for slot in sorted(slots):
        node = _parse_node(page, kind, at) if slot == at else None
        if node is None:
            return NodePage(0, [])
        nodes[slot] = node
        at += NODE_HEAD.size + len(node.key) + len(node.value)
        at += at % 2
    return NodePage(kind, [nodes[slot] for slot in slots] if at == len(page) else [])


def _parse_node(page: bytes, kind: int, at: int) -> Node | None:
    if at + NODE_HEAD.size > len(page):
        return None
    low, high, flags, key_length = NODE_HEAD.unpack_from(page, at)
    begin = at + NODE_HEAD.size
    end = begin + key_length
    length = low | high << 16
    if kind == BRANCH:
        node = Node(page[begin:end], b"", 0, big=False, number=length | flags << 32)
        return node if end <= len(page) else None
    big = bool(flags & _BIG_VALUE)
    stop = end + (_NUMBER.size if big else length)
    if stop > len(page) or not key_length:  # LMDB has no empty keys
        return None
    value = page[end:stop]
    return Node(page[begin:end], value, length, big, _NUMBER.unpack(value)[0] if big else 0)


def listed_pages(value: bytes | None) -> "array[int] | None":
    """Parse a list of free pages: their count, then the pages, the highest first."""
    if not value or len(value) % _NUMBER.size:
        return None
    count, *pages = array("Q", value)
    falling = all(low < high for high, low in pairwise(pages))
    return array("Q", pages) if count == len(pages) and falling else None


class LmdbFile:
    """A data file, read page by page; an unreadable page is missing, and never an error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size
        known = parse_meta(self.read(0, _META.size).ljust(_META.size, b"\0")).free.page_size
        self.page_size = known if known in _PAGE_SIZES else _USUAL_PAGE_SIZE

    def close(self) -> None:
        os.close(self._descriptor)

    @property
    def pages(self) -> int:
        """How many pages the file has; the last one may be cut short."""
        return -(-self.size // self.page_size)

    def read(self, offset: int, length: int) -> bytes:
        """Read some bytes: fewer at the end of the file, and none where the disk fails."""
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError:
            return b""

    def meta_bytes(self) -> list[bytes]:
        """Return the bytes of both meta pages, which change with every commit."""
        return [self.read(slot * self.page_size, _META.size) for slot in range(METAS)]

    def metas(self) -> list[Meta]:
        """Return the content of both meta pages, valid or not."""
        return [parse_meta(data) for data in self.meta_bytes() if len(data) == _META.size]

    def page(self, number: int) -> bytes | None:
        """Return the page with a number, if the page at its place has it."""
        if number >= self.pages:
            return None
        data = self.read(number * self.page_size, self.page_size)
        if len(data) < PAGE_HEAD.size or number_of(data) != number:
            return None
        return data.ljust(self.page_size, b"\0")

    def nodes(self, number: int) -> list[Node]:
        page = self.page(number)
        return parse_page(page).nodes if page else []

    def value(self, node: Node) -> bytes | None:
        """Return the value of a node, if the pages that hold it can be read."""
        if not node.big:
            return node.value
        page = self.page(node.number)
        if page is None or kind_of(page) != OVERFLOW:
            return None
        length = PAGE_HEAD.size + node.length
        if length > self.page_size:
            if length > _LARGE and run_length(page) != len(self.run(node)):
                return None  # no memory is taken for a length that can't be right
            page = self.read(node.number * self.page_size, length)
        return page[PAGE_HEAD.size : length] if len(page) >= length else None

    def run(self, node: Node) -> range:
        """Return the numbers of the overflow pages of a node."""
        if not node.big:
            return range(0)
        pages = (PAGE_HEAD.size - 1 + node.length) // self.page_size + 1
        return range(node.number, node.number + pages)

    def entries(self, tree: Tree, most: int = _SMALL) -> Iterator[Node]:
        """Yield the entries of a tree with at most `most` pages, as far as they can be read."""
        pending, seen = [tree.root], set[int]()
        while pending and len(seen) < most:
            number = pending.pop()
            data = None if number in seen else self.page(number)
            seen.add(number)
            if data:
                page = parse_page(data)
                if page.kind == LEAF:
                    yield from page.nodes
                else:
                    pending += [node.number for node in reversed(page.nodes)]

    def entry(self, tree: Tree | None, key: bytes) -> bytes | None:
        for node in self.entries(tree) if tree else ():
            if node.key == key:
                return self.value(node)
        return None


def newest_state(file: LmdbFile) -> tuple[Meta | None, list[str]]:
    """Return the meta page of the newest state, and the faults of the meta pages.

    LMDB takes the meta page with the higher transaction number, and has no checksum of either. But
    each commit writes the meta page that its number is even or odd for, and counts fpdb's writes.
    """
    metas = file.metas()
    counts = [_count_writes(file, meta) for meta in metas]
    valid = [slot for slot, meta in enumerate(metas) if meta.valid]
    taken = newest = valid[0] if valid else None
    faults, lost = [], None in counts
    if len(valid) < METAS:
        faults.append("a meta page is damaged")
    else:
        first, second = metas
        taken = newest = max(first.transaction, second.transaction) % METAS
        # Of the last commit and the one before, unless nothing was committed.
        follow = first.transaction % METAS == 0 and abs(first.transaction - second.transaction) == 1
        if not follow and (first.transaction or second.transaction):
            faults.append(
                f"the meta pages are of the transactions {first.transaction} and "
                f"{second.transaction}, expected two that follow each other"
            )
        if first.main.root == second.main.root != NO_PAGE:
            faults.append("both meta pages lead to the same state")
            lost = True
    for slot, count in enumerate(counts):
        known = _NO_STATE if newest is None else counts[newest]
        if count is None or known is None or count <= known:
            continue
        if newest is None or not _is_failed_commit(file, metas[slot], metas[newest]):
            newest = slot
    if newest != taken:
        faults.append("LMDB would take an older state, since the newest meta page is damaged")
    if faults and lost:
        faults.append(LAST_COMMIT_LOST)
    return None if newest is None else metas[newest], faults


def _is_failed_commit(file: LmdbFile, older: Meta, newer: Meta) -> bool:
    """Return whether an older meta page may lead to a state that was never committed.

    If its last write fails, LMDB writes the number and the last page of before back, but not the
    trees. So the list of free pages names a later transaction. If the last page is another one too,
    the commit has succeeded and grown the file, and the number was damaged.
    """
    nodes = file.entries(older.free, file.pages)
    freed_by = max((int.from_bytes(node.key, sys.byteorder) for node in nodes), default=0)
    return freed_by > older.transaction and older.last_page <= newer.last_page


def _count_writes(file: LmdbFile, meta: Meta) -> int | None:
    """Return the number of writes that a state has counted, None if it can't be read."""
    root = meta.main.root
    tree = tree_of(file.entry(meta.main, b"counters"))
    if tree is None:
        # Nothing, or an intact page of something else, to which a damaged meta page leads.
        return _NO_STATE if root == NO_PAGE or file.nodes(root) else None
    try:
        return Counters.unpack(file.entry(tree, b"counters")).writes
    except DamagedError:
        return None


def require_intact(descriptor: int, name: str) -> Meta:
    """Return the newest meta page, or raise an error that says why LMDB may not map this file."""
    for _ in range(_GLANCES):
        file = LmdbFile(descriptor)
        before = file.meta_bytes()
        try:
            return _require_intact(file, name)
        except DamagedError:
            again = LmdbFile(descriptor)
            if again.size == file.size and again.meta_bytes() == before:
                raise
    # Other processes commit all the time, and each of them opened an intact file.
    return max(file.metas(), key=lambda meta: meta.transaction)


def _require_intact(file: LmdbFile, name: str) -> Meta:
    metas = file.metas()
    if metas and not any(
        meta.magic == LMDB_MAGIC and meta.version == LMDB_FORMAT for meta in metas
    ):
        raise NotADatabaseError(
            f"{name} isn't an LMDB file of format 1 and of this machine's byte order",
            hint="give the path of a directory that fpdb created; between byte orders, move the "
            "portable form",
        )
    cut = DamagedError(f"{name} is cut short: {file.size:,} bytes found", hint=_BACKUP_HINT)
    if len(metas) < METAS:
        raise cut
    newest, faults = newest_state(file)
    if newest is None or faults:
        raise DamagedError(f"{name}: {'; '.join(faults)}", hint=_REPAIR_HINT)
    # Pages that a transaction took and gave back are never written, and the last ones are then
    # beyond the end of an intact file. Any other page beyond the end is a loss.
    beyond = range(file.size // file.page_size, newest.last_page + 1)
    if beyond:
        free: set[int] = set()
        for node in file.entries(newest.free, file.pages):
            free.update(page for page in listed_pages(file.value(node)) or () if page in beyond)
        if len(free) < len(beyond):
            raise cut
    return newest
