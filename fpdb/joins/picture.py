"""Draw an evaluation: precision and recall against k, distances, bit balance; as SVG or a page."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from fpdb.models import Evaluation, Rating, RecipeQuality

_WIDTH, _ROW, _TALL = 1160, 330, 220
_TOP, _LEFT = 78, 62
_PANEL, _GAP = 312, 64
_INK, _PALE, _GRID = "#1f2328", "#57606a", "#d8dee4"
_PRECISION, _RECALL, _OTHER = "#1a5fb4", "#b3261e", "#8a8f98"
_STYLE = (
    "body{font-family:Helvetica,Arial,sans-serif;color:#1f2328;max-width:1160px;margin:2em auto;"
    "padding:0 1em}table{border-collapse:collapse;margin:.6em 0 1.6em}th,td{padding:.2em .8em;"
    "text-align:right;border-bottom:1px solid #d8dee4}svg{max-width:100%;height:auto}"
)


class _Panel(NamedTuple):
    """A part of the picture with axes of its own, from 0 to these values."""

    left: float
    top: float
    across: float
    up: float

    def x(self, value: float) -> float:
        return self.left + _PANEL * value / self.across

    def y(self, value: float) -> float:
        return self.top + _TALL * (1 - value / self.up)


def evaluation_svg(evaluation: Evaluation) -> str:
    """Draw an evaluation as SVG that needs nothing else; each recipe is a row."""
    height = _TOP + _ROW * len(evaluation.recipes)
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="Helvetica, Arial, sans-serif" '
        'role="img" aria-label="Precision and recall against k">'
    )
    parts = [
        root,
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(_LEFT, 26, "Precision and recall of near-duplicates", 17, weight="600"),
        *(
            _text(_LEFT, 46 + 16 * number, line, 12, colour=_PALE)
            for number, line in enumerate(measured(evaluation))
        ),
    ]
    for number, quality in enumerate(evaluation.recipes):
        parts += _row(evaluation, quality, _TOP + _ROW * number)
    return "\n".join([*parts, "</svg>\n"])


def evaluation_html(evaluation: Evaluation) -> str:
    """Write an evaluation as a page that needs nothing else: the picture, and a table below."""
    lines = "".join(f"<p>{escape(line)}</p>\n" for line in measured(evaluation))
    tables = "".join(_table(evaluation, quality) for quality in evaluation.recipes)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<title>Evaluation of recipes</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>Evaluation of recipes</h1>\n{lines}"
        f"{evaluation_svg(evaluation)}{tables}</body>\n</html>\n"
    )


def measured(evaluation: Evaluation) -> list[str]:
    """Say in two lines what was measured."""
    truth = "exact Jaccard similarity of shingles" if evaluation.exact else "the listed pairs"
    first = (
        f"{evaluation.documents:,} documents, {evaluation.true:,} true pairs (similarity from "
        f"{evaluation.truth_from:g}); truth: {truth}; {evaluation.equal:,} pairs of equal texts "
        "are left out."
    )
    second = (
        f"Right: from {evaluation.right_from:g}; wrong: below {evaluation.wrong_below:g}; "
        "what lies between isn't counted."
    )
    if evaluation.min_jaccard is not None:
        second += (
            f" Verified: sketches estimate a similarity of {evaluation.min_jaccard:g} or more."
        )
    return [first, second]


def _row(evaluation: Evaluation, quality: RecipeQuality, top: float) -> Iterator[str]:
    lefts = [_LEFT + number * (_PANEL + _GAP) for number in range(3)]
    sketchless = f", {quality.unsketched:,} without a sketch" if evaluation.min_jaccard else ""
    title = f"{quality.recipe}: {quality.bits} bits, {quality.short:,} texts too short{sketchless}"
    yield _text(_LEFT, top + 24, title, 14, weight="600")
    yield from _curves(quality, lefts[0], top + 62)
    yield from _histograms(quality, lefts[1], top + 62)
    yield from _balance(quality, lefts[2], top + 62)


def _curves(quality: RecipeQuality, left: float, top: float) -> Iterator[str]:
    """Draw precision and recall against k, and the same with verification dashed."""
    panel = _Panel(left, top, max(quality.ratings[-1].k, 1), 1)
    yield from _frame(panel, "k", _percent, [0, 0.25, 0.5, 0.75, 1], _whole(panel.across))
    for number, (ratings, dashes, kind) in enumerate(
        [(quality.ratings, "", ""), (quality.verified, "5 3", "verified ")]
    ):
        names = []
        for name, colour in (("precision", _PRECISION), ("recall", _RECALL)):
            if ratings:
                points = [
                    (panel.x(rating.k), panel.y(value))
                    for rating in ratings
                    if (value := getattr(rating, name)) is not None
                ]
                yield from _line(points, colour, dashes, f"{kind}{name}")
                names.append((f"{kind}{name}", colour, dashes))
        yield from _legend(left, top - 26 + 15 * number, names, 130)


def _histograms(quality: RecipeQuality, left: float, top: float) -> Iterator[str]:
    """Draw the distances of true and of other pairs, each as a share of its own number."""
    kinds = [
        ("true pairs", quality.true_distances, _RECALL),
        ("other pairs, drawn at random", quality.other_distances, _OTHER),
    ]
    shares = [[count / max(sum(counts), 1) for count in counts] for _, counts, _ in kinds]
    last = max((bit for each in shares for bit, share in enumerate(each) if share), default=1)
    highest = max(max(each) for each in shares) or 1.0
    panel = _Panel(left, top, last + 1, highest * 1.05)
    marks = [highest * part for part in (0, 0.5, 1)]
    yield from _frame(panel, "distance", _percent, marks, _whole(last))
    for (name, _, colour), each in zip(kinds, shares, strict=True):
        bars = "".join(
            f"M{panel.x(bit):.1f},{panel.y(0):.1f}V{panel.y(share):.1f}"
            f"H{panel.x(bit + 1):.1f}V{panel.y(0):.1f}Z"
            for bit, share in enumerate(each[: last + 1])
            if share
        )
        yield (
            f'<path d="{bars}" fill="{colour}" fill-opacity="0.55" stroke="{colour}" '
            f'stroke-width="0.5"><title>{escape(name)}</title></path>'
        )
    yield from _legend(left, top - 12, [(name, colour, "") for name, _, colour in kinds], 110)


def _balance(quality: RecipeQuality, left: float, top: float) -> Iterator[str]:
    """Draw how often each bit is set."""
    panel = _Panel(left, top, quality.bits, 1)
    yield from _frame(panel, "bit", _percent, [0, 0.5, 1], _whole(quality.bits))
    bars = "".join(
        f"M{panel.x(bit) + 0.5:.1f},{panel.y(0):.1f}V{panel.y(share):.1f}"
        f"H{panel.x(bit + 1) - 0.5:.1f}V{panel.y(0):.1f}Z"
        for bit, share in enumerate(quality.bit_shares)
    )
    yield f'<path d="{bars}" fill="{_PRECISION}" fill-opacity="0.6"><title>bits</title></path>'
    yield _rule(left, panel.y(0.5), left + _PANEL, panel.y(0.5), _INK)
    yield _text(left, top - 8, "share of fingerprints with the bit set", 11)


def _frame(
    panel: _Panel,
    name: str,
    shown: Callable[[float], str],
    up: Sequence[float],
    across: Sequence[int],
) -> Iterator[str]:
    """Draw a grid with its numbers, and the name of the axis across."""
    for value in up:
        yield _rule(panel.left, panel.y(value), panel.left + _PANEL, panel.y(value))
        yield _text(panel.left - 6, panel.y(value) + 4, shown(value), 11, anchor="end")
    bottom = panel.top + _TALL
    for value in across:
        yield _rule(panel.x(value), bottom, panel.x(value), bottom + 4, _INK)
        yield _text(panel.x(value), bottom + 16, str(value), 11, anchor="middle")
    yield _rule(panel.left, bottom, panel.left + _PANEL, bottom, _INK)
    yield _text(panel.left + _PANEL / 2, bottom + 32, name, 12, anchor="middle")


def _whole(last: float) -> list[int]:
    """Choose about eight whole numbers up to the last."""
    step = next(step for step in (1, 2, 4, 8, 16, 32) if last / step <= 8 or step == 32)
    return list(range(0, int(last) + 1, step))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _line(
    points: Sequence[tuple[float, float]], colour: str, dashes: str, name: str
) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    style = f' stroke-dasharray="{dashes}"' if dashes else ""
    yield (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{style}>'
        f"<title>{escape(name)}</title></polyline>"
    )
    fill = "#ffffff" if dashes else colour
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}" stroke="{colour}"/>'


def _legend(
    left: float, top: float, names: Sequence[tuple[str, str, str]], each: float
) -> Iterator[str]:
    for number, (name, colour, dashes) in enumerate(names):
        x = left + number * each
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        yield (
            f'<line x1="{x:.1f}" y1="{top}" x2="{x + 16:.1f}" y2="{top}" stroke="{colour}" '
            f'stroke-width="3"{style}/>'
        )
        yield _text(x + 20, top + 4, name, 11)


def _rule(x1: float, y1: float, x2: float, y2: float, colour: str = _GRID) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(
    x: float,
    y: float,
    words: str,
    size: int,
    *,
    anchor: str = "start",
    weight: str = "400",
    colour: str = _INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{colour}">{escape(words)}</text>'
    )


def _table(evaluation: Evaluation, quality: RecipeQuality) -> str:
    kinds = [("", quality.ratings)]
    if quality.verified:
        kinds.append((f", verified from {evaluation.min_jaccard:g}", quality.verified))
    return "".join(
        f"<h2>{escape(quality.recipe)}{escape(kind)}</h2>\n<table>\n"
        "<tr><th>k</th><th>reported</th><th>right</th><th>wrong</th><th>found</th>"
        f"<th>precision</th><th>recall</th><th>F1</th></tr>\n{_cells(ratings)}</table>\n"
        for kind, ratings in kinds
    )


def _cells(ratings: Sequence[Rating]) -> str:
    rows = ""
    for rating in ratings:
        counts = (rating.k, rating.reported, rating.right, rating.wrong, rating.found)
        shares = (rating.precision, rating.recall, rating.f1)
        cells = [f"{count:,}" for count in counts]
        cells += ["-" if share is None else f"{share:.4f}" for share in shares]
        rows += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
    return rows
