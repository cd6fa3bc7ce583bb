"""Ways to spoil a data file, and what in it each document depends on."""

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fpdb
from fpdb.storage.lmdb_file import NODE_HEAD, PAGE_HEAD, REACHED, LmdbFile, number_of, parse_page
from fpdb.storage.open_checks import open_data
from fpdb.storage.survey import Survey

PAGE = 4096


class Parts(NamedTuple):
    """The bytes that make up each document; the leaves, and the pages that aren't even that."""

    documents: dict[Any, list[range]]
    special: list[int]
    leaves: list[int]


Spoil = Callable[[bytearray, random.Random, Parts], str]


def flip(data: bytearray, dice: random.Random, _: Parts) -> str:
    """Change one bit."""
    place = dice.randrange(len(data))
    data[place] ^= 1 << dice.randrange(8)
    return f"a bit of byte {place}"


def flip_structure(data: bytearray, dice: random.Random, known: Parts) -> str:
    """Change one bit of meta pages, branches, names, free pages, or at the head of a leaf."""
    if dice.random() < 0.5:
        page = dice.choice(known.special)
        width = 160 if page < 2 else PAGE  # after it, a meta page is empty
    else:
        page, width = dice.choice(known.leaves), 160
    place = page * PAGE + dice.randrange(width)
    if place < len(data):
        data[place] ^= 1 << dice.randrange(8)
    return f"a bit of byte {place}, page {page}"


def zeros(data: bytearray, dice: random.Random, _: Parts) -> str:
    """Lose a range."""
    start, stop = _range(data, dice)
    data[start:stop] = bytes(stop - start)
    return f"zeros from {start} to {stop}"


def garbage(data: bytearray, dice: random.Random, _: Parts) -> str:
    """Overwrite a range."""
    start, stop = _range(data, dice)
    data[start:stop] = dice.randbytes(stop - start)
    return f"garbage from {start} to {stop}"


def swap(data: bytearray, dice: random.Random, _: Parts) -> str:
    """Exchange two pages."""
    one, other = _two_pages(data, dice)
    data[one : one + PAGE], data[other : other + PAGE] = (
        data[other : other + PAGE],
        data[one : one + PAGE],
    )
    return f"pages {one // PAGE} and {other // PAGE} exchanged"


def double(data: bytearray, dice: random.Random, _: Parts) -> str:
    """Write a page in the place of another one, too."""
    one, other = _two_pages(data, dice)
    data[other : other + PAGE] = data[one : one + PAGE]
    return f"page {one // PAGE} also in the place of {other // PAGE}"


def cut(data: bytearray, dice: random.Random, _: Parts) -> str:
    """Cut the end off."""
    length = dice.randrange(len(data))
    if dice.random() < 0.5:
        length = length // PAGE * PAGE
    del data[length:]
    return f"cut at {length}"


SPOILS: dict[str, Spoil] = {
    "bit flips": flip,
    "bit flips in structure": flip_structure,
    "zeroed ranges": zeros,
    "garbage": garbage,
    "swapped pages": swap,
    "doubled pages": double,
    "truncation": cut,
}


def _range(data: bytearray, dice: random.Random) -> tuple[int, int]:
    length = int(2 ** dice.uniform(0, 15))
    start = dice.randrange(len(data))
    return start, min(start + length, len(data))


def _two_pages(data: bytearray, dice: random.Random) -> tuple[int, int]:
    one, other = dice.sample(range(len(data) // PAGE), 2)
    return one * PAGE, other * PAGE


def spoil(whole: bytes, kind: str, dice: random.Random, known: Parts) -> tuple[bytes, str]:
    """Spoil a file once, or sometimes twice or three times."""
    data, changes = bytearray(whole), ""
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        if len(data) > 2 * PAGE:
            changes += SPOILS[kind](data, dice, known) + "; "
    return bytes(data), changes


def parts(path: Path) -> Parts:
    """Find the bytes of each document in an undamaged file."""
    with fpdb.open(path, readonly=True) as db:
        keys = {document.id: document.key for document in db.scan()}
        home, catalog = db._index.home, db._catalog
    from fpdb.storage.number_pages import unpack_rows

    with Survey(open_data(path)) as survey:
        file = survey.file
        found: dict[Any, list[range]] = {key: [] for key in keys.values()}
        leaves = [leaf for numbers in survey.leaves.values() for leaf in numbers]
        for key, ranges in _values(file, survey.leaves["documents"]):
            found[keys[int.from_bytes(key)]] += ranges
        if catalog.kind == "integer":
            recorded = {key for key, ranges in found.items() if ranges}
            for pages, column in ((catalog.by_key, 0), (home, -1)):
                ranges_of = dict(_values(file, survey.leaves[pages.name]))
                for entry in survey.entries(pages.name):
                    rows = unpack_rows(entry.value or b"", pages.columns, pages.seed_at(entry.key))
                    for number in rows[column].tolist():
                        if number not in recorded:
                            found[number] += ranges_of[entry.key]
        nodes = [node for leaf in leaves for node in file.nodes(leaf)]
        others = {*leaves, *(number for node in nodes for number in file.run(node))}
        special = [
            number
            for number in range(2, len(file.reached))
            if file.reached[number] == REACHED and number not in others
        ]
    return Parts(found, [0, 1, *special], leaves)


def _values(file: LmdbFile, leaves: Iterable[int]) -> Iterator[tuple[bytes, list[range]]]:
    """Yield for each entry of a tree the bytes that it needs: of heads, slot, node and value."""
    for leaf in leaves:
        page = file.page(leaf) or b""
        assert number_of(page) == leaf
        for slot, node in enumerate(parse_page(page).nodes):
            base = leaf * PAGE
            at = PAGE_HEAD.size + 2 * slot
            begin = base + int.from_bytes(page[at : at + 2], "little")
            end = begin + NODE_HEAD.size + len(node.key) + len(node.value)
            ranges = [
                range(base, base + PAGE_HEAD.size),
                range(base + at, base + at + 2),
                range(begin, end),
            ]
            if node.big:
                first = node.number * PAGE
                ranges.append(range(first, first + PAGE_HEAD.size + node.length))
            yield node.key, ranges


def intact(documents: dict[Any, list[range]], whole: bytes, spoilt: bytes) -> set[Any]:
    """Return the documents of which no byte has changed."""
    import numpy as np

    length = min(len(whole), len(spoilt))
    same = np.ones(len(whole) + 1, np.int64)
    one, other = (np.frombuffer(data[:length], np.uint8) for data in (whole, spoilt))
    same[:length] = one == other
    same[length:] = 0
    wrong = np.concatenate(([0], np.cumsum(1 - same)))
    return {
        key
        for key, ranges in documents.items()
        if not any(wrong[part.stop] - wrong[part.start] for part in ranges)
    }
