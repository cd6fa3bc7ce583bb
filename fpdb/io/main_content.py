"""The main content of a page of HTML, which a parser has written.

It is the element whose paragraphs outweigh all beside them. A block is the text of one element,
without the elements in it that are blocks themselves. Prose weighs its bytes, a list of links as
much below nothing, a heading or a short line nothing. The main content is the element whose blocks
weigh most together, unless the page says more elsewhere: then it is all text that isn't beside it.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, compress, zip_longest

_ATTRIBUTES = r"[^>\"]*+(?:\"[^\"]*+\"[^>\"]*+)*+"
# Text before an element that isn't shown, before a tag, or before anything else. A parser has
# written the page, so text has no "<", and values are in double quotes; but names of attributes may
# hold both.
_TOKEN = re.compile(
    r"([^<]*+)(?:"
    rf"<(script|style|noscript|iframe|template|svg|textarea|select)\b{_ATTRIBUTES}>.*?</\2>"
    rf"|<([a-z][^\s<>]*+)({_ATTRIBUTES})>|</([^<>]++)>"
    r"|<!--.*?-->|<[^>]*+>?|$)",
    re.DOTALL,
)
# Elements of a line, and elements without an end tag.
_INLINE = frozenset(
    """
    abbr acronym area b base bdi bdo big cite code col data del dfn em embed font i img
    input ins kbd link mark meta nobr param q rp rt ruby s samp small source span strike
    strong sub sup time track tt u var wbr
    """.split()  # noqa: SIM905 - a line for each would hide the rest
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_CELLS = frozenset(("p", "td", "th", "tr", "dd", "dt"))
_CELLS_OF_TABLES = frozenset(("td", "th"))
_PARAGRAPHS = frozenset(("p", "li", "td", "th", "tr", "dd", "dt", "pre", "blockquote"))
# Elements beside the content by their kind, and by the names that their authors give them.
_ASIDE = frozenset(
    """
    nav footer aside form button figure figcaption dialog menu object video audio canvas map
    """.split()  # noqa: SIM905 - as above
)
_ASIDE_WORDS = (
    r"author|bio\b|byline|caption|comment|meta\b|newsletter|promo|recommend|related"
    r"|share(?!d\b|h)|social|widget"
)
_NAMED_ASIDE = re.compile(
    rf"\b(?:class|id)=\"[^\"]*?(?:{_ASIDE_WORDS})"
    r"|\b(?:role=\"(?:banner|complementary)|hidden(?:=|$)"
    r"|aria-hidden=\"true|style=\"[^\"]*?display: ?none)"
)
# Menus and notices, which aren't the content even where they hold most of the text.
_NOTICES = frozenset(("nav", "footer"))
_NOTICE_WORDS = r"consent|cookie|copyright|disclaimer|footer|gdpr|legal"
_NAMED_NOTICE = re.compile(
    rf"\b(?:class|id)=\"[^\"]*?(?:{_NOTICE_WORDS})"
    r"|\brole=\"(?:navigation|contentinfo|dialog|alertdialog)"
)
# The patterns above take long, and few elements have any of their words.
_ANY_WORD = re.compile(rf"{_ASIDE_WORDS}|{_NOTICE_WORDS}|role=|hidden|none")
_CLASS = re.compile(r"\bclass=\"\s*([\w-]+)")
_STOPS = ".!?…。！？"
_PUNCTUATION = re.compile(r"[.!?:;…][\"”’')]*(?:\s|$)|[。！？；：，]")
# A line that says when something was written.
_DATE = re.compile(
    r"[0-9](?:(?<=[12])[09][0-9]{2}\b|:[0-9]{2}| [a-z]+ ago\b| ?(?:[月日]|\w{1,2}前))"
)
# Bytes: a Chinese character says about as much as three letters.
_SENTENCE, _LEAD, _TITLE, _LINE = 50, 100, 20, 100
# Characters by which a summary is known.
START = 40
# What an element gives up to the one around it, so that the closer one is taken if both hold the
# same text, and a list of teasers, each of them in a box of its own, weighs little.
_STEP = 60
_LINK = 15
# An element that holds this much of the text isn't beside the content, whatever its name.
_MOST = 0.4
# If less than this share of the prose is left, the names of this page mislead; but not if it is
# as long as an article, which may have many comments.
_LEAST, _ARTICLE = 0.2, 500
# Like elements of which one has this share of the prose are no posts.
_ALL = 0.9
# Prose that is a smaller share of the page than this isn't the content, nor all of it if what is
# before it is this much as long: then it may be a notice at the end.
_SHARE, _BEFORE = 0.3, 0.1
# Blocks, of advertisements, between the last prose and a short paragraph.
_GAP = 3
# If less than this share of the text is left without its links, they are text.
_UNLINKED = 0.1
# What the page marks as its main content isn't if what it says is this small beside the prose: then
# it holds the title and the date. A short page of a shop may say less than its notices, but more.
_SAID = 0.05


@dataclass(slots=True, eq=False)
class _Element:
    """An element that isn't part of a line; `parent` is the closest one around it.

    They are numbered as they begin.

    `bulk` are the bytes in it that aren't links, `prose` those of prose, `weight` is that of all in
    it together. It is `out` if it is beside the content, `inside` if it is part of it.
    """

    tag: str
    parent: "_Element | None"
    attributes: str
    number: int = 0
    bulk: int = 0
    prose: float = 0
    weight: float = 0
    out: bool = False
    inside: bool = False

    @property
    def named(self) -> re.Pattern[str] | None:
        """The pattern by which its attributes say that it is beside the content."""
        attributes = self.attributes.lower()
        if not _ANY_WORD.search(attributes):
            return None
        patterns = (_NAMED_NOTICE, _NAMED_ASIDE)
        return next((pattern for pattern in patterns if pattern.search(attributes)), None)

    @property
    def siblings(self) -> tuple["_Element | None", str]:
        """What it has in common with the others of a list, or of a row of cells."""
        return self.parent, "" if self.tag in _CELLS_OF_TABLES else self.tag


@dataclass(slots=True, eq=False)
class _Block:
    """Text of an element, and how many of its bytes are links; `teases` if it begins with one.

    `fresh` are the bytes that say something of this page: no title, date or repeated text.
    """

    element: _Element
    text: str
    size: int
    links: int
    teases: bool
    weight: float = 0
    fresh: int = 0

    @property
    def linked(self) -> bool:
        return self.links * 2 > self.size


def main_content(body: str, title: str) -> str:
    """Return the main content of a page, or all of its text that is neither link nor beside it.

    The body is one that a parser has written, so that its elements are closed and in order. If
    nearly all of its sentences and of its text are in links, these count.
    """
    elements, blocks = _read(body)
    links = sum(block.links for block in blocks)
    content = _content(elements, blocks, title)
    prose = sum(max(0, block.weight) for block in content)
    # Headlines aren't sentences, and may be of other pages.
    sentences = _size([block for block in blocks if block.linked and block.text[-1] in _STOPS])
    if _size(content) < _UNLINKED * links and prose <= _UNLINKED * sentences:
        elements, blocks = _read(body, linked=False)
        unlinked = _content(elements, blocks, title)
        content = unlinked if _size(content) < _UNLINKED * _size(unlinked) else content
    return "\n".join(block.text for block in content)


def _size(blocks: list[_Block]) -> int:
    return sum(block.size for block in blocks)


def _content(elements: list[_Element], blocks: list[_Block], title: str) -> list[_Block]:
    marked, heads = _marked(elements, blocks, title)
    blocks = _headed(marked, title)
    dated = _weigh(elements, blocks, title)
    posts, comments = _posts(elements, blocks, dated)
    for by_name in (True, False):
        best = _choose(elements, blocks, comments, heads, by_name=by_name)
        # Names mislead on a page where they leave hardly any prose.
        if best.weight >= min(_ARTICLE, _LEAST * elements[0].prose):
            break
    # If one post of a thread weighs most, all of them are the content.
    post = max(posts & _around([best]), key=_number, default=None)
    best = (post.parent if post else None) or best
    for element in elements:
        element.inside = element is best or (
            element.parent is not None
            and element.parent.inside
            and not element.out
            # Only elements with prose have been looked at.
            and not (by_name and not element.prose and element.named)
        )
    shown = [block for block in blocks if not block.element.out]
    thread = _within(elements, {element for element in posts if element.parent is best})
    first, last = _cut(shown, title, thread)
    taken = _taken(shown, first, last, title)
    # How many more bytes of each list are text than links.
    texts = Counter[object]()
    for block in taken:
        texts[block.element.siblings] += block.size - 2 * block.links
    are_parts = [
        not block.linked or _is_part(block, after, texts[block.element.siblings] >= 0)
        for block, after in zip_longest(taken, taken[1:])
    ]
    return list(compress(taken, are_parts))


def _number(element: _Element) -> int:
    return element.number


def _is_part(block: _Block, after: _Block | None, among_texts: bool) -> bool:  # noqa: FBT001
    """Return whether links are part of the text: as its headings, or among items that are none."""
    tag = block.element.tag
    if tag in _HEADINGS:
        # A sentence is one of another page.
        return (
            block.text[-1] not in _STOPS
            and after is not None
            and after.size >= _SENTENCE
            and not after.linked
            and after.element.tag not in _HEADINGS
        )
    return among_texts and (tag == "li" or tag in _CELLS_OF_TABLES)


def _taken(blocks: list[_Block], first: int, last: int, title: str) -> list[_Block]:
    """Return the main content, between two places, or more if the page says more elsewhere."""
    main = [block for block in blocks[first:last] if block.element.inside]
    size = _fresh(main)
    if not main or size < _SHARE * _fresh(blocks):
        return blocks
    # Between the title and the main content there may be more; a summary begins as the text does.
    are_titles = (block.size > _TITLE and block.text in title for block in blocks)
    titled = list(compress(range(first), are_titles))
    start, known = max(titled, default=0), {block.text[:START] for block in main}
    before = [block for block in blocks[start:first] if block.text[:START] not in known]
    if _fresh(before) > max(_TITLE, _BEFORE * size):
        return blocks[start:last]
    # A lead may be in a box of its own.
    lead = [block for block in before if block.weight > 0 and block.fresh] if titled else []
    return lead + main


def _fresh(blocks: list[_Block]) -> int:
    return sum(block.fresh for block in blocks)


def _around(elements: Iterable[_Element]) -> set[_Element]:
    around = set[_Element]()
    for start in elements:
        element: _Element | None = start
        while element and element not in around:
            around.add(element)
            element = element.parent
    return around


def _within(elements: list[_Element], outer: Iterable[_Element]) -> set[_Element]:
    inside = set(outer)
    for element in elements[min(map(_number, inside), default=len(elements)) :]:
        if element.parent in inside:
            inside.add(element)
    return inside


def _marked(
    elements: list[_Element], blocks: list[_Block], title: str
) -> tuple[list[_Block], set[_Element]]:
    """Return the blocks in the element marked as content, and the elements around the headings."""
    mains, articles, heads = list[_Element](), list[_Element](), list[_Element]()
    lists = {"main": mains, "article": articles, "h1": heads}
    for element in elements:
        if element.tag in lists:
            lists[element.tag].append(element)
        elif 'role="main"' in element.attributes:
            mains.append(element)
    around = _around(heads)
    for marked in (mains, articles):
        # Articles in an article are comments.
        if marked and (inside := _within(elements, marked[:1])).issuperset(marked):
            part = [block for block in blocks if block.element in inside]
            if marked is mains:
                enough = _size(part) >= _TITLE and _holds_content(elements, part, blocks, title)
            elif marked[0] in around:
                enough = _size(part) >= _TITLE
            else:
                enough = _holds_text(part, blocks)
            blocks = part if enough else blocks
    return blocks, around


def _holds_content(
    elements: list[_Element], part: list[_Block], blocks: list[_Block], title: str
) -> bool:
    """Return whether blocks say more than title and date, if much prose is elsewhere."""
    said = sum(
        block.size - block.links
        for block in part
        if block.element.tag not in _HEADINGS and block.text not in title and not _is_date(block)
    )

    def prose(beside: set[_Element]) -> float:
        shown = (block for block in blocks if block.element not in beside)
        return sum(max(0, _weight_of(block, title)) for block in shown)

    if said >= _SAID * prose(set()):  # as on most pages
        return True
    notices = {
        element for element in elements if element.tag in _ASIDE or element.named is _NAMED_NOTICE
    }
    return said >= _SAID * prose(_within(elements, notices))


def _is_date(block: _Block) -> bool:
    """Return whether a block is a line that says when something was written."""
    return block.size < _LINE and _DATE.search(block.text) is not None


def _headed(blocks: list[_Block], title: str) -> list[_Block]:
    """Return the blocks from the heading of the page on, if its title repeats the heading."""
    heading = None
    for block in blocks:
        tag = block.element.tag
        if tag != "h1" and (tag != "h2" or block.text not in title):
            continue
        if not block.links and (heading is None or block.size > heading.size):
            heading = block
    if heading is None or heading.text not in title:
        return blocks
    part = blocks[blocks.index(heading) :]
    return part if _holds_text(part, blocks) else blocks


def _holds_text(part: list[_Block], blocks: list[_Block]) -> bool:
    """Return whether a part of the blocks has a share of the text that isn't in links."""
    shown, all_ = (sum(block.size - block.links for block in side) for side in (part, blocks))
    return shown >= _SHARE * all_


