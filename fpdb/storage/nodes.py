"""Pages of an LMDB file as bytes: their heads and nodes, as far as a damaged page tells them.

The nodes of a page lie one behind the other, from a place that its head names to its end, and the
slots behind its head name the place of each. Below that place lies what was deleted. So a page says
three times which nodes it has, by its two bounds and by its slots, and two of them are enough.
"""

import struct
from typing import NamedTuple

BRANCH, LEAF, OVERFLOW = 0x01, 0x02, 0x04
BIG_VALUE, SUB_DATABASE = 0x01, 0x02
_KINDS = 0x6F  # all kinds of pages: an LMDB page at rest has exactly one

HEAD = struct.Struct("=Q2xHHH")  # number, flags, lower and upper bound of the free room
_RUN = struct.Struct("=12xI")  # how many pages an overflow page and those behind it are
_NODE = struct.Struct("=HHHH")  # low and high half, flags, length of the key
_SLOT = struct.Struct("=H")
_NUMBER = struct.Struct("=Q")


class Node(NamedTuple):
    """An entry of a page: its flags, its key, and its value with the length that it shall have.

    The value of a branch is the number of the page below; that of a big value the number of its
    first overflow page.
    """

    flags: int
    key: bytes
    value: bytes
    length: int

    @property
    def number(self) -> int:
        """The number that the value holds."""
        number: int = _NUMBER.unpack(self.value)[0]
        return number


class Page(NamedTuple):
    """What a page says of itself; `whole` if all of its nodes are known."""

    kind: int
    nodes: list[Node]
    whole: bool


def number_of(page: bytes) -> int:
    """Give the number that a page has for itself."""
    number: int = HEAD.unpack_from(page)[0]
    return number


def kind_of(page: bytes) -> int:
    """Say what kind of page it is, 0 if it can't be any."""
    kind: int = HEAD.unpack_from(page)[1] & _KINDS
    return kind if kind in {BRANCH, LEAF, OVERFLOW} else 0


def run_of(page: bytes) -> int:
    """Say how many pages begin with this overflow page."""
    pages: int = _RUN.unpack_from(page)[0]
    return pages


def read_page(page: bytes) -> Page:
    """Read the nodes of a branch or leaf that can be trusted."""
    kind = kind_of(page)
    if kind not in {BRANCH, LEAF}:
        return Page(kind, [], whole=False)
    _, _, lower, upper = HEAD.unpack_from(page)
    size = len(page)
    slots = _slots(page, lower)
    by_slots = set(slots)
    tiles = _tiles(page, kind, upper) if HEAD.size <= upper <= size else None
    if tiles is not None and (len(tiles) == len(slots) or by_slots == tiles.keys()):
        whole = by_slots == tiles.keys() and len(slots) == len(tiles)
        if not whole and by_slots == set(list(tiles)[: len(slots)]):
            whole = False
        nodes = [tiles[at] for at in (slots if whole else tiles)]
        return Page(kind, _ordered(nodes, kind, whole=whole), whole=whole)
    return _by_other_bounds(page, kind, lower, upper)
