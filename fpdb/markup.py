"""HTML, whose texts are escaped and whose invisible signs have no effect; cells of spreadsheets."""

import html
import re
from collections.abc import Iterable, Sequence

# Characters that aren't printable but may stay: line ends, all spaces, and the joiners of letters.
_LEFT = re.compile(r"[\n\t \u00a0\u3000\u200c\u200d\u2002-\u200a\ufe0e\ufe0f]")
# Spreadsheets take a text that begins with one for a formula; some take the wide forms as well.
FORMULA_SIGNS = "=+-@\t\r\n\0＝＋－＠"
# Elements without an end.
_VOID = frozenset({"input", "meta"})


def as_cell(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] and text[0] in FORMULA_SIGNS else text


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: object) -> Markup:
    """Return an element; all but Markup is escaped. A final _ of an attribute is dropped."""
    text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(
        child if isinstance(child, Markup) else html.escape(visible(child)) for child in children
    )
    return Markup(f"<{name}{text}>{inner}" + ("" if name in _VOID else f"</{name}>"))


def visible(text: str) -> str:
    """Show control and format characters by their numbers, so that none has an effect."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or _LEFT.match(character)
        else f"⟦U+{ord(character):04X}⟧"
        for character in text.replace("\r\n", "\n")
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
