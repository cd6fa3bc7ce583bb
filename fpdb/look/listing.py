"""The groups of a report as HTML, at most what a file of 5 MB holds."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fpdb.look.page import facts, folded, language_of, percent, plural
from fpdb.look.pair import ColouredText, ComparedTexts, SharedTexts, excerpt
from fpdb.markup import Markup, element

MOST_BYTES = 5_000_000
# Of these, the page without its groups, and a group that leaves its room to others.
_FRAME, _LARGE = 200_000, 1_000_000
_LONGEST_KEY = 1_000
_EXCERPT = 1_500


class ListedDocument(NamedTuple):
    """A document by its key; `note` says its day and host, and `url` leads to it."""

    key: str
    note: str = ""
    url: str = ""


@dataclass
class ListedText:
    """A text of a group: some of its documents, how many have it, and where the first was read.

    `pair` compares it with the first text of the group, if both are there.
    """

    named: list[ListedDocument]
    documents: int = 1
    source: str = ""
    pair: ComparedTexts | SharedTexts | None = None


@dataclass
class ListedGroup:
    """Documents that are similar, by their texts.

    `label` is the number of documents in words, `least` the least similarity of the texts that are
    compared, estimated unless it is `exact`, `more` counts the texts that aren't there. In a chain,
    a text resembles only others than the first. `copied` is the text, if there is one alone.
    `coloured` is the first text, if the others are its sources.
    """

    title: str
    kind: str
    label: str
    documents: int
    least: float
    texts: Sequence[ListedText]
    exact: bool = True
    more: int = 0
    chain: bool = False
    copied: str | None = None
    coloured: ColouredText | None = None
    names: tuple[str, str] = ("Kept", "Near-duplicate")


def rendered(groups: Sequence[Callable[[], ListedGroup]]) -> list[Markup]:
    """Render groups, the least similar first, without the last ones that have no room.

    Documents with sources stay in their order.

    They are made one by one, so that few texts are in memory; and all are without long equal
    passages, if they would be too large with these.
    """
    whole, cut = list[Markup](), list[Markup]()
    ranks: list[tuple[int, float]] = []
    room = left = MOST_BYTES - _FRAME
    for make in groups:
        group = make()
        if room >= 0:
            whole.append(_render(group, whole=True))
            room -= _size(whole[-1])
        html = _render(group, whole=False)
        size = _size(html)
        if size <= left:
            left -= size
            cut.append(html)
            ranks.append((0, 0.0) if group.coloured else (group.kind == "identical", group.least))
        elif size < _LARGE:
            break
    found = zip(ranks, whole if room >= 0 else cut, strict=True)
    return [html for _, html in sorted(found, key=lambda each: each[0])]


def _size(html: Markup) -> int:
    return len(html.encode("utf-8", "replace"))


def _render(group: ListedGroup, *, whole: bool) -> Markup:
    keys = [each.named[0].key if each.named else None for each in group.texts]
    head = heading(
        percent(group.least, exact=group.exact) if group.kind != "identical" else "same",
        group.title or "(no title)",
        group.label,
        [key[:100] if key else "?" for key in keys],
        element("span", "chain", class_="tag") if group.chain else "",
    )
    button = element("button", *head, type="button", class_="head", aria_expanded="false")
    # What is too long isn't saved with a verdict.
    saved = [key if key and len(key) <= _LONGEST_KEY else None for key in keys]
    return element(
        "article",
        element("h3", button),
        element("template", *_body(group, whole=whole)),
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


def _body(group: ListedGroup, *, whole: bool) -> Iterator[Markup]:
    first, *others = group.texts
    if group.chain:
        said = (
            "A chain: not all of these documents are near-duplicates of the kept one; the least "
            f"similar is {percent(group.least)} similar. Documents between them connect them."
        )
        yield element("p", said, class_="warn")
    if group.coloured:
        yield element("div", *group.coloured.drawn(whole=whole), class_="coloured")
        yield _tabs("Show what is in the source", others, group.more, "further source")
    elif len(others) > 1 or group.more:
        yield _tabs("Compare the kept text with", others, group.more, "further text")
    names = [_names(group.names[0] if others else "Kept and copies", first)]
    for number, each in enumerate(others, 1):
        names.append(_names(group.names[1], each, data_text=number))
    yield element("div", *names, class_="names" if others else "copies")
    for number, each in enumerate(others, 1):
        content = [_MISSING]
        if pair := each.pair:
            sources = [text.source[-_LONGEST_KEY:] for text in (first, each) if text.source]
            details = {**pair.facts, "read at": ", ".join(sources)}
            rows = pair.drawn(whole=whole, both=False)
            style = "texts shared" if group.coloured else "texts"
            content = [
                element("p", *pair.sentence, class_="facts"),
                element("div", *rows, class_=style, data_lang=pair.languages[1]),
                folded("Details", facts(details)),
            ]
        yield element("section", *content, data_text=number)
    if group.copied is not None:
        said = f"{plural(group.documents, 'document')} with exactly this text:"
        yield element("p", said, class_="facts")
        yield from excerpt(group.copied, _EXCERPT)
    elif not others:
        yield _MISSING


def _tabs(said: str, others: Sequence[ListedText], more: int, noun: str) -> Markup:
    parts = [element("span", said, class_="soft")]
    for number, each in enumerate(others, 1):
        text = f"{number}: {percent(each.pair.share)}" if each.pair else f"{number}"
        parts.append(element("button", text, type="button", data_choose=number))
    if more:
        parts.append(element("span", f"{plural(more, noun)} left out", class_="soft"))
    return element("div", *parts, class_="tabs", role="group", aria_label=said)


def _names(role: str, text: ListedText, **more: object) -> Markup:
    if text.documents > 1:
        role += f": {plural(text.documents, 'identical document')}"
    parts = [element("b", role)]
    for key, note, url in text.named:
        shown = key if len(key) <= _LONGEST_KEY else f"{key[:_LONGEST_KEY]}…"
        own = {"data_note": note, "data_url": url}
        parts.append(element("span", shown, class_="name", dir="auto", **own))
        if note or url:
            link = element("a", "open", href=url, rel="noreferrer", target="_blank") if url else ""
            parts.append(element("span", note, ", " * bool(note and url), link, class_="soft"))
    if (unnamed := text.documents - len(text.named)) > 0:
        rest = f"and {plural(unnamed, 'further document')} with this text"
        parts.append(element("span", rest, class_="soft"))
    return element("div", *parts, **more)


_MISSING = element("p", "The texts weren't found in the sources, or have changed.", class_="warn")
