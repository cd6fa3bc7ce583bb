"""Groups as the program of a page takes them: compared, and cut to what a file holds."""

from typing import Any

from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import exact_shares, least_estimate
from fpdb.report.differences import differences
from fpdb.report.gather import Gathered, Group, Version
from fpdb.report.page import fit, language_of, plural, safe_json, visible

MOST_BYTES = 5_000_000
# Of these, what the page takes besides its groups.
_FRAME = 150_000
_EXCERPT = 1_500
_LONGEST_KEY = 300


class Room:
    """The bytes that are left for the groups to come, of which each may take an equal part."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._bytes = MOST_BYTES - _FRAME
        self.left_out = 0

    def of_group(self) -> int:
        """Return the bytes that the next group may take."""
        return self._bytes // max(self._groups, 1)

    def take(self, view: dict[str, Any]) -> None:
        """Count the bytes of a group."""
        self._bytes -= len(safe_json(view).encode()) + 1
        self._groups -= 1


def group_views(found: Gathered) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the groups, and notes on what of them isn't in the page."""
    room = Room(len(found.groups))
    views = []
    for group in found.groups:
        view = _group(found, group, room)
        room.take(view)
        views.append(view)
    # By what is shown; until here, it was estimated.
    views.sort(key=lambda view: (view["kind"] == "identical", view["low"]))
    notes = []
    if room.left_out:
        notes.append(
            f"{plural(room.left_out, 'character')} of long texts are left out where the page "
            "says so, because a file holds at most 5 MB."
        )
    return views, notes


def _group(found: Gathered, group: Group, room: Room) -> dict[str, Any]:
    kept, *others = group.versions
    text = found.text_of(kept)
    allowed = room.of_group() * 9 // 10 // max(len(others), 1) - 400 * len(group.versions)
    versions = [version_view(kept)]
    lowest, compared = 1.0, 0
    for other in others:
        versions.append(version_view(other))
        another = found.text_of(other)
        if text is not None and another is not None:
            versions[-1] |= pair_view(found.recipe, text, another, allowed, room)
            lowest = min(lowest, versions[-1]["s"])
            compared += 1
    if not others and text is not None:
        excerpt = visible(text[:_EXCERPT])
        versions[0] |= {"x": excerpt, "lang": language_of(text), "r": len(text) - _EXCERPT}
    view: dict[str, Any] = {
        "t": visible(kept.title),
        "lang": language_of(kept.title),
        "n": group.size,
        "kind": "edited" if group.texts > 1 else "identical",
        "more": group.texts - len(group.versions),
        "low": round(lowest if compared == group.texts - 1 else min(lowest, group.least), 4),
        "v": versions,
    }
    if lowest < least_estimate(found.similarity):
        view["chain"] = round(lowest, 4)
    return view


def version_view(version: Version) -> dict[str, Any]:
    """Return a text's documents: their keys, as they are, and where they were read."""
    return {
        "k": [key for key, _ in version.named],
        "src": [visible(source) for _, source in version.named[:1]],
        "n": version.copies,
    }


def pair_view(recipe: Recipe, text: str, other: str, allowed: int, room: Room) -> dict[str, Any]:
    """Return how similar two texts are, and what differs in them."""
    found = differences(text, other)
    fitted = fit(found.pieces, max(allowed, 500))
    rest = found.rest + found.other_rest
    room.left_out += fitted.left_out + rest
    share, contained = exact_shares(*recipe.shingles_many([text, other]))
    return {
        "s": round(share or 0.0, 4),
        "in": round(contained or 0.0, 4),
        "only": [round(found.only, 4), round(found.other_only, 4)],
        "size": [len(text), len(other)],
        "d": fitted.pieces,
        "rest": rest,
        "lang": language_of(other),
    }
