"""Pictures of groups: how similar their texts are, how many documents they have, and when."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from itertools import pairwise

import numpy as np

from fpdb.arrays import Places
from fpdb.fingerprint import least_estimate
from fpdb.look.groups import Groups, HostPairs
from fpdb.look.page import cards, folded, percent, plural
from fpdb.markup import Markup, element, table

_WIDTH, _HEIGHT = 420, 150
_SIZES = (2, 3, 4, 5, 10, 20, 50, 100, 1000)
_MOST_BARS = 60
_MOST_HOSTS = 20


def overview(
    groups: Groups,
    documents: int,
    numbers: Sequence[tuple[str, str, str]],
    *more: Markup,
    first: str = "first",
) -> Iterator[Markup]:
    """Yield numbers and pictures of groups, beside others, and what hosts have copies of which."""
    near = "of near-duplicates: each resembles at least one other."
    equal = "have exactly the text of an earlier document of their group."
    if groups.similarity is None:
        near = "of documents that near fingerprints connect."
        equal = "have the fingerprint of an earlier document of their group."
    edited = "resemble an earlier document of their group, and have a text of their own."
    near += f" The {first} of each group counts as the kept one."
    copies = groups.identical + groups.edited
    stays = f"if only one document of each group stays: {copies:,} of {documents:,}."
    yield cards(
        [
            *numbers,
            (f"{len(groups.starts):,}", "groups", near),
            (f"{groups.identical:,}", "identical copies", equal),
            (f"{groups.edited:,}", "edited copies", edited),
            (percent(copies / max(documents, 1)), "could go", stays),
        ]
    )
    if groups.similarity is not None:
        said = (
            f"{_limit_said(groups.similarity, groups.estimated)} It is the share of their "
            "shingles, runs of three words or five Chinese characters, that is in both."
        )
        yield element("p", said, class_="soft")
    pictures = [_by_nearness(groups), _by_size(groups.sizes), *more]
    sources, copied = groups.copies()
    if dated := groups.by_day(copied):
        said = f"{plural(dated.total(), 'document')} with a date, besides the first of each group."
        pictures.append(by_day("When copies appeared", said, dated, "copies"))
    yield element("section", *pictures, class_="figures")
    said = "The documents of a group are counted with its earliest, or else with its first one."
    yield from by_host(groups.by_host(sources, copied), said)


def _limit_said(limit: float, estimated: int | None) -> str:
    """Say from which similarity two documents are near-duplicates, if that of some is estimated."""
    least, begin = percent(least_estimate(limit)), "Two documents count as near-duplicates from"
    if estimated is None:
        return (
            f"{begin} an estimated similarity of {least} on, so that few pairs of {percent(limit)} "
            "are missed."
        )
    missing = f" Where a text is missing, an estimate of {least} counts." if estimated else ""
    return f"{begin} a similarity of {percent(limit)} on.{missing}"


def _by_nearness(groups: Groups) -> Markup:
    if groups.similarity is None:
        rows = [(f"{bits}", count) for bits, count in enumerate(groups.shares.tolist())]
        said = "Documents of groups, by how many bits differ from the first one of their group."
        return bars("Documents by distance", said, rows, "documents")
    shares: list[int] = groups.shares.tolist()
    least = min(int(groups.similarity * 100), 99)
    first = min(next((share for share, count in enumerate(shares) if count), least), least)
    rows = [(f"{share}", count) for share, count in enumerate(shares)][first:]
    said = f"{plural(sum(shares), 'pair')} of different texts by how similar they are. "
    if groups.estimated != 0:
        taken = percent(least_estimate(groups.similarity))
        said += f"It is estimated, within a few percent; so pairs from {taken} on are taken. "
    said += "A text that is there several times is counted once."
    return bars("Pairs by similarity, in percent", said, rows, "pairs")


def _by_size(sizes: Places) -> Markup:
    counts = np.bincount(np.searchsorted(_SIZES, sizes, "right"), minlength=4)[1:].tolist()
    names = [f"{low}" if high == low + 1 else f"{low}–{high - 1}" for low, high in pairwise(_SIZES)]
    rows = list(zip([*names, f"{_SIZES[-1]:,}+"], counts, strict=False))
    said = "How many groups have two documents, three, and more. The largest has "
    said += f"{sizes.max(initial=0):,}."
    return bars("Groups by number of documents", said, rows, "groups")


def by_day(title: str, sentence: str, by_date: Mapping[date, int], unit: str) -> Markup:
    """Show how many of something there were by day, or by month or year if that is long."""
    first, last = (pick(by_date, default=date.min) for pick in (min, max))
    spans = {"%Y-%m-%d": 1, "%Y-%m": 30, "%Y": 365}
    days = (last - first).days
    form = next((f for f, length in spans.items() if days / length < _MOST_BARS), "%Y")
    counts: Counter[str] = Counter()
    for number in range(days + 1) if by_date else ():
        day = first + timedelta(number)
        counts[day.strftime(form)] += by_date.get(day, 0)
    return bars(title, sentence, list(counts.items())[-_MOST_BARS:], unit)


def by_host(pairs: HostPairs, sentence: str, *, words: bool = False) -> Iterator[Markup]:
    """Show whose documents hosts have, and how many words of them; who was first by dates alone."""
    for rows, title, heads in (
        (pairs[0], "Who has copies of whom", ("first at", "then at")),
        (pairs[1], "Copies without an order", ("at", "and at")),
    ):
        between = sorted((row for row in rows if row[0] != row[1]), key=lambda row: -row[2])
        if not rows:
            continue
        cells = [(*row[:2], f"{row[2]:,}", f"{row[3]:,}") for row in between[:_MOST_HOSTS]]
        said = sentence
        if within := sum(row[2] for row in rows) - sum(row[2] for row in between):
            said += f" {plural(within, 'copy is', 'copies are')} of the same host."
        if rows is pairs[1]:
            said += " These have the same date, or none, so nobody knows which was first."
        if more := len(between) - len(cells):
            said += f" {plural(more, 'further pair')} of hosts aren't listed."
        head = *heads, "documents", "words or characters"
        last = None if words else -1
        shown = table(head[:last], [row[:last] for row in cells], title) if cells else ""
        yield element("section", element("h3", title), element("p", said), shown, class_="panel")


def bars(title: str, sentence: str, rows: Sequence[tuple[str, int]], unit: str) -> Markup:
    largest = max((count for _, count in rows), default=0) or 1
    step = _WIDTH / max(len(rows), 1)
    # Labels that don't fit beside each other, or into the picture, are left out; the table has all.
    every = int(max((len(label) for label, _ in rows), default=1) * 9 / step) + 1
    counted = len(f"{largest:,}") * 8 < step
    drawn: list[str] = []
    for number, (label, count) in enumerate(rows):
        height = max(count / largest * _HEIGHT, 2 if count else 0)
        left, middle = (f"{(number + share) * step:.1f}" for share in (0.08, 0.5))
        shape = {"width": f"{step * 0.84:.1f}", "height": f"{height:.1f}", "rx": 2}
        said = element("title", f"{label}: {count:,} {unit}")
        drawn.append(element("rect", said, x=left, y=f"{_HEIGHT + 18 - height:.1f}", **shape))
        if number % every == (every - 1) // 2 and every // 2 <= len(rows) - number:
            drawn.append(element("text", label, x=middle, y=_HEIGHT + 34, class_="label"))
        if count and counted:
            y = f"{_HEIGHT + 13 - height:.1f}"
            drawn.append(element("text", f"{count:,}", x=middle, y=y, class_="count"))
    summary = "; ".join(f"{label}: {count:,}" for label, count in rows if count) or "none"
    picture = element(
        "svg",
        element("title", f"{title}. {summary}"),
        *drawn,
        element("path", d=f"M0 {_HEIGHT + 18.5}H{_WIDTH}"),
        viewBox=f"-20 0 {_WIDTH + 40} {_HEIGHT + 42}",
        role="img",
        class_="bars",
    )
    numbers = table(("", unit), [(label, f"{count:,}") for label, count in rows if count])
    caption = element("figcaption", sentence)
    return element("figure", element("h3", title), picture, caption, folded("The numbers", numbers))
