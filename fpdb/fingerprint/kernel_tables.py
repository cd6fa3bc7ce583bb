"""Tables that the kernels of text need: of characters, and of inverse document frequencies.

A kernel cleans character by character, so it takes only steps that do so too, and leaves out texts
with a character whose neighbours matter: the definitions in this package do those.
"""

import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fpdb import kernels
from fpdb.fingerprint import segmentation, sketches
from fpdb.fingerprint.features import IdfTable

# What the kernels have as well.
_KIND_SHIFT = 21
_LETTER, _SIGN = 1 << _KIND_SHIFT, 2 << _KIND_SHIFT
_SEVERAL, _HARD = 1 << 23, 1 << 24
_TABLE = 256
# Each of these steps treats characters one by one, but for those that `_combines` finds.
_BY_CHARACTER = frozenset({"letters", "unicode", "word-characters"})
# Scripts with characters that combine with the one before, though they aren't marks.
_SELECTORS = range(0xFE00, 0xFE10)  # marks that combine with nothing, which follow many emoji
_COMBINING = (range(0x1160, 0x1200), range(0xD7B0, 0xD800), range(0x10000, 0x1F000))


class Cleaning:
    """Steps of cleaning, divided into those for Python and those, after them, for a kernel."""

    def __init__(
        self,
        steps: Sequence[str],
        most: int,
        *,
        cut: str = "shingles",
        extra: Sequence[segmentation.Step] = (),
    ) -> None:
        first = len(steps)
        while first and steps[first - 1] in _BY_CHARACTER and not extra:
            first -= 1
        self.steps = [*(segmentation.STEPS[step] for step in steps), *extra]
        self.before = self.steps[: first + len(extra)]
        self._rest, self._cut, self._most = tuple(steps[first:]), cut, most

    @property
    def characters(self) -> "kernels.text.CharacterTable":
        """What the steps for the kernel make of each character."""
        return character_table(self._rest, self._cut)

    def __call__(self, texts: list[str]) -> list[str] | None:
        """Do the steps for Python; return nothing if a text grows too long for the kernels."""
        cleaned = texts
        for step in self.before:
            cleaned = list(map(step, cleaned))
        if self.before and max(map(len, cleaned), default=0) > self._most:
            return None
        return cleaned


@cache
def character_table(steps: tuple[str, ...], cut: str) -> "kernels.text.CharacterTable":
    """Return the table of what these steps make of each character, filled when it is used."""
    return kernels.text.CharacterTable(lambda number: _entries(steps, cut, number))


def _entries(steps: Sequence[str], cut: str, number: int) -> NDArray[np.uint32]:
    """Return the entries of 256 characters, and after them what several characters become."""
    characters = list(map(chr, range(number * _TABLE, (number + 1) * _TABLE)))
    entries: list[int] = []
    several: list[int] = []
    whole = "".join(characters)
    unchanged = segmentation.is_stable(whole) and _clean(whole, steps) == whole
    for character in characters:
        if not unchanged and _is_hard(character, steps):
            entries.append(_HARD)
            continue
        cleaned = character if unchanged else _clean(character, steps)
        codes = [ord(each) | KINDS[cut](each) for each in cleaned]
        if len(codes) == 1:
            entries += codes
        else:
            entries.append(_SEVERAL + _TABLE + len(several))
            several += [len(codes), *codes]
    return np.array(entries + several, np.uint32)


def _clean(text: str, steps: Sequence[str]) -> str:
    for step in steps:
        text = segmentation.STEPS[step](text)
    return text


def _is_hard(character: str, steps: Sequence[str]) -> bool:
    """Return whether what cleaning makes of a character depends on others beside it."""
    if "unicode" not in steps:
        return False
    before = _clean(character, steps[: steps.index("unicode")])
    return any(map(_combines, unicodedata.normalize("NFKC", before)))


def _combines(character: str) -> bool:
    """Return whether a character may combine with the one before; some that don't count too."""
    code = ord(character)
    if code in _SELECTORS:
        return False
    return unicodedata.category(character).startswith("M") or any(
        code in codes for codes in _COMBINING
    )


def _is_letter(character: str) -> bool:
    return character.isalnum() or character == "_"


# Whether a character belongs to a word, or is a sign, for each cut that a kernel has.
KINDS: dict[str, Callable[[str], int]] = {
    "shingles": lambda each: _is_letter(each) and (_SIGN if sketches.is_sign(each) else _LETTER),
    "characters": lambda _: 0,
    "whitespace": lambda each: 0 if each.isspace() else _LETTER,
    "words": lambda each: _is_letter(each) and _LETTER,
    "jieba": lambda each: _SIGN if segmentation.count_han(each) else _is_letter(each) and _LETTER,
}


def factor_table(table: IdfTable | None) -> "kernels.text.FactorTable | None":
    """Return a table of inverse document frequencies for kernels."""
    if table is None:
        return None
    features = [feature.encode("utf-8", "surrogatepass") for feature in table.values]
    ends = np.cumsum(np.fromiter(map(len, features), np.int64, len(features)))
    values = np.fromiter(table.values.values(), np.float64, len(features))
    return kernels.text.FactorTable(b"".join(features), ends, values, table.missing)
