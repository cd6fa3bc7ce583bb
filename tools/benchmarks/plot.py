"""Draw what a query costs against the number of documents, as an SVG with both axes logarithmic."""

import math
import statistics
from xml.sax.saxutils import escape

TITLE = "What a query costs, against the number of documents"
PANELS = [
    ("single", "One query at a time, p50"),
    ("batch", "100 k queries in a batch, each"),
]
# (side, cores, row in each panel, label, colour, dashes)
SERIES = [
    ("fpdb", "one", ("prepared p50", None), "fpdb, prepared", "#b3261e", "5 4"),
    ("fpdb", "one", ("single p50", "batch 100k"), "fpdb", "#b3261e", ""),
    ("sqlite", "one", ("single p50", "batch 100k"), "SQLite, four block columns", "#8a6d00", ""),
    ("faiss", "one", ("single p50", "batch 100k"), "FAISS (64,4,16)", "#1a5fb4", ""),
    ("faiss", "all", (None, "batch 100k"), "FAISS (64,4,16), all cores", "#1a5fb4", "5 4"),
    ("faiss-flip", "one", ("single p50", "batch 100k"), "FAISS (64,3,21), a flip", "#0b7a75", ""),
    (
        "faiss-flip",
        "all",
        (None, "batch 100k"),
        "FAISS (64,3,21), a flip, all cores",
        "#0b7a75",
        "5 4",
    ),
    ("pynear", "one", ("single p50", "batch 100k"), "pynear", "#5e35b1", ""),
    ("simhash", "one", ("single p50", "batch 100k"), "simhash", "#616161", ""),
]
WIDTH, HEIGHT = 960, 566
LEFT, TOP, PANEL, GAP, TALL = 76, 64, 380, 86, 350
INK, GRID = "#1f2328", "#d8dee4"
SIZES = {10**3: "1 k", 10**4: "10 k", 10**5: "100 k", 10**6: "1 M", 10**7: "10 M", 10**8: "100 M"}


def costs(records, side, cores, row):
    """Return (documents, microseconds) of a row with uniform fingerprints, in order."""
    each = 1e5 if row == "batch 100k" else 1
    return sorted(
        (record["documents"], statistics.median(record["values"]) / each * 1e6)
        for record in records
        if (record["data"], record["side"], record["cores"], record["row"])
        == ("uniform", side, cores, row)
        and record["values"]
    )


def draw(records):
    """Return the SVG, or None if there is nothing to draw."""
    lines = [
        (panel, costs(records, side, cores, row), label, colour, dashes)
        for side, cores, rows, label, colour, dashes in SERIES
        for panel, row in enumerate(rows)
        if row
    ]
    lines = [line for line in lines if line[1]]
    if not lines:
        return None
    points = [point for _, line, *_ in lines for point in line]
    sides = [bounds([x for x, _ in points]), bounds([y for _, y in points])]
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif" '
        'role="img" aria-label="Microseconds a query against the number of documents">'
    )
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    parts = [root, paper, text(WIDTH / 2, 26, TITLE, 17, "middle", "600")]
    for place, (_, title) in enumerate(PANELS):
        parts += panel(place, title, sides, [line for line in lines if line[0] == place])
    parts += legend({label: (colour, dashes) for _, _, label, colour, dashes in lines})
    return "\n".join([*parts, "</svg>\n"])


def bounds(values):
    """Return the powers of ten around some values, at least one apart, with a little room."""
    low, high = math.log10(min(values)), math.log10(max(values))
    if high - low < 1:
        low, high = math.floor(low + 1e-9), max(math.ceil(high - 1e-9), math.floor(low) + 1)
    return low - 0.12 * (high - low), high + 0.12 * (high - low)


def panel(place, title, sides, lines):
    """Draw one panel: grid, labels, lines and dots."""
    left, bottom = LEFT + place * (PANEL + GAP), TOP + TALL

    def x(documents):
        (low, high) = sides[0]
        return left + PANEL * (math.log10(documents) - low) / (high - low)

    def y(cost):
        (low, high) = sides[1]
        return bottom - TALL * (math.log10(cost) - low) / (high - low)

    yield text(left + PANEL / 2, TOP - 12, title, 14, "middle", "600")
    for power in ticks(sides[1]):
        cost = 10**power
        if within(sides[1], cost):
            yield rule(left, y(cost), left + PANEL, y(cost))
            yield text(left - 8, y(cost) + 4, f"{cost:,g} µs", 12, "end")
        for minor in (2, 5):
            if within(sides[1], cost * minor):
                yield rule(left, y(cost * minor), left + PANEL, y(cost * minor), "#eef1f4")
                yield text(left - 8, y(cost * minor) + 4, f"{cost * minor:,g}", 10, "end", "400")
    for power in ticks(sides[0]):
        documents = 10**power
        if within(sides[0], documents):
            yield rule(x(documents), TOP, x(documents), bottom)
            name = SIZES.get(documents, f"{documents:,}")
            yield text(x(documents), bottom + 18, name, 12, "middle")
    yield f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{TALL}" fill="none" stroke="{INK}"/>'
    yield text(left + PANEL / 2, bottom + 38, "documents", 13, "middle")
    for _, line, _, colour, dashes in lines:
        path = " ".join(f"{x(n):.1f},{y(cost):.1f}" for n, cost in line)
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{style}/>'
        fill = "#ffffff" if dashes else colour
        for n, cost in line:
            yield (
                f'<circle cx="{x(n):.1f}" cy="{y(cost):.1f}" r="4" fill="{fill}" '
                f'stroke="{colour}" stroke-width="2"/>'
            )


def ticks(side):
    """Return the powers of ten on an axis, and the one below it for the marks between."""
    return [
        power
        for power in range(math.floor(side[0]), math.ceil(side[1]))
        if within(side, 10.0**power * 5) or within(side, 10.0**power)
    ]


def within(side, value):
    return side[0] <= math.log10(value) <= side[1]


def legend(names):
    """Draw the legend, in three columns below the panels."""
    for place, (label, (colour, dashes)) in enumerate(names.items()):
        left, top = LEFT + place % 3 * 285, TOP + TALL + 72 + place // 3 * 26
        style = f' stroke-dasharray="{dashes}"' if dashes else ""
        fill = "#ffffff" if dashes else colour
        yield (
            f'<line x1="{left}" y1="{top}" x2="{left + 34}" y2="{top}" stroke="{colour}" '
            f'stroke-width="2"{style}/>'
        )
        yield (
            f'<circle cx="{left + 17}" cy="{top}" r="4" fill="{fill}" stroke="{colour}" '
            f'stroke-width="2"/>'
        )
        yield text(left + 42, top + 4, label, 13, "start")


def rule(x1, y1, x2, y2, colour=GRID):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def text(x, y, words, size, anchor, weight="400"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
        f'font-weight="{weight}" fill="{INK}">{escape(words)}</text>'
    )
