"""What two texts have in common, and what only one has: in words, or in characters of Chinese.

Runs of words that both texts have once are fixed points, as in a patience diff. Between them, the
longest common subsequence is found with the bits of large integers. For two texts of 100 kB that
takes a tenth of a second, and no text makes it slow; difflib takes up to 6 seconds.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

# Scripts without spaces between words: each of their characters is a word here.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff"
)
# A line of a million letters is no single word.
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{1,40}}|\S")
# How many words in a row make a fixed point, the most first.
_FIXED = (16, 4, 1)
# Words of one side times words of the other that are compared without fixed points: 8 MiB of bits.
_COMPARED = 1 << 26
# The most words of a text that are compared.
MOST_WORDS = 100_000


class Stretch(NamedTuple):
    """Words of two texts, by their places: equal ones, or what each has in place of the other's."""

    start: int
    stop: int
    other_start: int
    other_stop: int
    same: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of words on both sides."""
        return self.stop - self.start, self.other_stop - self.other_start


class Piece(NamedTuple):
    """A piece of two texts: equal words, or what each has in place of the other's."""

    same: bool
    text: str
    other: str


@dataclass(frozen=True)
class Differences:
    """Two texts, cut into pieces, and the shares of their words that only one of them has.

    `rest` and `other_rest` count the characters at the ends of long texts that weren't compared.
    """

    pieces: tuple[Piece, ...]
    only: float
    other_only: float
    rest: int
    other_rest: int


def differences(text: str, other: str) -> Differences:
    """Compare two texts word by word; white space counts for nothing."""
    (words, ends), (others, other_ends) = _words(text), _words(other)
    stretches = _readable(_stretches(words, others))
    _begin_after_signs(stretches, words, others)
    pieces = [
        Piece(
            each.same,
            text[ends[each.start] : ends[each.stop]],
            other[other_ends[each.other_start] : other_ends[each.other_stop]],
        )
        for each in stretches
    ]
    sizes = [each.sizes for each in stretches if not each.same]
    return Differences(
        tuple(pieces),
        sum(size for size, _ in sizes) / max(len(words), 1),
        sum(size for _, size in sizes) / max(len(others), 1),
        len(text) - ends[-1],
        len(other) - other_ends[-1],
    )


def _words(text: str) -> tuple[list[str], list[int]]:
    """Return the words of a text, and where each ends with the white space after it, from 0 on."""
    found = list(islice(_WORD.finditer(text), MOST_WORDS + 1))
    ends = [0, *(each.start() for each in found[1:]), len(text)]
    return [each[0] for each in found[:MOST_WORDS]], ends[: MOST_WORDS + 1]


def _stretches(first: Sequence[str], second: Sequence[str]) -> Iterator[Stretch]:
    """Yield the stretches of equal words of two texts, and what is between them."""
    equal = Stretch(0, 0, 0, 0, same=True)
    found = (match for match in _equal(first, second, 0) if match[2])
    for one, other, size in (*found, (len(first), len(second), 0)):
        if (one, other) != (equal.stop, equal.other_stop):
            if equal.stop > equal.start:
                yield equal
            yield Stretch(equal.stop, one, equal.other_stop, other, same=False)
            equal = Stretch(one, one, other, other, same=True)
        equal = equal._replace(stop=one + size, other_stop=other + size)
    if equal.stop > equal.start:
        yield equal


def _equal(
    first: Sequence[str], second: Sequence[str], level: int, at: int = 0, other_at: int = 0
) -> Iterator[tuple[int, int, int]]:
    """Yield equal words in order: their places in both texts, and how many they are."""
    most = min(len(first), len(second))
    head = next((n for n in range(most) if first[n] != second[n]), most)
    tail = next((n for n in range(most - head) if first[-1 - n] != second[-1 - n]), most - head)
    yield at, other_at, head
    one, other = first[head : len(first) - tail], second[head : len(second) - tail]
    at, other_at = at + head, other_at + head
    if len(one) * len(other) <= _COMPARED and level:
        for place, other_place in _subsequence(one, other):
            yield at + place, other_at + other_place, 1
    elif level < len(_FIXED):
        size = _FIXED[level]
        end = other_end = 0
        for place, other_place in [*_fixed(one, other, size), (len(one), len(other))]:
            if place >= end and other_place >= other_end:  # fixed points may overlap
                some, others = one[end:place], other[other_end:other_place]
                yield from _equal(some, others, level + 1, at + end, other_at + other_end)
                yield at + place, other_at + other_place, min(size, len(one) - place)
                end, other_end = place + size, other_place + size
    yield at + len(one), other_at + len(other), tail


