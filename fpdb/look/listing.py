"""The groups of a report, as its program takes them, and cut to what a file of 5 MB holds."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fpdb.look.page import facts, folded, language_of, percent, plural
from fpdb.look.pair import ALL, ComparedTexts, text_cell
from fpdb.markup import Markup, element

MOST_BYTES = 5_000_000
# Of these, the page without its groups, and the least that each group may take.
_FRAME = 200_000
LEAST_BYTES = 4_000
# So that each has that, a page shows at most this many groups.
MOST_GROUPS = (MOST_BYTES - _FRAME) // LEAST_BYTES
LARGEST_PAIR = 200_000
_EXCERPT = 1_500
_NAMED = 5


@dataclass
class ListedText:
    """A text of a group: the keys of some of its documents, where one was read, and how many.

    `pair` compares it with the first text of the group, if both are there.
    """

    keys: list[str]
    documents: int = 1
    source: str = ""
    pair: ComparedTexts | None = None


@dataclass
class ListedGroup:
    """Documents that are similar, by their texts.

    `label` is the number of documents in words, `least` the least similarity of the texts that are
    compared, `more` counts the texts that aren't there. In a chain, a text resembles only others
    than the first. `copied` is the text, if there is one alone.
    """

    title: str
    kind: str
    label: str
    documents: int
    least: float
    texts: Sequence[ListedText]
    more: int = 0
    chain: bool = False
    copied: str | None = None
    names: tuple[str, str] = ("Kept", "Near-duplicate")
    facts: dict[str, str] = field(default_factory=dict)


class _Fit(NamedTuple):
    """How much of a group is rendered: characters of a text, keys, and texts."""

    kept: int = ALL
    characters: int = ALL
    key: int = 1_000
    keys: int = 20
    texts: int = 10
    title: int = 120


def rendered(
    groups: Sequence[tuple[int, Callable[[], ListedGroup]]],
) -> tuple[list[Markup], int]:
    """Render groups, each with about its bytes; return also how many of them are cut.

    They are made one by one, the small ones first, which leave what they don't need to the others.
    """
    found: list[tuple[bool, float, Markup]] = []
    left, cut = MOST_BYTES - _FRAME, 0
    for number, (_, make) in enumerate(sorted(groups, key=lambda each: each[0])):
        group = make()
        html, whole = fitted(group, left // (len(groups) - number))
        left -= len(html.encode("utf-8", "replace"))
        cut += not whole
        found.append((group.kind == "identical", group.least, html))
    return [html for _, _, html in sorted(found, key=lambda each: each[:2])], cut


def fitted(group: ListedGroup, room: int) -> tuple[Markup, bool]:
    """Render a group, with less of its texts and its keys until it fits; return if it is whole."""
    pairs = max(sum(each.pair is not None for each in group.texts), 1)
    room = min(room, LEAST_BYTES + pairs * LARGEST_PAIR)
    share = room // pairs
    fits = [
        *(_Fit(), _Fit(1500), _Fit(150)),
        *(_Fit(150, share // part) for part in (2, 4, 8, 16)),
        *(_Fit(150, room // part, 100, 1, 2) for part in (4, 16)),
        _Fit(0, 0, 20, 1, 2, 20),
    ]
    for limits in fits:
        html = _render(group, limits)
        if len(html.encode("utf-8", "replace")) <= room:
            break
    return html, limits == fits[0]


def _render(group: ListedGroup, limits: _Fit) -> Markup:
    texts = group.texts[: limits.texts]
    # What is too long isn't saved with a verdict.
    keys = [next(iter(each.keys), None) for each in texts]
    saved = [key if key and len(key) <= limits.key else None for key in keys]
    head = heading(
        percent(group.least) if group.kind != "identical" else "same",
        group.title[: limits.title] or "(no title)",
        group.label,
        [key[: min(limits.key, 100)] if key else "?" for key in keys],
        element("span", "chain", class_="tag") if group.chain else "",
    )
    button = element("button", *head, type="button", class_="head", aria_expanded="false")
    return element(
        "article",
        element("h3", button),
        element("template", *_body(group, texts, limits)),
        class_=f"group {group.kind}",
        data_low=round(group.least, 4),
        data_size=group.documents,
        data_keys=json.dumps(saved),
    )


def heading(share: str, title: str, size: str, keys: Sequence[str], marks: str) -> list[Markup]:
    """Return the line of a group in a list."""
    return [
        element("span", share, class_="share"),
        element("span", title, class_="title", lang=language_of(title), dir="auto"),
        element("span", size, class_="size"),
        element("span", " · ".join(keys), class_="keys", dir="auto"),
        element("span", marks, class_="marks"),
    ]


def _body(group: ListedGroup, texts: Sequence[ListedText], limits: _Fit) -> Iterator[Markup]:
    first, *others = texts
    if group.chain:
        said = (
            "A chain: not all of these documents are near-duplicates of the kept one; the least "
            f"similar is {percent(group.least)} similar. Documents between them connect them."
        )
        yield element("p", said, class_="warn")
    more = group.more + len(group.texts) - len(texts)
    if len(others) > 1 or more:
        yield _tabs(others, more)
    names = [_names(group.names[0] if others else "Kept and copies", first, limits)]
    for number, each in enumerate(others, 1):
        names.append(_names(group.names[1], each, limits, data_text=number))
    yield element("div", *names, class_="names" if others else "copies")
    for number, each in enumerate(others, 1):
        content = _compared(group, first, each, limits)
        yield element("section", *content, data_text=number)
    if group.copied is not None:
        text = group.copied[: min(_EXCERPT, limits.characters)]
        said = f"{plural(group.documents, 'document')} with exactly this text:"
        yield element("p", said, class_="facts")
        yield text_cell(language_of(text), text)
        if rest := len(group.copied) - len(text):
            yield element("p", plural(rest, "further character"), class_="fold")
    elif not others:
        yield _missing()


def _tabs(others: Sequence[ListedText], more: int) -> Markup:
    said = "Compare the kept text with"
    parts = [element("span", said, class_="soft")]
    for number, each in enumerate(others, 1):
        text = f"{number}: {percent(each.pair.share)}" if each.pair else f"{number}"
        parts.append(element("button", text, type="button", data_choose=number))
    if more:
        parts.append(element("span", f"{plural(more, 'further text')} left out", class_="soft"))
    return element("div", *parts, class_="tabs", role="group", aria_label=said)


def _names(role: str, text: ListedText, limits: _Fit, **more: object) -> Markup:
    """Return the keys of the documents that have a text."""
    shown = [key if len(key) <= limits.key else f"{key[: limits.key]}…" for key in text.keys]
    names = [element("span", key, class_="name", dir="auto") for key in shown[: limits.keys]]
    if text.documents > 1:
        role += f": {plural(text.documents, 'identical document')}"
    parts = [element("b", role), *names[:_NAMED]]
    unnamed = text.documents - len(names)
    rest = f"and {plural(unnamed, 'further document')} with this text" if unnamed > 0 else ""
    if names[_NAMED:]:
        summary = plural(text.documents - _NAMED, "more document")
        parts.append(folded(summary, *names[_NAMED:], rest))
    elif rest:
        parts.append(element("span", rest, class_="soft"))
    return element("div", *parts, **more)


def _compared(
    group: ListedGroup, first: ListedText, other: ListedText, limits: _Fit
) -> list[Markup]:
    if other.pair is None:
        return [_missing()]
    rows = other.pair.drawn(kept=limits.kept, most=limits.characters, both=False)
    sources = [each.source[-limits.key :] for each in (first, other) if each.source]
    details = {**other.pair.facts, **group.facts, "read at": " and ".join(sources)}
    return [
        element("p", other.pair.sentence, class_="facts"),
        element("div", *rows, class_="texts", data_lang=other.pair.languages[1]),
        folded("Details", facts(details)),
    ]


def _missing() -> Markup:
    said = "The texts weren't found in the sources, or have changed."
    return element("p", said, class_="warn")
