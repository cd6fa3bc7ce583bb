"""Pictures of groups: how similar their texts are, how many documents they have, and when."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date

from fpdb.fingerprint import least_estimate
from fpdb.report.page import Markup, bars, percent, plural

_SIZES = ((2, 2), (3, 3), (4, 4), (5, 9), (10, 19), (20, 49), (50, 99), (100, 999), (1000, 0))
_MOST_BARS = 60


def by_similarity(shares: Sequence[int], similarity: float) -> Markup:
    """Show how many pairs are how similar; `shares` counts them by percent."""
    least = min(int(similarity * 100), 99)
    first = next((share for share, count in enumerate(shares) if count), least)
    width = 1 if 100 - min(first, least) <= 24 else 5
    bins: Counter[int] = Counter()
    for share, count in enumerate(shares):
        bins[share // width * width] += count
    start = min(first, least) // width * width
    rows = [
        (f"{low}–{low + width - 1}" if width > 1 and low < 100 else f"{low}", bins[low])
        for low in range(start, 101, width)
    ]
    pairs = sum(shares)
    return bars(
        "Pairs by similarity, in percent",
        f"{plural(pairs, 'pair')} of different texts by how similar they are. It is estimated, "
        f"within a few percent; so pairs from {percent(least_estimate(similarity))} on are "
        "taken. A text that is there several times is counted once.",
        rows,
        "pairs",
    )


def by_size(sizes: Mapping[int, int]) -> Markup:
    """Show how many groups have how many documents."""
    rows = []
    for low, high in _SIZES:
        count = sum(n for size, n in sizes.items() if low <= size and (size <= high or not high))
        label = f"{low:,}" if low == high else f"{low:,}–{high:,}" if high else f"{low:,}+"
        rows.append((label, count))
    while len(rows) > 3 and not rows[-1][1]:
        rows.pop()
    largest = max(sizes, default=0)
    return bars(
        "Groups by number of documents",
        f"How many groups have two documents, three, and more. The largest has {largest:,}.",
        rows,
        "groups",
    )


def by_day(title: str, sentence: str, found: Mapping[date, int], unit: str) -> Markup:
    """Show how many of something there were by day, or by month or year if that is long."""
    days = sorted(found)
    forms = ("%Y-%m-%d", "%Y-%m", "%Y")
    spans = [(days[-1] - days[0]).days / length if days else 0 for length in (1, 30, 365)]
    form = next((f for f, span in zip(forms, spans, strict=True) if span < _MOST_BARS), "%Y")
    counts: Counter[str] = Counter()
    for number in range(days[0].toordinal(), days[-1].toordinal() + 1) if days else ():
        day = date.fromordinal(number)
        counts[day.strftime(form)] += found.get(day, 0)
    return bars(title, sentence, list(counts.items())[-_MOST_BARS:], unit)
