"""Groups as the program of a page takes them: compared, and cut to what a file holds."""

from typing import Any

from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import exact_shares, least_estimate
from fpdb.report.differences import Differences, differences
from fpdb.report.gather import Gathered, Group, Version
from fpdb.report.page import fit, language_of, percent, plural, safe_json, visible

MOST_BYTES = 5_000_000
# Of these, what the page takes besides its groups, and what each group may take in any case.
_FRAME = 200_000
_LEAST = 4_000
# So that each has that, a page shows at most this many groups.
MOST_GROUPS = (MOST_BYTES - _FRAME) // _LEAST
_LARGEST_PAIR = 200_000
# What is said of a pair, besides its texts.
_SAID = 300
_EXCERPT = 1_500
_LONGEST_KEY, _SHORT_KEY, _SHORTEST = 1_000, 100, 20
# Languages whose words are characters here.
UNSPACED = ("zh", "ja")


class Room:
    """The bytes of a page that are left; groups that need less leave more to those after them."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._bytes = MOST_BYTES - _FRAME
        self.left_out = 0

    def of_group(self) -> int:
        """Return the bytes that the next group may take."""
        self._groups -= 1
        return self._bytes // (self._groups + 1)

    def take(self, view: dict[str, Any], most: int) -> None:
        """Leave out of a group what it has no room for: versions, keys, texts, the title's end."""
        versions = view["v"]
        while (size := _bytes_of(view)) > most and len(versions) > 2:
            versions.pop()
            view["more"] += 1
        if size > most:
            _shorten_keys(versions)
        if _bytes_of(view) > most:
            self.left_out += sum(map(_drop_text, versions))
        if _bytes_of(view) > most:
            view["t"] = view["t"][:_SHORTEST]
            _shorten_keys(versions, _SHORTEST)
        self._bytes -= _bytes_of(view)


def group_views(found: Gathered) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the groups, and notes on what of them isn't in the page."""
    room = Room(len(found.groups))
    views = []
    for group in sorted(found.groups, key=_size):
        most = room.of_group()
        view = _group(found, group, room, most)
        room.take(view, most)
        views.append(view)
    # By the similarity that is shown; until here, it was estimated.
    views.sort(key=lambda view: (view["kind"] == "identical", view["low"]))
    notes = []
    if room.left_out:
        notes.append(
            f"{plural(room.left_out, 'character')} of long texts are left out where the page "
            "says so, because a file holds at most 5 MB."
        )
    return views, notes


def _bytes_of(view: dict[str, Any]) -> int:
    return len(safe_json(view).encode()) + 1


def _drop_text(version: dict[str, Any]) -> int:
    """Leave the texts of a version out, and return their characters that were there."""
    pieces = [piece for piece in version.get("d", ()) if not isinstance(piece, int)]
    there = sum(sum(map(len, piece)) for piece in pieces)
    if "d" in version:
        version["d"] = [there + sum(piece for piece in version["d"] if isinstance(piece, int))]
    if "x" in version:
        there += len(version["x"])
        version["r"] += len(version["x"])
        version["x"] = ""
    return there


def _size(group: Group) -> int:
    """Return about how many bytes a group takes: no more, if its texts are as similar as usual."""
    places = [version.place for version in group.versions[1:] if version.place]
    return _LEAST + sum(min(size * 3 // 2, _LARGEST_PAIR) for _, size in places)


def _group(found: Gathered, group: Group, room: Room, most: int) -> dict[str, Any]:
    kept, *others = group.versions
    text = found.text_of(kept)
    versions = [version_view(kept)]
    named = 2 * len(safe_json(versions[0])) * len(group.versions)
    allowed = (most * 9 // 10 - named) // max(len(others), 1) - _SAID
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
    view["share"] = percent(view["low"]) if group.texts > 1 else "same"
    # Two texts alone may be less similar than estimated, but are no chain.
    if group.texts > 2 and lowest < least_estimate(found.similarity):
        view["chain"] = round(lowest, 4)
    return view


def version_view(version: Version) -> dict[str, Any]:
    """Return a text's documents: their keys, as they are, and where they were read."""
    # As texts, since a browser rounds large numbers; a path need not be Unicode.
    keys = [str(key).encode("utf-8", "replace").decode() for key, _ in version.named]
    view: dict[str, Any] = {
        "k": keys,
        "src": [visible(source)[-_LONGEST_KEY:] for _, source in version.named[:1]],
        "n": version.copies,
    }
    if any(len(key) > _LONGEST_KEY for key in keys):
        _shorten_keys([view], _LONGEST_KEY)
    return view


def _shorten_keys(views: list[dict[str, Any]], longest: int = _SHORT_KEY) -> None:
    """Cut long keys, which then can't be saved with a verdict, and name only the first of each."""
    for view in views:
        view["cut"] = any(len(key) > longest for key in view["k"][:1])
        view["k"] = [f"{key[:longest]}…" for key in view["k"][:1]] if view["cut"] else view["k"][:1]
        view["src"] = [source[-longest:] for source in view["src"]]


def pair_view(
    recipe: Recipe, text: str, other: str, allowed: int, room: Room, *, first: str = "kept"
) -> dict[str, Any]:
    """Return how similar two texts are, and what differs in them."""
    found = differences(text, other)
    fitted = fit(found.pieces, min(max(allowed, 500), _LARGEST_PAIR))
    rest = found.rest + found.other_rest
    room.left_out += fitted.left_out + rest
    share, contained = exact_shares(*recipe.shingles_many([text, other]))
    return {
        "s": round(share or 0.0, 4),
        "share": percent(share or 0.0),
        "say": likeness(found, share, first, text),
        "facts": [
            ["similarity", f"{share or 0.0:.4f}"],
            ["containment", f"{contained or 0.0:.4f} of the smaller text"],
            ["characters", f"{len(text):,} and {len(other):,}"],
        ],
        "d": fitted.pieces,
        "rest": rest,
        "lang": language_of(other),
    }


def likeness(found: Differences, share: float | None, first: str, text: str) -> str:
    """Say how similar two texts are, and how much only one of them has."""
    said = "" if share is None else f"{percent(share)} similar. "
    if all(piece.same for piece in found.pieces):
        return f"{said}The same words in the same order; only white space differs."
    what = "characters" if language_of(text) in UNSPACED else "words"
    return (
        f"{said}{percent(found.only)} of the {what} are only in the {first} text, "
        f"{percent(found.other_only)} of the other's only in that one."
    )
