"""A report: a page with groups that its program sorts, at most what a file of 5 MB holds."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fpdb.look.page import (
    LONGEST_KEY,
    button,
    choice,
    entry,
    keyboard,
    language_of,
    page_policy,
    percent,
    plural,
    program_of,
    shown_key,
    whole_page,
)
from fpdb.look.pair import ColouredText, ComparedTexts, SharedTexts, excerpt
from fpdb.markup import Markup, element
from fpdb.scratch import draft_file

MOST_BYTES = 5_000_000
# Of these, the page without its groups, and a group that leaves its room to others.
_FRAME, _LARGE = 200_000, 1_000_000
_ORDERS = {
    "given": "least similar first",
    "similar": "most similar first",
    "large": "largest first",
    "title": "by title",
}
_JUDGED = "; s, d and u: same, different, unsure, and the same key again takes it back"
_EXCERPT = 1_500


class ListedDocument(NamedTuple):
    """A document by its key; `note` says its day and host, and `url` leads to it."""

    key: str
    note: str = ""
    url: str = ""


@dataclass
class ListedText:
    """A text of a group: some of its documents, and how many have it.

    `pair` compares it with the first text of the group, if both are there. The `role` is that in a
    group of copied parts.
    """

    named: list[ListedDocument]
    documents: int = 1
    pair: ComparedTexts | SharedTexts | None = None
    role: str = ""


@dataclass
class ListedGroup:
    """Documents that are similar, by their texts.

    `label` is the number of documents in words, `least` the least similarity of the texts that are
    compared, estimated unless it is `exact`, `more` counts the texts that aren't there. `copied` is
    the text, if there is one alone. `coloured` is the first text, if the others have parts of it,
    as the `further` ones have.
    """

    title: str
    kind: str
    label: str
    documents: int
    least: float
    texts: Sequence[ListedText]
    exact: bool = True
    more: int = 0
    copied: str | None = None
    coloured: ColouredText | None = None
    further: ListedText | None = None


def rendered(groups: Sequence[Callable[[], ListedGroup | None]]) -> list[Markup]:
    """Render groups, the least similar first, without the last ones that have no room.

    Documents with coloured parts stay in their order. Groups are made one by one, so that few texts
    are in memory; those that need more than their part of the room are without long equal passages.
    """
    ranked: list[tuple[tuple[int, float], Markup]] = []
    room = MOST_BYTES - _FRAME
    for left, make in zip(range(len(groups), 0, -1), groups, strict=True):
        if (group := make()) is None:
            continue
        html = _render(group, whole=True)
        if _size(html) * left > room:
            html = _render(group, whole=False)
        size = _size(html)
        if size <= room:
            room -= size
            rank = (0, 0.0) if group.coloured else (group.kind == "identical", group.least)
            ranked.append((rank, html))
        elif size < _LARGE:
            break
    return [html for _, html in sorted(ranked, key=lambda pair: pair[0])]


def _size(html: Markup) -> int:
    return len(html.encode("utf-8", "replace"))


def _render(group: ListedGroup, *, whole: bool) -> Markup:
    keys = [text.named[0].key if text.named else None for text in group.texts]
    head = heading(
        percent(group.least, exact=group.exact) if group.kind != "identical" else "same",
        group.title or "(no title)",
        group.label,
        [key[:100] if key else "?" for key in keys],
        "",
    )
    # What is too long isn't saved with a verdict.
    saved = [key if key and len(key) <= LONGEST_KEY else None for key in keys]
    return element(
        "article",
        element("h3", button(*head, kind="button", class_="head", aria_expanded="false")),
        element("template", *_body(group, whole=whole)),
        class_=f"group {group.kind}",
        data_low=round(group.least, 4),
        data_size=group.documents,
        data_keys=json.dumps(saved),
    )


def heading(share: str, title: str, size: str, keys: Sequence[str], marks: str) -> list[Markup]:
    return [
        element("span", share, class_="share"),
        element("span", title, class_="title", lang=language_of(title), dir="auto"),
        element("span", size, class_="size"),
        element("span", " · ".join(keys), class_="keys", dir="auto"),
        element("span", marks, class_="marks"),
    ]


def _body(group: ListedGroup, *, whole: bool) -> Iterator[Markup]:
    first, *variants = group.texts
    if group.coloured:
        yield element("div", *group.coloured.drawn(whole=whole), class_="coloured")
        if group.coloured.common:
            yield element("p", "Grey: what all were given.", class_="facts given")
        yield _tabs("Show what is also in", variants, 0, "")
    elif len(variants) > 1 or group.more:
        yield _tabs("Compare the kept text with", variants, group.more, "further text")
    names = [_names(first.role or ("Kept" if variants else "Kept and copies"), first)]
    for number, variant in enumerate(variants, 1):
        names.append(_names(variant.role or "Near-duplicate", variant, data_text=number))
    if group.further:
        names.append(_names(group.further.role, group.further, class_="further"))
    yield element("div", *names, class_="names" if variants else "copies")
    for number, variant in enumerate(variants, 1):
        content = [_MISSING]
        if pair := variant.pair:
            rows = pair.drawn(whole=whole, both=False)
            style = "texts shared" if group.coloured else "texts"
            content = [
                element("p", *pair.sentence, class_="facts"),
                element("div", *rows, class_=style, data_lang=pair.languages[1]),
            ]
        yield element("section", *content, data_text=number)
    if group.copied is not None:
        said = f"{plural(group.documents, 'document')} with exactly this text:"
        yield element("p", said, class_="facts")
        yield from excerpt(group.copied, _EXCERPT)
    elif not variants:
        yield _MISSING


def _tabs(said: str, variants: Sequence[ListedText], more: int, noun: str) -> Markup:
    parts = [element("span", said, class_="soft")]
    for number, variant in enumerate(variants, 1):
        text = f"{number}: {percent(variant.pair.share)}" if variant.pair else f"{number}"
        parts.append(element("button", text, type="button", data_choose=number))
    if more:
        parts.append(element("span", f"{plural(more, noun)} left out", class_="soft"))
    return element("div", *parts, class_="tabs", role="group", aria_label=said)


def _names(role: str, text: ListedText, **more: object) -> Markup:
    if text.documents > 1 and not text.role:
        role += f": {plural(text.documents, 'identical document')}"
    parts = [element("b", role)]
    for key, note, url in text.named:
        origin = {"data_note": note, "data_url": url}
        parts.append(element("span", shown_key(key), class_="name", dir="auto", **origin))
        if note or url:
            link = element("a", "open", href=url, rel="noreferrer", target="_blank") if url else ""
            parts.append(element("span", note, ", " * bool(note and url), link, class_="soft"))
    if (unnamed := text.documents - len(text.named)) > 0:
        remark = plural(unnamed, "further document")
        remark = f"{remark} left out" if text.role else f"and {remark} with this text"
        parts.append(element("span", remark, class_="soft"))
    return element("div", *parts, **more)


_MISSING = element("p", "The texts weren't found in the sources, or have changed.", class_="warn")


def write_report(
    output: str | os.PathLike[str],
    title: str,
    subtitle: str,
    top: Iterable[Markup],
    groups: Sequence[Markup],
    *,
    kinds: Mapping[str, str],
    every: int,
    none: str,
    noun: str = "group",
    orders: Mapping[str, str] = _ORDERS,
    notes: Iterable[str] = (),
    footer: str = "",
) -> int:
    """Write a page with content at its top and groups as they are rendered; return its bytes.

    `kinds` are the kinds of groups, with the words for them, of which "open" are those without a
    verdict, if they can have one. `every` counts also the groups that aren't there, and if there is
    none, the page says `none`. With other `orders`, the given one is described otherwise.
    """
    program = program_of("page.js")
    part = f"This page shows {len(groups):,} of {plural(every, noun)}."
    counted = none if not every else part if len(groups) < every else ""
    page = whole_page(
        title,
        element("header", element("h1", title), element("p", subtitle)),
        element(
            "main",
            *top,
            element("h2", f"{noun.capitalize()}s", id="groups"),
            *(element("p", said, class_="note") for said in (counted, *notes) if said),
            *([_sortable(groups, noun, kinds, orders)] if groups else []),
        ),
        element("footer", element("p", footer)),
        element("script", Markup(program)),
        policy=f"{page_policy(program)}; form-action 'none'",
    )
    with draft_file(output) as file:
        return file.write(page)


def _sortable(
    groups: Sequence[Markup], noun: str, kinds: Mapping[str, str], orders: Mapping[str, str]
) -> Markup:
    search, judged = "Search keys and titles", "open" in kinds
    measure, limits = "similarity" if judged else "share", {"min": 0, "max": 100}
    low, high = f"Least {measure} in percent", f"Largest {measure} in percent"
    words = "Words, or Chinese characters, of the shortest passage that counts"
    shortest = entry("Shortest passage", "shortest", "", "number", min=1, aria_label=words)
    tools = [
        entry("", "search", "", "search", placeholder=search, aria_label=search),
        choice("Show", "kind", "", {"": "all", **kinds}),
        entry(measure.capitalize(), "from", 0, "number", **limits, aria_label=low),
        entry("to", "to", 100, "number", **limits, aria_label=high),
        *([] if judged else [shortest]),
        choice("Sort", "order", "given", orders),
        *([button("Save verdicts", kind="button", id="save")] if judged else []),
        button("Save as CSV", kind="button", id="csv"),
        button("Open all", kind="button", id="every"),
        element("span", class_="total", role="status"),
    ]
    return element(
        "div",
        element("noscript", element("p", f"The {noun}s are opened by a script of this page.")),
        element("div", *tools, class_="tools"),
        keyboard(_JUDGED if judged else ""),
        element("div", *groups, id="list"),
        element(
            "p",
            element("span", f"No {noun} fits: try fewer words, or wider limits."),
            " ",
            button(f"Show all {noun}s", kind="button"),
            id="none",
            hidden="",
        ),
        element("template", *_bar(noun, judged=judged), id="verdict"),
        id="app",
        data_name=hashlib.sha256("".join(groups).encode("utf-8", "replace")).hexdigest()[:16],
        data_noun=noun,
    )


def _bar(noun: str, *, judged: bool) -> list[Markup]:
    """Return the bar above each pair; the program of the page copies it."""
    verdicts = ("same", "different", "unsure") if judged else ()
    return [
        element("span", class_="soft"),
        *(button(word.capitalize(), kind="button", data_verdict=word) for word in verdicts),
        element("span", class_="spread"),
        button("Show all", kind="button", data_view="fold"),
        button("Side by side", kind="button", data_view="beside"),
        button(f"Print this {noun}", kind="button", data_view="print"),
    ]
