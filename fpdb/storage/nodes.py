"""Pages of an LMDB file as bytes: their heads and nodes, as far as a damaged page tells them.

The nodes of a page lie one behind the other, from a place that its head names to its end, and the
slots behind its head name the place of each. Below that place lies what was deleted. So a page says
three times which nodes it has, by its two bounds and by its slots, and two of them are enough.
"""

import struct
from typing import NamedTuple

BRANCH, LEAF, OVERFLOW = 0x01, 0x02, 0x04
BIG_VALUE = 0x01
_KINDS = 0x6F  # all kinds of pages: a page at rest has exactly one

HEAD = struct.Struct("=Q2xHHH")  # number, flags, lower and upper bound of the free room
_RUN = struct.Struct("=12xI")  # how many pages an overflow page and those behind it are
_NODE = struct.Struct("=HHHH")  # low and high half, flags, length of the key
_NUMBER = struct.Struct("=Q")


class Node(NamedTuple):
    """An entry of a leaf, or the way from a branch to a page below.

    `value` is the number of the first overflow page if it is big, and of the page below in a
    branch; `length` that of the value itself.
    """

    key: bytes
    value: bytes
    length: int
    big: bool

    @property
    def number(self) -> int:
        """The number of the page that the node leads to."""
        number: int = _NUMBER.unpack(self.value)[0]
        return number


class Page(NamedTuple):
    """What a page says of itself: its kind, its nodes, whether these are all, and all is sound."""

    kind: int
    nodes: list[Node]
    complete: bool
    sound: bool


_NOTHING = Page(0, [], complete=False, sound=False)


def number_of(page: bytes) -> int:
    """Give the number that a page has for itself."""
    number: int = HEAD.unpack_from(page)[0]
    return number


def kind_of(page: bytes) -> int:
    """Say what kind of page it is, 0 if it can't be any."""
    kind: int = HEAD.unpack_from(page)[1] & _KINDS
    return kind if kind in {BRANCH, LEAF, OVERFLOW} else 0


def run_of(page: bytes) -> int:
    """Say how many pages an overflow page and those behind it are."""
    pages: int = _RUN.unpack_from(page)[0]
    return pages


def read_page(page: bytes) -> Page:
    """Read those nodes of a branch or a leaf of which it is sure that they aren't deleted ones."""
    kind = kind_of(page)
    if kind not in {BRANCH, LEAF}:
        return _NOTHING
    _, _, lower, upper = HEAD.unpack_from(page)
    room = HEAD.size <= lower <= len(page) and not lower % 2
    slots = struct.unpack_from(f"={(lower - HEAD.size) // 2}H", page, HEAD.size) if room else ()
    tiles = _tiles(page, kind, upper)
    if tiles and len(slots) == len(tiles) and set(slots) == tiles.keys():
        return Page(kind, [tiles[at] for at in slots], complete=True, sound=True)
    if tiles and (len(slots) == len(tiles) or _first_slots(page, len(tiles)) == tiles.keys()):
        return Page(kind, _in_order(tiles), complete=True, sound=False)
    if slots:
        tiles = _tiles(page, kind, min(slots))
        if tiles.keys() == set(slots):
            return Page(kind, _in_order(tiles), complete=True, sound=False)
        if lower <= upper < len(page):
            nodes = {at: _node(page, kind, at) for at in slots if at >= upper}
            there = {at: node for at, node in nodes.items() if node}
            return Page(kind, _in_order(there), complete=False, sound=False)
    return Page(kind, [], complete=False, sound=False)


def _first_slots(page: bytes, count: int) -> set[int]:
    if HEAD.size + 2 * count > len(page):
        return set()
    return set(struct.unpack_from(f"={count}H", page, HEAD.size))


def _tiles(page: bytes, kind: int, start: int) -> dict[int, Node]:
    """Read node behind node from a place on; nothing unless they end where the page ends."""
    found: dict[int, Node] = {}
    at = start
    while HEAD.size <= at < len(page):
        node = _node(page, kind, at)
        if node is None:
            return {}
        found[at] = node
        at += _NODE.size + len(node.key) + (0 if kind == BRANCH else len(node.value))
        at += at % 2
    return found if at == len(page) else {}


def _node(page: bytes, kind: int, at: int) -> Node | None:
    if at + _NODE.size > len(page):
        return None
    low, high, flags, key_length = _NODE.unpack_from(page, at)
    begin = at + _NODE.size
    end = begin + key_length
    if end > len(page):
        return None
    key, length = page[begin:end], low | high << 16
    if kind == BRANCH:
        return Node(key, _NUMBER.pack(length | flags << 32), 0, big=False)
    if not key:  # LMDB has no empty ones
        return None
    big = bool(flags & BIG_VALUE)
    behind = end + (_NUMBER.size if big else length)
    return None if behind > len(page) else Node(key, page[end:behind], length, big)


def _in_order(nodes: dict[int, Node]) -> list[Node]:
    return sorted(nodes.values(), key=lambda node: node.key)