def _read(body: str, *, linked: bool = True) -> tuple[list[_Element], list[_Block]]:
    """Return the elements and blocks of a page, whose links count as such, or as text."""
    current = _Element("body", None, "")
    elements, blocks = [current], list[_Block]()
    pieces, links, depth, teases = list[str](), 0, 0, False
    for text, _, tag, attributes, end in _TOKEN.findall(body):
        if text and (pieces or not text.isspace()):
            pieces.append(text)
            if depth:
                links += len(text.strip().encode())
                teases = teases or len(pieces) == 1
        name = tag or end
        if not name or name in _INLINE:
            continue
        if name == "a":
            depth = linked and (depth + 1 if tag else max(0, depth - 1))
        elif name == "br":
            pieces.append(" ")
        else:
            if pieces:
                line = "".join(pieces)
                line = " ".join((unescaped(line) if "&" in line else line).split())
                if line:
                    blocks.append(_Block(current, line, len(line.encode()), links, teases))
                pieces, links, teases = [], 0, False
            if end:
                if end == current.tag:
                    current = current.parent or current
            elif tag != "hr":
                current = _Element(tag, current, attributes, len(elements))
                elements.append(current)
    return elements, blocks


def unescaped(text: str) -> str:
    """Replace the references of a parser, which writes no others."""
    text = text.replace("&nbsp;", " ").replace("&lt;", "<").replace("&gt;", ">")
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _weigh(elements: list[_Element], blocks: list[_Block], title: str) -> list[_Element]:
    """Weigh all blocks and elements; return the elements with a line that says when."""
    dated = list[_Element]()
    times = Counter(block.text for block in blocks)
    for block in blocks:
        block.weight = _weight_of(block, title)
    prose = [block for block in blocks if block.weight > 0]
    repeated = [block for block in prose if times[block.text] > 1]
    # Summaries and notices are repeated. If most is, the page is there twice, for two sizes.
    if 2 * sum(block.weight for block in repeated) < sum(block.weight for block in prose):
        for block in repeated:
            block.weight = 0
    for block in blocks:
        element = block.element
        element.bulk += block.size - block.links
        if block.weight > 0:
            element.prose += block.weight
        if _is_date(block):
            if block.weight <= 0:
                dated.append(element)
        elif not (block.linked or element.tag in _HEADINGS or times[block.text] > 1):
            block.fresh = 0 if block.text in title else block.size
    for element in reversed(elements):
        if parent := element.parent:
            parent.bulk += element.bulk
            parent.prose += element.prose
    return dated


