"""Draw how good a recipe is, as SVG: precision and recall against k, distances, bit balance."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from fpdb.models import RecipeQuality

_WIDTH, _HEIGHT = 1160, 408
_LEFTS, _TOP, _ACROSS, _TALL = (62, 438, 814), 140, 312, 220
_INK, _PALE, _GRID = "#1f2328", "#57606a", "#d8dee4"
_PRECISION, _RECALL, _OTHER = "#1a5fb4", "#b3261e", "#8a8f98"


class _Panel(NamedTuple):
    """A part of the picture with axes of its own, from 0 to `across` and from 0 to `up`."""

    left: float
    across: float
    up: float

    def x(self, value: float) -> float:
        return self.left + _ACROSS * value / self.across

    def y(self, value: float) -> float:
        return _TOP + _TALL * (1 - value / self.up)

    def frame(self, name: str) -> list[str]:
        """Draw a grid with its numbers, and the name of the axis across."""
        parts = []
        for value in (0, self.up / 4, self.up / 2, self.up * 3 / 4, self.up):
            parts.append(_rule(self.left, self.y(value), self.left + _ACROSS, self.y(value)))
            parts.append(
                _text(self.left - 6, self.y(value) + 4, f"{100 * value:.3g} %", 11, anchor="end")
            )
        bottom = _TOP + _TALL
        step = next(step for step in (1, 2, 4, 8, 16, 32) if self.across / step <= 8 or step == 32)
        for value in range(0, int(self.across) + 1, step):
            parts.append(_rule(self.x(value), bottom, self.x(value), bottom + 4, _INK))
            parts.append(_text(self.x(value), bottom + 16, str(value), 11, anchor="middle"))
        parts.append(_rule(self.left, bottom, self.left + _ACROSS, bottom, _INK))
        parts.append(_text(self.left + _ACROSS / 2, bottom + 32, name, 12, anchor="middle"))
        return parts

    def bars(self, shares: Sequence[float], colour: str, name: str) -> str:
        path = "".join(
            f"M{self.x(place):.1f},{self.y(0):.1f}V{self.y(share):.1f}"
            f"H{self.x(place + 1):.1f}V{self.y(0):.1f}Z"
            for place, share in enumerate(shares[: int(self.across)])
            if share
        )
        return f'<path d="{path}" fill="{colour}" fill-opacity="0.55"><title>{name}</title></path>'

    def curve(
        self, points: Sequence[tuple[float, float]], colour: str, dash: str, name: str
    ) -> str:
        path = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in points)
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"><title>{name}</title></polyline>'
        )


def draw(lines: Sequence[str], quality: RecipeQuality) -> str:
    """Draw a recipe's quality below a heading of a few lines."""
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" font-family="Helvetica, Arial, sans-serif" '
        'role="img" aria-label="Precision and recall against k">'
    )
    parts = [
        root,
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        *(_text(62, 26 + 18 * place, line, 13, colour=_PALE) for place, line in enumerate(lines)),
        *_curves(quality),
        *_histograms(quality),
        *_balance(quality),
    ]
    return "\n".join([*parts, "</svg>\n"])


def _curves(quality: RecipeQuality) -> list[str]:
    """Draw precision and recall against k, and those of similar pairs dashed."""
    ks = [rating.k or 0 for rating in quality.ratings]
    panel = _Panel(_LEFTS[0], max(*ks, 1), 1)
    parts = panel.frame("k")
    # What is found by similarity doesn't depend on k.
    kinds = [(quality.ratings, "none", "")]
    if quality.similar:
        kinds.append(((quality.similar,) * len(ks), "5 3", "similar "))
    for row, (ratings, dash, kind) in enumerate(kinds):
        for place, (name, colour) in enumerate((("precision", _PRECISION), ("recall", _RECALL))):
            shares = [(k, getattr(rating, name)) for k, rating in zip(ks, ratings, strict=True)]
            points = [(k, share) for k, share in shares if share is not None]
            if points:
                parts.append(panel.curve(points, colour, dash, kind + name))
                left, top = _LEFTS[0] + 130 * place, _TOP - 24 + 14 * row
                parts.append(_text(left, top, kind + name, 11, colour=colour))
    return parts


def _histograms(quality: RecipeQuality) -> list[str]:
    """Draw the distances of true and of other pairs, each as a share of its own number."""
    kinds = (
        ("true pairs", quality.true_distances, _RECALL),
        ("other pairs, drawn at random", quality.other_distances, _OTHER),
    )
    shares = [[count / max(sum(counts), 1) for count in counts] for _, counts, _ in kinds]
    last = max((bit for each in shares for bit, share in enumerate(each) if share), default=1)
    panel = _Panel(_LEFTS[1], last + 1, max(map(max, shares)) or 1.0)
    parts = panel.frame("distance")
    for place, ((name, _, colour), each) in enumerate(zip(kinds, shares, strict=True)):
        parts.append(panel.bars(each, colour, name))
        parts.append(_text(_LEFTS[1] + 110 * place, _TOP - 10, name, 11, colour=colour))
    return parts


def _balance(quality: RecipeQuality) -> list[str]:
    """Draw how often each bit is set."""
    panel = _Panel(_LEFTS[2], quality.bits, 1)
    name = "share of fingerprints with the bit set"
    title = _text(_LEFTS[2], _TOP - 10, name, 11)
    return [*panel.frame("bit"), panel.bars(quality.bit_shares, _PRECISION, "bits"), title]


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str = _GRID) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(
    x: float, y: float, words: str, size: int, *, anchor: str = "start", colour: str = _INK
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{colour}">{escape(words)}</text>'
    )
