"""Passages that two texts share, by the places of the shingles that both have.

A shingle that the second text has once is a fixed point. One that it has several times goes on
with the passage after or before it, if there is one. So the time doesn't grow with the product of
the lengths, as that of an alignment does, whatever is repeated in the texts.
"""

from bisect import bisect_right
from dataclasses import replace

import numpy as np

from fpdb.arrays import Column, Marks, Places, among
from fpdb.fingerprint.presets import preset
from fpdb.fingerprint.recipe import Recipe
from fpdb.fingerprint.sketches import PlacedShingles
from fpdb.models import Overlap, Passage


def overlap(first: str, second: str, *, recipe: str | Recipe = "web") -> Overlap:
    """Find the passages of a text that another one has too, and how much of each is in the other.

    Texts share a passage of a shingle and more: of three words, or five characters of a script
    without spaces. Passages are in the order of the first text, in which they don't overlap; a
    passage that was moved is found as well.

    Args:
        first: The text whose passages are returned.
        second: The text to look for them in.
        recipe: How the texts are cleaned.

    Returns:
        The `passages`, the `share` of the first text's shingles that the second has, or of the
        features if the recipe's similarity is of these, and the `other_share`.

    Raises:
        InputError: A text is too large.
    """
    recipe = preset(recipe) if isinstance(recipe, str) else recipe
    placed = recipe.placed_shingles(first), recipe.placed_shingles(second)
    shared = shared_passages(*placed, recipe.common_shingles)
    if recipe.sketch == "features":
        share, other_share = _shares(recipe.shingles(first), recipe.shingles(second))
        shared = replace(shared, share=share, other_share=other_share)
    return shared


def shared_passages(
    first: tuple[str, PlacedShingles], second: tuple[str, PlacedShingles], common: Column
) -> Overlap:
    """Find the passages that two texts share, given their shingles, without the common shingles.

    No passage begins or ends with words of these.
    """
    (text, one), (other_text, other) = first, second
    share, other_share = _shares(*(np.setdiff1d(placed.hashes, common) for placed in (one, other)))
    at = _counterparts(one.hashes, other.hashes)
    at[among(one.hashes, common)] = -1
    [shared] = (at >= 0).nonzero()
    fresh = (np.diff(shared, prepend=-2) != 1) | (np.diff(at[shared], prepend=-2) != 1)
    # The first one is fresh, so that the last one of the last passage is marked as well.
    begins, ends = shared[fresh], one.ends[shared[np.roll(fresh, -1)]]
    # Two passages may have words of a shingle in common, which are taken for the first one.
    taken = np.maximum(begins, np.append(0, np.maximum.accumulate(ends))[:-1])
    shifts, sizes = taken - begins, ends - taken
    passages, covered = [], common_tokens(one, common).tolist()
    for begin, other_begin, size in zip(
        taken.tolist(), (at[begins] + shifts).tolist(), sizes.tolist(), strict=True
    ):
        while size > 0 and covered[begin]:
            begin, other_begin, size = begin + 1, other_begin + 1, size - 1  # noqa: PLW2901
        while size > 0 and covered[begin + size - 1]:
            size -= 1  # noqa: PLW2901
        if size > 0:
            passages.append(
                Passage(
                    words=size,
                    start=int(one.starts[begin]),
                    end=int(one.stops[begin + size - 1]),
                    other_start=int(other.starts[other_begin]),
                    other_end=int(other.stops[other_begin + size - 1]),
                )
            )
    return Overlap(text, other_text, share, other_share, tuple(passages))


def common_tokens(placed: PlacedShingles, common: Column) -> Marks:
    """Mark the tokens of a text that are in its common shingles."""
    [shingles] = among(placed.hashes, common).nonzero()
    changes = np.zeros(len(placed.starts) + 1, np.int64)
    np.add.at(changes, shingles, 1)
    np.add.at(changes, placed.ends[shingles], -1)
    return np.asarray(changes.cumsum()[:-1] > 0)


def _shares(first: Column, second: Column) -> tuple[float | None, float | None]:
    """Return the share of each of two sets that is in the other; that of an empty one is None."""
    common = len(np.intersect1d(first, second, assume_unique=True))
    share, other_share = (common / size if size else None for size in (len(first), len(second)))
    return share, other_share


def _counterparts(first: Column, second: Column) -> Places:
    """Return for each shingle the place of an equal one in the other text, or -1."""
    order = np.argsort(second, kind="stable")
    lows, highs = (second[order].searchsorted(first, side) for side in ("left", "right"))
    places = np.full(len(first) + 1, -1)  # the last entry ends each passage
    alone = highs - lows == 1
    places[:-1][alone] = order[lows[alone]]
    # Lists, because numbers of arrays are slow in a loop.
    at, wanted, there, spots = places.tolist(), first.tolist(), second.tolist(), order.tolist()
    for place in reversed((highs - lows > 1).nonzero()[0].tolist()):
        before = at[place + 1] - 1
        if before >= 0 and there[before] == wanted[place]:
            at[place] = before
    last = -1
    for place in (highs > lows).nonzero()[0].tolist():
        if at[place] < 0:
            low, high = int(lows[place]), int(highs[place])
            following = bisect_right(spots, last, low, high)
            at[place] = spots[following if following < high else low]
        last = at[place]
    return np.array(at[:-1], np.int64)