def _weight_of(block: _Block, title: str) -> float:
    tag = block.element.tag
    if block.linked:
        return -block.links - _LINK
    if block.size > _TITLE and block.text in title:
        return -_STEP
    if tag == "li" and block.teases:
        return 0
    if block.size < (_LEAD if tag in _HEADINGS else _SENTENCE):
        return 0
    return block.size - 2 * block.links if _PUNCTUATION.search(block.text) else 0


def _posts(
    elements: list[_Element], blocks: list[_Block], dated: list[_Element]
) -> tuple[set[_Element], set[_Element]]:
    """Return the posts of a thread, and the comments, as elements.

    Either are like elements beside each other, each with a date: comments if an article is before
    them, the content if not.
    """
    runs: dict[tuple[_Element | None, str, str], list[_Element]] = {}
    for element in sorted(_around(dated), key=_number):
        if element.bulk >= _SENTENCE and element.tag not in _CELLS:
            named = _CLASS.search(element.attributes)
            like = (element.parent, element.tag, named[1] if named else "")
            runs.setdefault(like, []).append(element)
    posts, comments = set[_Element](), set[_Element]()
    # What the prose weighs that is in elements that began before each.
    weights = [0.0] * (len(elements) + 1)
    for block in blocks:
        weights[block.element.number + 1] += max(0, block.weight)
    before = list(accumulate(weights))
    for (_, _, kind), run in runs.items():
        said = [element.prose for element in run]
        if len(run) >= (2 if kind else 3) and max(said) < _ALL * sum(said):
            (comments if before[run[0].number] >= _ARTICLE else posts).update(run)
    return posts, comments


