"""The paragraphs of texts, by which those are found that many texts have."""

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import xxhash

from fpdb import kernels
from fpdb.arrays import Column, Places
from fpdb.fingerprint.hashing import utf8
from fpdb.fingerprint.segmentation import normalise_unicode
from fpdb.fingerprint.sketches import SIGN_CLASS

# Words, or characters of a script without spaces, of a paragraph that isn't too short to count.
_WORDS, _SIGNS = 10, 20
_SIGNS_IN_ALL = re.compile(rf"(?:[^{SIGN_CLASS[1:]}*+{SIGN_CLASS}){{{_SIGNS}}}")
_SIGN_BYTES = 3  # at least, of UTF-8
# Programs that break lines within sentences make none with more bytes of UTF-8.
_WRAPPED = 100
_HASHED = 240  # bytes that a kernel hashes together


class Paragraphs(NamedTuple):
    """The paragraphs of some texts, as hashes: the text of each, and its lines in this.

    `texts` has a hash of each text.
    """

    texts: Column
    hashes: Column
    owners: Places
    starts: Places
    ends: Places


def paragraphs(texts: Sequence[str], seed: int) -> Paragraphs:
    """Find the paragraphs of at least ten words, or 20 characters of a script without spaces.

    Between blank lines, each line is one if any has more than 100 bytes of UTF-8; otherwise they
    are one together, since they may be broken within sentences. A text that is a single paragraph
    has none. Case, forms of characters and white space around lines make no difference.
    """
    folded = [text if text.isascii() else utf8(normalise_unicode(text)) for text in texts]
    counts, sizes, spaces, hashes = _measured(folded, seed)
    firsts = counts.cumsum() - counts
    whole = np.add.reduceat(hashes, firsts) if texts else hashes
    filled = sizes > 0
    begins = filled.copy()
    begins[1:] &= ~filled[:-1]
    begins[firsts] = filled[firsts]
    [blocks] = begins.nonzero()
    if len(blocks):
        longest = np.maximum.reduceat(sizes, blocks)
        begins |= filled & (longest[begins.cumsum() - 1] > _WRAPPED)
    [starts] = begins.nonzero()
    owners = firsts.searchsorted(starts, "right") - 1
    begins[firsts] = True
    [bounds] = (begins | ~filled).nonzero()
    ends = np.append(bounds, len(sizes))[bounds.searchsorted(starts, "right")]
    if not len(starts):
        return Paragraphs(whole, hashes[:0], owners, starts, ends)
    long = np.add.reduceat(spaces + filled, starts) >= _WORDS
    unspaced = ~long & (np.add.reduceat(sizes, starts) >= _SIGNS * _SIGN_BYTES)
    owner, lines = -1, list[bytes]()
    for place in unspaced.nonzero()[0].tolist():
        text, first = folded[owners[place]], firsts[owners[place]]
        if isinstance(text, bytes):
            if owner != owners[place]:  # each text is split once, however many paragraphs it has
                owner, lines = owners[place], text.split(b"\n")
            part = b" ".join(lines[starts[place] - first : ends[place] - first])
            signs = part.decode("utf-8", "surrogatepass")
            long[place] = _SIGNS_IN_ALL.match(signs) is not None
    long &= np.bincount(owners)[owners] > 1
    begun = firsts[owners]
    hashes = np.add.reduceat(hashes, starts)[long]
    return Paragraphs(whole, hashes, owners[long], (starts - begun)[long], (ends - begun)[long])


def _measured(texts: list[str | bytes], seed: int) -> tuple[Places, Places, Places, Column]:
    """Return how many lines each text has; and of all lines sizes, numbers of spaces, and hashes.

    Texts that aren't ASCII are folded and encoded; in others, the case makes no difference.
    """
    if kernels.enabled:
        counted, measured = kernels.lines.measured_lines(texts, seed)
        columns = np.frombuffer(measured, np.int64).reshape(3, -1)
        counts = np.frombuffer(counted, np.int64)
        return counts, columns[0], columns[1], columns[2].view(np.uint64)
    lines = [
        list(map(bytes.strip, (text if isinstance(text, bytes) else text.encode()).split(b"\n")))
        for text in texts
    ]
    every = list(chain.from_iterable(lines))
    return (
        np.fromiter(map(len, lines), np.int64),
        np.fromiter(map(len, every), np.int64),
        np.fromiter((line.count(b" ") for line in every), np.int64),
        np.fromiter((_hash(line.lower(), seed) for line in every), np.uint64),
    )


def _hash(line: bytes, seed: int) -> int:
    number = seed if line else 0
    for start in range(0, len(line), _HASHED):
        number = xxhash.xxh3_64_intdigest(line[start : start + _HASHED], number)
    return number


def without(text: str, spans: Iterable[tuple[int, int]]) -> tuple[str, list[int]]:
    """Return a text without some lines, and the characters of each span of these.

    The spans are sorted. The blank lines after them go too.
    """
    lines, left, sizes, place = text.split("\n"), list[str](), list[int](), 0
    for start, end in spans:
        left += lines[place:start]
        sizes.append(len("\n".join(lines[start:end])))
        place = end
        while place < len(lines) and not lines[place].strip():
            place += 1
    whole = "\n".join(left + lines[place:])
    return whole.rstrip() if place == len(lines) else whole, sizes
