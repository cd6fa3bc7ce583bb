"""A picture of who has passages in common with whom: a row and a column for each document or host.

It has no more rows than a reader can follow. Documents of a host are beside each other, and so are
those that pairs connect.
"""

from collections.abc import Callable, Sequence
from posixpath import basename, splitext

import numpy as np
from numpy.typing import NDArray

from fpdb.arrays import Places
from fpdb.look.groups import Parts
from fpdb.look.page import folded, percent
from fpdb.look.pair import MOST_TOGETHER, SharedTexts
from fpdb.markup import Markup, element

MOST_ROWS = MOST_TOGETHER
# Pixels of a cell, of the labels, and of a letter; and the letters of a label.
_CELL, _MARGIN, _LETTER, _LONGEST = 18, 8, 8, 26
_DOCUMENTS = (
    "A row and a column for each document: the stronger the colour, the more of the row's document "
    "is in the column's. Press a cell to see both."
)
_HOSTS = "A row and a column for each host: the stronger the colour, the more pairs of documents."


def who_with_whom(
    parts: Parts, keys: Sequence[str], shared: Callable[[int, int], SharedTexts | None]
) -> list[Markup]:
    """Return the picture, folded, of the documents or else of their hosts; none if they are many.

    Args:
        parts: The pairs of documents, in rows.
        keys: The name of each row.
        shared: Returns what two rows have in common; what isn't there is estimated.
    """
    hosts = list(parts.names)
    pairs, shares = parts.both_ways()
    rows = np.unique(pairs)
    if 1 < len(rows) <= MOST_ROWS:
        places = rows.searchsorted(pairs)
        shade = np.zeros((len(rows), len(rows)))
        shade[places[:, 0], places[:, 1]] = shares
        for row, other in places[: len(pairs) // 2].tolist():
            if texts := shared(int(rows[row]), int(rows[other])):
                shade[row, other], shade[other, row] = texts.share, texts.other_share
        order = _order(parts.hosts[rows], places)
        order = order[shade[order].any(axis=1)]
        rows, shade = rows[order], shade[order][:, order]
        if not len(rows):  # no passage is long enough
            return []
        named = [keys[row] for row in rows.tolist()]
        owners = parts.hosts[rows]
        labels = [_label(hosts, *names) for names in zip(owners.tolist(), named, strict=True)]
        said = [[percent(share) for share in line] for line in shade.tolist()]
        between = (np.diff(owners).nonzero()[0] + 1).tolist()
        drawn = _drawn(labels, shade, said, between, named)
        return [folded("Who with whom", element("p", _DOCUMENTS, class_="soft"), drawn)]
    if not 1 < len(hosts) <= MOST_ROWS:
        return []
    both = parts.hosts[pairs[(parts.hosts[pairs] >= 0).all(axis=1)]]
    counts = np.zeros((len(hosts), len(hosts)), np.int64)
    np.add.at(counts, (both[:, 0], both[:, 1]), 1)
    counts[np.diag_indices(len(hosts))] //= 2  # both ways are of one host
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    counts = counts[order][:, order]
    said = [[f"{count:,}" for count in line] for line in counts.tolist()]
    labels = [hosts[row][:_LONGEST] for row in order]
    drawn = _drawn(labels, counts / max(int(counts.max()), 1), said, [], [])
    return [folded("Who with whom", element("p", _HOSTS, class_="soft"), drawn)]


def _order(hosts: NDArray[np.int32], pairs: Places) -> Places:
    """Return rows by their hosts, then by what pairs connect."""
    connected = np.arange(len(hosts))
    for _ in hosts:
        before = connected.copy()
        np.minimum.at(connected, pairs[:, 0], connected[pairs[:, 1]])
        if (connected == before).all():
            break
    order: Places = np.lexsort((np.arange(len(hosts)), connected, hosts))
    return order


def _label(hosts: Sequence[str], host: int, key: str) -> str:
    """Return a short name of a document: of a path the last part, after its host."""
    name = splitext(basename(key.rstrip("/")))[0] or key
    return f"{hosts[host]}: {name}"[:_LONGEST] if host >= 0 else name[:_LONGEST]


def _drawn(
    labels: Sequence[str],
    shade: NDArray[np.float64],
    said: Sequence[Sequence[str]],
    between: Sequence[int],
    keys: Sequence[str],
) -> Markup:
    """Draw a matrix; its cells name the documents of the `keys`, and lines are `between` rows."""
    count = len(labels)
    # A Chinese character is as wide as two letters.
    widths = (sum(2 - letter.isascii() for letter in label) for label in labels)
    left, size = max(widths) * _LETTER + 3 * _LETTER + _MARGIN, count * _CELL
    parts: list[str] = []
    for row, label in enumerate(labels):
        middle = f"{(row + 0.72) * _CELL + _CELL:.1f}"
        parts.append(element("text", f"{row + 1}", x=f"{left + (row + 0.5) * _CELL}", y=13))
        parts.append(element("text", f"{row + 1}", x=left - _LETTER * 1.5, y=middle))
        name = {"x": left - 3.5 * _LETTER, "y": middle, "class_": "name", "dir": "auto"}
        parts.append(element("text", label, **name))
    for row, column in zip(*shade.nonzero(), strict=True):
        named = {"data_of": keys[row], "data_other": keys[column]} if keys else {}
        parts.append(
            element(
                "rect",
                element("title", f"{labels[row]} · {labels[column]}: {said[row][column]}"),
                x=left + column * _CELL,
                y=(row + 1) * _CELL,
                width=_CELL - 1,
                height=_CELL - 1,
                fill_opacity=f"{0.15 + 0.85 * shade[row, column]:.2f}",
                dir="auto",
                **named,
            )
        )
    lines = [f"M{left} {at * _CELL + _CELL}h{size}" for at in range(count + 1)]
    lines += [f"M{left + at * _CELL} {_CELL}v{size}" for at in range(count + 1)]
    thick = [f"M0 {at * _CELL + _CELL}H{left + size}" for at in between]
    parts += [element("path", d="".join(lines)), element("path", d="".join(thick), class_="thick")]
    width, height = left + size + 1, size + _CELL + 1
    shown = {"width": width, "height": height, "viewBox": f"0 0 {width} {height}", "role": "img"}
    picture = element("svg", element("title", "Who with whom"), *parts, class_="matrix", **shown)
    frame = {"role": "region", "aria_label": "Who with whom", "tabindex": 0}
    return element("div", picture, class_="wide", **frame)