def _choose(
    elements: list[_Element],
    blocks: list[_Block],
    comments: set[_Element],
    heads: set[_Element],
    *,
    by_name: bool,
) -> _Element:
    """Mark the elements beside the content, and return the one that weighs most."""
    most = _MOST * elements[0].bulk
    for element in elements:
        element.out = element in comments or (element.parent is not None and element.parent.out)
        if element.tag in _ASIDE:
            element.out |= element not in heads if element.tag in _NOTICES else element.bulk < most
        if element.prose and not element.out and (named := element.named):
            notice = named is _NAMED_NOTICE
            held = element in heads if notice and heads else element.bulk >= most
            element.out = not held and (notice or by_name)
        element.weight = 0
    for block in blocks:
        if not block.element.out:
            block.element.weight += block.weight
    for element in reversed(elements):
        if parent := element.parent:
            is_box = element.weight > 0 and element.tag not in _PARAGRAPHS
            parent.weight += max(0, element.weight - _STEP) if is_box else element.weight
    best = max(elements, key=lambda element: element.weight)
    return best.parent if best.parent and best.tag in _PARAGRAPHS else best


def _cut(blocks: list[_Block], title: str, thread: set[_Element]) -> tuple[int, int]:
    """Return the places of the first prose or post of the main content, and after its last."""
    prose = [
        place
        for place, block in enumerate(blocks)
        if block.element.inside and (block.weight > 0 or block.element in thread)
    ]
    if not prose:
        return 0, 0

    rows = {blocks[place].element.siblings for place in prose}

    def reach(places: Iterable[int], gap: int) -> int:
        """Return the last of some places where a short block is in a row with prose."""
        far, *places = places
        for place in places:
            block = blocks[place]
            if abs(place - far) > gap:
                break
            if (
                block.element.inside
                and not block.linked
                and block.element.siblings in rows
                and block.text not in title
            ):
                far = place
        return far

    first = reach(range(prose[0], -1, -1), 1)
    return first, reach(range(prose[-1], len(blocks)), _GAP) + 1
