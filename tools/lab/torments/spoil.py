"""Ways to spoil a data file, and what in it each document depends on."""

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdb
from fpdb.storage.lmdb_file import (
    BRANCH,
    NO_PAGE,
    NODE_HEAD,
    PAGE_HEAD,
    LmdbFile,
    Node,
    Tree,
    newest_state,
    parse_page,
)
from fpdb.storage.number_pages import unpack_rows
from fpdb.storage.open_checks import open_data
from fpdb.storage.survey import Survey

PAGE = 4096
_META = range(16, 152)  # what a meta page holds after its head
_ROOTS = (80, 128)  # of its trees
_TREE = 48  # bytes of the description of a tree, the last 8 of which are its root


class Parts(NamedTuple):
    """Where what is in an undamaged file: the bytes of each document, and the pages by their kind.

    `special` are the pages that are neither leaves nor values.
    """

    documents: dict[Any, list[range]]
    pages: list[int]  # that are reached from the roots
    special: list[int]
    leaves: list[int]
    branches: list[int]
    values: list[list[int]]  # the overflow pages of values, those of the same length together
    trees: list[int]  # where the descriptions of the trees end


Spoil = Callable[[bytearray, random.Random, Parts], None]


def _flip(data: bytearray, dice: random.Random, place: int) -> None:
    if place < len(data):
        data[place] ^= 1 << dice.randrange(8)


def flip(data: bytearray, dice: random.Random, _: Parts) -> None:
    _flip(data, dice, dice.randrange(len(data)))


def flip_structure(data: bytearray, dice: random.Random, known: Parts) -> None:
    """Change one bit of meta pages, branches, names, free pages, or at the head of a leaf."""
    if dice.random() < 0.5:
        page = dice.choice(known.special)
        width = 160 if page < 2 else PAGE  # after it, a meta page is empty
    else:
        page, width = dice.choice(known.leaves), 160
    _flip(data, dice, page * PAGE + dice.randrange(width))


def _range(data: bytearray, dice: random.Random) -> slice:
    start = dice.randrange(len(data))
    return slice(start, min(start + int(2 ** dice.uniform(0, 15)), len(data)))


def zeros(data: bytearray, dice: random.Random, _: Parts) -> None:
    place = _range(data, dice)
    data[place] = bytes(place.stop - place.start)


def garbage(data: bytearray, dice: random.Random, _: Parts) -> None:
    place = _range(data, dice)
    data[place] = dice.randbytes(place.stop - place.start)


def _page(number: int) -> slice:
    return slice(number * PAGE, (number + 1) * PAGE)