def _fixed(first: Sequence[str], second: Sequence[str], size: int) -> list[tuple[int, int]]:
    """Return the places of runs that both have once: as many as are in the same order in both."""
    there = _once(second, size)
    pairs = [(place, there[run]) for run, place in _once(first, size).items() if run in there]
    # The longest increasing subsequence of the places in the other text.
    ends: list[int] = []
    chains: list[tuple[Any, ...]] = []
    for pair in pairs:
        length = bisect_left(ends, pair[1])
        ends[length : length + 1] = [pair[1]]
        chains[length : length + 1] = [(pair, chains[length - 1] if length else ())]
    found: list[tuple[int, int]] = []
    chain = chains[-1] if chains else ()
    while chain:
        pair, chain = chain
        found.append(pair)
    return found[::-1]


def _once(words: Sequence[str], size: int) -> dict[tuple[str, ...], int]:
    """Return the place of each run of words, in order; -1 for one that is there several times."""
    places: dict[tuple[str, ...], int] = {}
    for place, run in enumerate(zip(*(words[shift:] for shift in range(size)), strict=False)):
        places[run] = -1 if run in places else place
    return {run: place for run, place in places.items() if place >= 0}


def _subsequence(first: Sequence[str], second: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Return the places of a longest common subsequence (Hyyrö 2004, a bit for each first word)."""
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    every = (1 << len(first)) - 1
    rows, row = [], every
    for word in second:
        common = row & places.get(word, 0)
        row = (row + common | row - common) & every
        rows.append(row)
    found = []
    place, other = len(first), len(second)
    while place and other:
        if rows[other - 1] >> place - 1 & 1:
            place -= 1
        else:
            other -= 1
            if not other or rows[other - 1] >> place - 1 & 1:
                place -= 1
                found.append((place, other))
    return reversed(found)


def _readable(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Take few equal words between larger changes for a part of these, as a reader would."""
    kept: list[Stretch] = []
    for each in stretches:
        kept.append(each)
        while len(kept) > 2 and not kept[-1].same and not kept[-3].same:
            before, equal, after = kept[-3:]
            if equal.sizes[0] > min(max(before.sizes), max(after.sizes)) // 2:
                break
            kept[-3:] = [
                Stretch(before.start, after.stop, before.other_start, after.other_stop, same=False)
            ]
    return kept


def _begin_after_signs(
    stretches: list[Stretch], words: Sequence[str], others: Sequence[str]
) -> None:
    """Let a sentence that only one text has begin with its first word, and end with its full stop.

    What follows it begins with the sign before it then, so both ways are right.
    """
    for place in range(1, len(stretches) - 1):
        before, own, after = stretches[place - 1 : place + 2]
        if own.same or 0 not in own.sizes:
            continue
        side, start, stop = words, own.start, own.stop
        if not own.sizes[0]:
            side, start, stop = others, own.other_start, own.other_stop
        shift = next(
            (
                n
                for n in range(after.sizes[0] - 1)
                if side[start + n] != side[stop + n] or side[start + n].isalnum()
            ),
            max(after.sizes[0] - 1, 0),
        )
        middle = own._replace(
            start=own.start + shift,
            stop=own.stop + shift,
            other_start=own.other_start + shift,
            other_stop=own.other_stop + shift,
        )
        stretches[place - 1 : place + 2] = [
            before._replace(stop=middle.start, other_stop=middle.other_start),
            middle,
            after._replace(start=middle.stop, other_start=middle.other_stop),
        ]
