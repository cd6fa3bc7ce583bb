"""A data file that is read page by page, and never mapped: its trees, as far as they hold."""

import os
import struct
from array import array
from collections.abc import Callable
from typing import NamedTuple

from fpdb.errors import DamagedError
from fpdb.storage import nodes
from fpdb.storage.nodes import BRANCH, HEAD, LEAF, Node, number_of, read_page

DATABASE = struct.Struct("=IHHQQQQQ")  # pad, flags, depth, branch, leaf, overflow, entries, root
NO_PAGE = 2**64 - 1
METAS = 2  # the first pages

_DEEPEST = 32  # more levels LMDB's cursors don't have
_WITHIN = 3
# No value but a list of free pages, or a header with a table of weights, is longer.
_LARGE = 1 << 20


class Database(NamedTuple):
    """What LMDB keeps of a tree."""

    page_size: int  # of the file, if it is the list of free pages
    flags: int
    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int

    @property
    def pages(self) -> int:
        """How many pages it has."""
        return self.branches + self.leaves + self.overflows


class Fault(NamedTuple):
    """A page that isn't what its place says, and the keys that it must have had."""

    page: int
    what: str
    low: bytes | None  # the lowest key, if there is one
    high: bytes | None  # the first key behind, if there is one


class Tree:
    """The leaves of a tree that could be reached, and what is wrong on the way to the others."""

    def __init__(self) -> None:
        self.leaves = array("Q")
        self.pages = 0
        self.faults: list[Fault] = []


class RawFile:
    """A data file that is only read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(self._descriptor).st_size
        self.page_size = 4096
        self.reached = bytearray()
        # Pages that lie where another one belongs.
        self.misplaced: dict[int, int] = {}

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    @property
    def pages(self) -> int:
        """How many pages the file has; the last one may be cut short."""
        return -(-self.size // self.page_size)

    def read(self, offset: int, length: int) -> bytes:
        """Read some bytes; fewer at the end of the file, and none where the disk fails."""
        try:
            return os.pread(self._descriptor, length, offset)
        except OSError:
            return b""

    def at(self, place: int) -> bytes | None:
        """Give the page at a place, whichever it is; what was cut off it is zeros."""
        data = self.read(place * self.page_size, self.page_size)
        return data.ljust(self.page_size, b"\0") if len(data) >= HEAD.size else None

    def page(self, number: int) -> bytes | None:
        """Give a page that says that it is the one with this number."""
        page = self.at(self.misplaced.get(number, number)) if number < self.pages else None
        return page if page is not None and number_of(page) == number else None

    def nodes(self, number: int) -> list[Node]:
        """Give the nodes of a page."""
        page = self.page(number)
        return read_page(page).nodes if page else []

    def value(self, node: Node) -> bytes | None:
        """Give the value of a node, if the pages that have it can be read."""
        if not node.big:
            return node.value
        page = self.page(node.number)
        if page is None or nodes.kind_of(page) != nodes.OVERFLOW:
            return None
        length = HEAD.size + node.length
        if length > self.page_size:
            if length > _LARGE and nodes.run_of(page) != len(self.run(node)):
                return None  # a length that isn't believed takes no memory
            place = self.misplaced.get(node.number, node.number)
            page = self.read(place * self.page_size, length)
        return page[HEAD.size : length] if len(page) >= length else None

    def run(self, node: Node) -> range:
        """Give the numbers of the overflow pages of a node."""
        if not node.big:
            return range(0)
        return range(node.number, node.number + self.run_length(node.length))

    def run_length(self, length: int) -> int:
        """Say how many overflow pages a value takes."""
        return (HEAD.size - 1 + length) // self.page_size + 1

    def walk(self, root: int, order: Callable[[bytes], object] = bytes) -> Tree:
        """Follow a tree from its root, and note which pages were reached."""
        tree = Tree()
        if root != NO_PAGE:
            _Walk(self, tree, order).down(root, None, None, 1)
        return tree

    def mark_run(self, run: range) -> bool:
        """Note that pages of one value were reached, and say whether that is the first time."""
        if not run:
            return True
        fresh = run[0] >= METAS and run[-1] < len(self.reached)
        if fresh:
            fresh = not any(self.reached[run[0] : run[-1] + 1])
            self.reached[run[0]] = 1
            self.reached[run[0] + 1 : run[-1] + 1] = bytes([_WITHIN]) * (len(run) - 1)
        return fresh

    def cover(self, run: range) -> None:
        """Note that pages are further ones of a value, as far as nothing else has them."""
        for number in run:
            if number >= len(self.reached) or self.reached[number]:
                return
            self.reached[number] = _WITHIN

    def within(self, number: int) -> bool:
        """Say whether a page is a further one of a value, so that it has no head."""
        return number < len(self.reached) and self.reached[number] == _WITHIN


class _Walk:
    """One way through a tree."""

    def __init__(self, file: RawFile, tree: Tree, order: Callable[[bytes], object]) -> None:
        self._file = file
        self._tree = tree
        self._order = order

    def down(self, number: int, low: bytes | None, high: bytes | None, depth: int) -> None:
        """Follow a page and all below it."""
        fault = self._tree.faults.append
        file = self._file
        if not METAS <= number < len(file.reached) or depth > _DEEPEST:
            fault(Fault(number, "doesn't exist", low, high))
            return
        if file.reached[number]:
            fault(Fault(number, "is a page of something else", low, high))
            return
        data = file.page(number)
        if data is None:
            fault(Fault(number, "is lost", low, high))
            return
        page = read_page(data)
        if not page.nodes:
            fault(Fault(number, "can't be read", low, high))
            return
        if page.kind == LEAF and not self._fits(page.nodes, low, high):
            fault(Fault(number, "has other entries than belong there", low, high))
            return
        file.reached[number] = 1
        self._tree.pages += 1
        if not page.sound:
            some = "all its entries could be" if page.complete else "some of its entries can't be"
            fault(Fault(number, f"is damaged, {some} read", low, high))
        if page.kind == BRANCH:
            keys: list[bytes | None] = [node.key for node in page.nodes]
            lows, highs = [low, *keys[1:]], [*keys[1:], high]
            for node, below, above in zip(page.nodes, lows, highs, strict=True):
                self.down(node.number, below, above, depth + 1)
            return
        self._tree.leaves.append(number)
        for node in page.nodes:
            run = file.run(node)
            self._tree.pages += len(run)
            if not file.mark_run(run):
                fault(Fault(node.number, "is used twice, or doesn't exist", node.key, node.key))

    def _fits(self, found: list[Node], low: bytes | None, high: bytes | None) -> bool:
        """Say whether most keys of a leaf lie where the branches above it lead to."""
        order = self._order
        inside = sum(
            (low is None or order(node.key) >= order(low))  # type: ignore[operator]
            and (high is None or order(node.key) < order(high))  # type: ignore[operator]
            for node in found
        )
        return 2 * inside >= len(found)


def database(data: bytes) -> Database:
    """Read what LMDB keeps of a tree."""
    if len(data) != DATABASE.size:
        raise DamagedError(f"a tree is described by {len(data)} bytes, expected {DATABASE.size}")
    return Database(*DATABASE.unpack(data))