def swap(data: bytearray, dice: random.Random, _: Parts) -> None:
    one, other = map(_page, dice.sample(range(len(data) // PAGE), 2))
    data[one], data[other] = data[other], data[one]


def double(data: bytearray, dice: random.Random, _: Parts) -> None:
    one, other = map(_page, dice.sample(range(len(data) // PAGE), 2))
    data[other] = data[one]


def cut(data: bytearray, dice: random.Random, _: Parts) -> None:
    length = dice.randrange(len(data))
    del data[length // PAGE * PAGE if dice.random() < 0.5 else length :]


def meta(data: bytearray, dice: random.Random, _: Parts) -> None:
    _flip(data, dice, dice.randrange(2) * PAGE + dice.choice(_META))


def page_head(data: bytearray, dice: random.Random, known: Parts) -> None:
    """Change a bit in the head of a page."""
    _flip(data, dice, dice.choice(known.pages) * PAGE + dice.randrange(PAGE_HEAD.size))


def node(data: bytearray, dice: random.Random, known: Parts) -> None:
    """Change a bit of a node: of its head, or of its key."""
    page = dice.choice([*known.leaves, *known.branches])
    at, key = dice.choice(_nodes(data, page))
    _flip(data, dice, page * PAGE + at + dice.randrange(NODE_HEAD.size + len(key)))


def root(data: bytearray, dice: random.Random, known: Parts) -> None:
    """Let a tree begin at another page."""
    places = [slot * PAGE + at for slot in (0, 1) for at in _ROOTS]
    at = dice.choice([*places, *(end - 8 for end in known.trees)])
    data[at : at + 8] = dice.choice(known.pages).to_bytes(8, "little")


def values(data: bytearray, dice: random.Random, known: Parts) -> None:
    """Exchange the pages of two values of the same length, or write one in both places."""
    first, second = dice.sample(dice.choice(known.values), 2)
    before, after = bytes(data[_page(first)]), bytes(data[_page(second)])
    # As two misdirected writes would: each page says the number of the place where it is.
    data[_page(first)] = first.to_bytes(8, "little") + after[8:]
    if dice.random() < 0.5:
        data[_page(second)] = second.to_bytes(8, "little") + before[8:]


def cycle(data: bytearray, dice: random.Random, known: Parts) -> None:
    """Let a branch lead to itself, or to another page."""
    page = dice.choice(known.branches)
    at = page * PAGE + dice.choice(_nodes(data, page))[0]
    target = page if dice.random() < 0.5 else dice.choice([*known.leaves, *known.branches])
    data[at : at + 6] = target.to_bytes(6, "little")


def _nodes(data: bytearray, page: int) -> list[tuple[int, bytes]]:
    """Return where the nodes of a page begin, and their keys."""
    own = bytes(data[_page(page)])
    found = parse_page(own).nodes
    slots = struct.unpack_from(f"={len(found)}H", own, PAGE_HEAD.size)
    return [(slot, each.key) for slot, each in zip(slots, found, strict=True)]


SPOILS: dict[str, Spoil] = {
    "bit flips": flip,
    "bit flips in structure": flip_structure,
    "zeroed ranges": zeros,
    "garbage": garbage,
    "swapped pages": swap,
    "doubled pages": double,
    "truncation": cut,
}
# These are aimed at the structure, and happen once.
AIMED: dict[str, Spoil] = {
    "bits": flip,
    "meta pages": meta,
    "page heads": page_head,
    "nodes": node,
    "roots": root,
    "values": values,
    "cycles": cycle,
}


def spoil(whole: bytes, kind: str, dice: random.Random, known: Parts) -> bytes:
    data = bytearray(whole)
    if kind in AIMED:
        while data == whole:
            AIMED[kind](data, dice, known)
        return bytes(data)
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        if len(data) > 2 * PAGE:
            SPOILS[kind](data, dice, known)
    return bytes(data)


def parts(path: Path) -> Parts:
    """Find out where what is in an undamaged file."""
    with fpdb.open(path, readonly=True) as db:
        keys = {document.id: document.key for document in db.scan()}
        home, catalog = db._index.home, db._catalog
    with Survey(open_data(path)) as survey:
        file, roots = survey.file, survey.trees
        names = pages_of(file, roots["names"])
        found: dict[Any, list[range]] = {key: [] for key in keys.values()}
        for key, ranges in _values(file, roots["documents"]):
            found[keys[int.from_bytes(key)]] += [*map(_whole, names), *ranges]
        if catalog.kind == "integer":
            recorded = {key for key, ranges in found.items() if ranges}
            for pages, column in ((catalog.by_key, 0), (home, -1)):
                ranges_of = dict(_values(file, roots[pages.name]))
                for entry in survey.entries(pages.name):
                    rows = unpack_rows(entry.value or b"", pages.columns, pages.seed_at(entry.key))
                    for number in rows[column].tolist():
                        if number not in recorded:
                            found[number] += [*map(_whole, names), *ranges_of[entry.key]]
        lengths: dict[int, list[int]] = {}
        branches, leaves, values = set[int](), set[int](), set[int]()
        for way, nodes in (each for tree in roots.values() for each in ways(file, tree)):
            branches.update(way[:-1])
            leaves.add(way[-1])
            for node in nodes:
                if node.big:
                    values.add(node.number)
                if len(file.run(node)) == 1:
                    lengths.setdefault(node.length, []).append(node.number)
        meta, _ = newest_state(file)
        free = pages_of(file, meta.free) if meta else []
        trees = [
            leaf * PAGE + at + len(name) + _TREE
            for leaf in names
            for name in roots
            if (at := (file.page(leaf) or b"").find(name.encode())) > 0
        ]
    same = [numbers for numbers in lengths.values() if len(numbers) > 1]
    reached = sorted({*branches, *leaves, *values, *free})
    special = [0, 1, *sorted({*branches, *names, *free})]
    return Parts(found, reached, special, sorted(leaves), sorted(branches), same, trees)


def ways(file: LmdbFile, tree: Tree, *above: int) -> Iterator[tuple[tuple[int, ...], list[Node]]]:
    """Yield for each leaf of a tree the pages from the root to it, and its nodes."""
    way = above or (tree.root,)
    page = parse_page(file.page(way[-1]) or b"") if tree.root != NO_PAGE else None
    if page and page.kind == BRANCH:
        for node in page.nodes:
            yield from ways(file, tree, *way, node.number)
    elif page:
        yield way, page.nodes


def pages_of(file: LmdbFile, tree: Tree) -> list[int]:
    return list({page: None for way, _ in ways(file, tree) for page in way})


def _whole(page: int) -> range:
    return range(page * PAGE, (page + 1) * PAGE)


def _values(file: LmdbFile, tree: Tree) -> Iterator[tuple[bytes, list[range]]]:
    """Yield for each entry of a tree the bytes that it needs: of the pages to it, and its value."""
    for way, nodes in ways(file, tree):
        leaf = file.page(way[-1]) or b""
        for node in nodes:
            first = way[-1] * PAGE + leaf.index(node.key + node.value)
            stop = first + len(node.key) + len(node.value)
            if node.big:
                first = node.number * PAGE
                stop = first + PAGE_HEAD.size + node.length
            yield node.key, [*map(_whole, way), range(first, stop)]


def changed(whole: bytes, spoilt: bytes) -> np.ndarray[Any, np.dtype[np.bool_]]:
    length = min(len(whole), len(spoilt))
    marks = np.ones(len(whole), bool)
    one, other = (np.frombuffer(data[:length], np.uint8) for data in (whole, spoilt))
    marks[:length] = one != other
    return marks


def intact(documents: dict[Any, list[range]], whole: bytes, spoilt: bytes) -> set[Any]:
    """Return the documents of which no byte has changed."""
    wrong = np.concatenate(([0], np.cumsum(changed(whole, spoilt))))
    return {
        key
        for key, ranges in documents.items()
        if not any(wrong[part.stop] - wrong[part.start] for part in ranges)
    }
