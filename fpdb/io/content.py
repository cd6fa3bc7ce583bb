"""Find the main content of a page: the element whose paragraphs outweigh what is beside them.

A block is the text of one element, without the elements in it that are blocks themselves. Prose
weighs its bytes, a list of links as much below nothing, a heading or a short line nothing. The
main content is the element whose blocks weigh most together.
"""

import re
from collections import Counter
from dataclasses import dataclass

_ATTRIBUTES = r"[^>\"]*+(?:\"[^\"]*+\"[^>\"]*+)*+"
# Text, and what follows it: an element that isn't shown, a tag, or what isn't an element. A parser
# has written the page, so text has no "<", and values are in double quotes; but names of attributes
# may hold both.
_TOKEN = re.compile(
    r"([^<]*+)(?:"
    rf"<(script|style|noscript|iframe|template|svg|textarea|select)\b{_ATTRIBUTES}>.*?</\2>"
    rf"|<([a-z][^\s<>]*+)({_ATTRIBUTES})>|</([^<>]++)>"
    r"|<!--.*?-->|<[^>]*+>?|$)",
    re.DOTALL,
)
# Elements of a line, and those that have no end.
_INLINE = frozenset(
    """
    abbr acronym area b base bdi bdo big cite code col data del dfn em embed font i img
    input ins kbd link mark meta nobr param q rp rt ruby s samp small source span strike
    strong sub sup time track tt u var wbr
    """.split()  # noqa: SIM905 - a line for each would hide the rest
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_PARAGRAPHS = frozenset(("p", "li", "td", "th", "tr", "dd", "dt", "pre", "blockquote"))
# Elements beside the content by what they are, and by what their authors call them.
_ASIDE = frozenset(
    """
    nav footer aside form button figure figcaption dialog menu object video audio canvas map
    """.split()  # noqa: SIM905 - as above
)
_ASIDE_WORDS = (
    r"author|bio\b|byline|caption|comment|consent|cookie|footer|meta\b|newsletter|promo|recommend"
    r"|related|share|social|widget"
)
_NAMED_ASIDE = re.compile(
    rf"\b(?:class|id)=\"[^\"]*?(?:{_ASIDE_WORDS})"
    r"|\b(?:role=\"(?:navigation|banner|contentinfo|complementary|dialog)|hidden(?:=|$)"
    r"|aria-hidden=\"true|style=\"[^\"]*?display: ?none)"
)
# The pattern above takes long, and few elements have any of its words.
_ANY_WORD = re.compile(rf"{_ASIDE_WORDS}|role=|hidden|none")
_PUNCTUATION = re.compile(r"[.!?:;…][\"”’')]*(?:\s|$)|[。！？；：，]")
# Bytes: a Chinese character says about as much as three letters.
_SENTENCE, _LEAD, _TITLE = 50, 100, 20
# What an element gives up to the one around it, so that the closer one is taken if both hold the
# same text, and a list of teasers, each of them in a box of its own, weighs little.
_STEP = 40
_LINK = 15
# An element that holds this much of the prose isn't beside the content, whatever its name.
_MOST = 0.4
# If less than this is left, the names of this page mislead.
_LEAST = 0.2


@dataclass(slots=True)
class _Element:
    """An element that isn't part of a line; `parent` is the number of one that began before it.

    `bulk` are the bytes in it that aren't links, `prose` those of prose, `weight` is what all in it
    weighs together. It is `out` if it is beside the content, `inside` if it is part of it.
    """

    tag: str
    parent: int
    attributes: str
    bulk: int = 0
    prose: float = 0
    weight: float = 0
    out: bool = False
    inside: bool = False

    @property
    def named_aside(self) -> bool:
        attributes = self.attributes.lower()
        return bool(_ANY_WORD.search(attributes) and _NAMED_ASIDE.search(attributes))


@dataclass(slots=True)
class _Block:
    """Text of an element, and how many of its bytes are links."""

    element: int
    text: str
    size: int
    links: int
    weight: float = 0

    @property
    def linked(self) -> bool:
        return self.links * 2 > self.size


def main_content(body: str, title: str) -> tuple[str, str]:
    """Return the main content of a page, and all of its text that is neither link nor beside it.

    The body is one that a parser has written, so that its elements are closed and in order.
    """
    elements, blocks = _read(body)
    _weigh(elements, blocks, title)
    best = _choose(elements, blocks, by_name=True)
    by_name = elements[best].weight >= _LEAST * elements[0].prose
    if not by_name:
        best = _choose(elements, blocks, by_name=False)
    for number, element in enumerate(elements):
        element.inside = number == best or (
            elements[element.parent].inside
            and not element.out
            # Only elements with prose have been looked at.
            and not (by_name and not element.prose and element.named_aside)
        )
    rest = [block for block in blocks if not elements[block.element].out]
    return _joined(_cut(elements, rest, title)), _joined(rest)


def _joined(blocks: list[_Block]) -> str:
    return "\n".join(block.text for block in blocks if not block.linked)


def _read(body: str) -> tuple[list[_Element], list[_Block]]:
    elements, blocks = [_Element("body", 0, "")], list[_Block]()
    pieces, links, depth, current = list[str](), 0, 0, 0
    for text, _, tag, attributes, end in _TOKEN.findall(body):
        if text and (pieces or not text.isspace()):
            pieces.append(text)
            if depth:
                links += len(text.strip().encode())
        name = tag or end
        if not name or name in _INLINE:
            continue
        if name == "a":
            depth = depth + 1 if tag else max(0, depth - 1)
        elif name == "br":
            pieces.append(" ")
        else:
            if pieces:
                line = "".join(pieces)
                line = " ".join((_unescaped(line) if "&" in line else line).split())
                if line:
                    blocks.append(_Block(current, line, len(line.encode()), links))
                pieces, links = [], 0
            if end:
                if end == elements[current].tag:
                    current = elements[current].parent
            elif tag != "hr":
                elements.append(_Element(tag, current, attributes))
                current = len(elements) - 1
    return elements, blocks


def _unescaped(text: str) -> str:
    text = text.replace("&nbsp;", " ").replace("&lt;", "<").replace("&gt;", ">")
    return text.replace("&amp;", "&")


def _weigh(elements: list[_Element], blocks: list[_Block], title: str) -> None:
    times = Counter(block.text for block in blocks)
    for block in blocks:
        block.weight = _weight_of(block, elements[block.element].tag, title)
    prose = [block for block in blocks if block.weight > 0]
    repeated = [block for block in prose if times[block.text] > 1]
    # Summaries and notices are repeated. If most is, the page is there twice, for two sizes.
    if 2 * sum(block.weight for block in repeated) < sum(block.weight for block in prose):
        for block in repeated:
            block.weight = 0
    for block in blocks:
        elements[block.element].bulk += block.size - block.links
        elements[block.element].prose += max(0, block.weight)
    for element in reversed(elements[1:]):
        elements[element.parent].bulk += element.bulk
        elements[element.parent].prose += element.prose


def _weight_of(block: _Block, tag: str, title: str) -> float:
    if block.linked:
        return -block.links - _LINK
    if block.size > _TITLE and block.text in title:
        return -_STEP
    if block.size < (_LEAD if tag in _HEADINGS else _SENTENCE):
        return 0
    return block.size - 2 * block.links if _PUNCTUATION.search(block.text) else 0


def _choose(elements: list[_Element], blocks: list[_Block], *, by_name: bool) -> int:
    """Mark the elements beside the content, and return the number of the one that weighs most."""
    most = _MOST * elements[0].bulk
    for element in elements:
        element.out = elements[element.parent].out or (
            element.bulk < most
            and (element.tag in _ASIDE or (by_name and element.prose > 0 and element.named_aside))
        )
        element.weight = 0
    for block in blocks:
        if not elements[block.element].out:
            elements[block.element].weight += block.weight
    for element in reversed(elements[1:]):
        given = element.weight
        if given > 0 and element.tag not in _PARAGRAPHS:
            given = max(0, given - _STEP)
        elements[element.parent].weight += given
    best = max(range(len(elements)), key=lambda number: elements[number].weight)
    return elements[best].parent if elements[best].tag in _PARAGRAPHS else best


def _cut(elements: list[_Element], blocks: list[_Block], title: str) -> list[_Block]:
    """Return the blocks of the main content from its first to its last prose."""
    own = [block for block in blocks if elements[block.element].inside]
    prose = [number for number, block in enumerate(own) if block.weight > 0]
    if not prose:
        return []

    def goes_on(block: _Block, neighbour: _Block) -> bool:
        """Return whether a short block is one of a row of paragraphs."""
        one, other = elements[block.element], elements[neighbour.element]
        return (
            not block.links
            and (one.tag, one.parent) == (other.tag, other.parent)
            and block.text not in title
        )

    first, last = prose[0], prose[-1]
    while first > 0 and goes_on(own[first - 1], own[first]):
        first -= 1
    while last + 1 < len(own) and goes_on(own[last + 1], own[last]):
        last += 1
    return own[first : last + 1]
