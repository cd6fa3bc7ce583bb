"""Write a page of one file: its text, its pictures and its data, safe whatever the texts hold.

What comes from documents is data: the page's program sets it as text, and never as markup. A policy
in the page lets nothing run but this program, and nothing be fetched.
"""

import base64
import hashlib
import html
import importlib.resources
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fpdb.report.differences import Piece

# What isn't printable but may stay: line ends, spaces of any kind, and the joiners of letters.
_LEFT = re.compile(r"[\n\t \u00a0\u3000\u200c\u200d\u2002-\u200a\ufe0e\ufe0f]")
_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}
_LOOKED_AT = 2000
_TITLE_LENGTH = 120
# In JSON within a page: what could end the element, or a line of the program.
_UNSAFE = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}
# The characters that are kept at both ends of equal passages: all, or fewer if room is short.
_KEPT = (1 << 30, 1500, 150)
_WIDTH, _HEIGHT = 420, 150
# Elements without an end.
_VOID = frozenset({"input", "meta"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; what isn't Markup is escaped. A final _ of an attribute is dropped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(
        child if isinstance(child, Markup) else html.escape(visible(child)) for child in children
    )
    return Markup(f"<{name}{given}>{inner}" + ("" if name in _VOID else f"</{name}>"))


def visible(text: str) -> str:
    """Show control and format characters by their numbers, so that none has an effect."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or _LEFT.match(each) else f"⟦U+{ord(each):04X}⟧"
        for each in text.replace("\r\n", "\n")
    )


def language_of(text: str) -> str | None:
    """Return the language of a text whose script needs fonts of its own."""
    beginning = text[:_LOOKED_AT]
    for language, script in _SCRIPTS.items():
        if len(script.findall(beginning)) * 10 > len(beginning):
            return language
    return None


def title_of(text: str) -> str:
    """Return the beginning of a text, on one line."""
    first_line = text[: 4 * _TITLE_LENGTH].strip().partition("\n")[0]
    return " ".join(first_line.split())[:_TITLE_LENGTH]


def safe_json(value: object) -> str:
    """Return JSON that can't end the element of the page that it is in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).translate(_UNSAFE)


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def percent(share: float) -> str:
    """Return a share in percent, without a line end before the sign; only all is 100 %."""
    if 0 < share < 0.001:
        return "<\u00a00.1\u00a0%"
    digits = 0 if share in (0, 1) or 0.005 <= share < 0.995 else 1
    return f"{min(share * 100, 99.9) if digits else share * 100:.{digits}f}\u00a0%"


@dataclass
class Fitted:
    """Pieces as they are in the page: a text, a pair of texts, or the number of those left out.

    `left_out` counts the characters that aren't in the page.
    """

    pieces: list[Any]
    left_out: int


def fit(pieces: Sequence[Piece], room: int) -> Fitted:
    """Shorten equal passages, and then cut the end off, until the pieces take `room` bytes."""
    pieces = [Piece(each.same, visible(each.text), visible(each.other)) for each in pieces]
    for kept in _KEPT:
        found, left_out = _shortened(pieces, kept)
        if len(safe_json(found).encode()) <= room:
            return Fitted(found, left_out)
    cut: list[Any] = []
    size = 2
    for piece in found:
        weight = len(safe_json(piece).encode()) + 1
        if size + weight > room:
            # A character takes six bytes at most, and a piece may have two sides.
            most = max(room - size, 0) // 12
            if isinstance(piece, str):
                cut.append(piece[:most])
            elif isinstance(piece, list):
                cut.append([side[:most] for side in piece])
            break
        cut.append(piece)
        size += weight
    shown = sum(sum(map(len, piece)) for piece in cut if not isinstance(piece, int))
    total = sum(len(piece.text) + len(piece.other) * (not piece.same) for piece in pieces)
    rest = total - shown - sum(piece for piece in cut if isinstance(piece, int))
    return Fitted([*cut, rest], total - shown)


def _shortened(pieces: Sequence[Piece], kept: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    left_out = 0
    for piece in pieces:
        if not piece.same:
            found.append([piece.text, piece.other])
        elif len(piece.text) > 3 * kept:
            # Not within a word, if one ends near there.
            start = piece.text.rfind(" ", kept - 40, kept) + 1 or kept
            stop = piece.text.find(" ", len(piece.text) - kept, len(piece.text) - kept + 40) + 1
            stop = stop or len(piece.text) - kept
            found += [piece.text[:start], stop - start, piece.text[stop:]]
            left_out += stop - start
        else:
            found.append(piece.text)
    return found, left_out


def bars(title: str, sentence: str, rows: Sequence[tuple[str, int]], unit: str) -> Markup:
    """Return a picture of counts, a sentence about it, and the numbers as a table."""
    largest = max((count for _, count in rows), default=0) or 1
    step = _WIDTH / max(len(rows), 1)
    drawn: list[str] = []
    # Labels that don't fit beside each other, or into the picture, are left out; the table has all.
    every = -(-max((len(label) for label, _ in rows), default=1) * 9 // max(int(step), 1)) or 1
    within = [
        number
        for number, (label, _) in enumerate(rows)
        if abs((number + 0.5) * step - _WIDTH / 2) + len(label) * 3.75 < _WIDTH / 2 + 4
    ]
    labelled = within[::every]
    counted = len(f"{largest:,}") * 8 < step
    for number, (label, count) in enumerate(rows):
        height = max(count / largest * _HEIGHT, 2 if count else 0)
        left = number * step
        bar = element(
            "rect",
            element("title", f"{label}: {count:,} {unit}"),
            x=f"{left + step * 0.08:.1f}",
            y=f"{_HEIGHT + 18 - height:.1f}",
            width=f"{step * 0.84:.1f}",
            height=f"{height:.1f}",
            rx=min(2, height),
        )
        middle = f"{left + step / 2:.1f}"
        drawn.append(bar)
        if number in labelled:
            drawn.append(element("text", label, x=middle, y=_HEIGHT + 34, class_="label"))
        if count and counted:
            y = f"{_HEIGHT + 13 - height:.1f}"
            drawn.append(element("text", f"{count:,}", x=middle, y=y, class_="count"))
    axis = element("path", d=f"M0 {_HEIGHT + 18.5}H{_WIDTH}")
    summary = "; ".join(f"{label}: {count:,}" for label, count in rows if count) or "none"
    picture = element(
        "svg",
        element("title", f"{title}. {summary}"),
        *drawn,
        axis,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT + 42}",
        role="img",
        class_="bars",
    )
    numbers = table(("", unit), [(label, f"{count:,}") for label, count in rows if count])
    return element(
        "figure",
        element("h3", title),
        picture,
        element("figcaption", sentence),
        element("details", element("summary", "The numbers"), numbers),
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], label: str = "") -> Markup:
    """Return a table; one with a label is as wide as it must be, and scrolls."""
    header = element("tr", *(element("th", name, scope="col") for name in head))
    lines = [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    inner = element("table", element("thead", header), element("tbody", *lines))
    if not label:
        return inner
    # It can be scrolled by the keyboard, so it needs a name.
    return element("div", inner, class_="wide", role="region", aria_label=label, tabindex=0)


def cards(given: Iterable[tuple[str, str, str]]) -> Markup:
    """Return numbers, each with its name and a sentence that explains it."""
    found = [
        element(
            "div",
            element("p", element("b", number), " ", element("span", name), class_="number"),
            element("p", sentence),
            class_="card",
        )
        for number, name, sentence in given
    ]
    return element("section", *found, class_="cards")


@dataclass
class ReportPage:
    """A page: its title, what it says above the groups, and the groups that its program shows.

    `kinds` are the kinds of groups, with the words for them. `groups` are what the program takes.
    """

    title: str
    subtitle: str
    top: Sequence[Markup]
    similarity: float
    kinds: Mapping[str, str]
    groups: list[dict[str, Any]] = field(default_factory=list)
    noun: str = "group"
    notes: Sequence[str] = ()
    footer: str = ""

    def render(self) -> bytes:
        """Return the page as a file."""
        style, program = resource("page.css"), resource("page.js")
        names = ("similarity", "kinds", "groups", "noun")
        content = {name: getattr(self, name) for name in names}
        name = hashlib.sha256(safe_json(content).encode()).hexdigest()[:16]
        data = safe_json({"name": name} | content)
        policy = (
            f"default-src 'none'; script-src {allowed(program)}; style-src {allowed(style)}; "
            "base-uri 'none'; form-action 'none'"
        )
        return whole_page(
            self.title,
            style,
            element("header", element("h1", self.title), element("p", self.subtitle)),
            element(
                "main",
                *self.top,
                element("h2", f"{self.noun.capitalize()}s", id="groups"),
                *(element("p", note, class_="note") for note in self.notes),
                element(
                    "noscript",
                    element("p", f"The {self.noun}s are shown by a script of this page."),
                ),
                element("div", id="app"),
            ),
            element("footer", element("p", self.footer)),
            element("script", Markup(data), type="application/json", id="data"),
            element("script", Markup(program)),
            policy=policy,
        )


def whole_page(title: str, style: str, *content: Markup, policy: str = "") -> bytes:
    """Return a page as a file, with its policy unless a header has that."""
    named = {
        "viewport": "width=device-width, initial-scale=1",
        "color-scheme": "light dark",
        "referrer": "same-origin",
    }
    rule = [element("meta", http_equiv="Content-Security-Policy", content=policy)] if policy else []
    head = element(
        "head",
        element("meta", charset="utf-8"),
        *rule,
        *(element("meta", name=name, content=given) for name, given in named.items()),
        element("title", title),
        element("style", Markup(style)),
    )
    page = element("html", head, element("body", *content), lang="en")
    return f"<!doctype html>\n{page}\n".encode("utf-8", "replace")


def resource(name: str, package: str = "fpdb.report") -> str:
    """Return a style or a program that comes with a package."""
    return (importlib.resources.files(package) / name).read_text("utf-8")


def allowed(content: str) -> str:
    """Return the source of a policy that allows an element with this content alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
