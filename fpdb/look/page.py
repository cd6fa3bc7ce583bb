"""A page: its frame, its style, the list of groups that its program sorts, and words for numbers.

The texts of documents are escaped. A policy in the page lets nothing run but its own program, and
nothing be fetched.
"""

import base64
import hashlib
import importlib.resources
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from fpdb.markup import Markup, element
from fpdb.scratch import draft_file

_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}
_LOOKED_AT = 2000
_TITLE_LENGTH = 120
_ORDERS = {
    "given": "least similar first",
    "similar": "most similar first",
    "large": "largest first",
    "title": "by title",
}
_KEYS = (
    "j and k: the next and the previous group; o: open or close it; n and p: the next and the "
    "previous text in it{}; /: search."
)
_JUDGED = "; s, d and u: same, different, unsure, and the same key again takes it back"


def language_of(text: str) -> str | None:
    """Return the language of a text whose script needs fonts of its own."""
    beginning = text[:_LOOKED_AT]
    for language, script in _SCRIPTS.items():
        if len(script.findall(beginning)) * 10 > len(beginning):
            return language
    return None


def first_line(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = text[: 4 * _TITLE_LENGTH].strip().partition("\n")[0]
    return " ".join(line.split())[:_TITLE_LENGTH]


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def percent(share: float, *, exact: bool = True) -> str:
    """Return a share in percent, without a line end before the sign; only all is 100 %."""
    if 0 < share < 0.001:
        return "<\u00a00.1\u00a0%"
    digits = 0 if share in (0, 1) or 0.005 <= share < 0.995 else 1
    sign = "" if exact else "≈\u00a0"
    return f"{sign}{min(share * 100, 99.9) if digits else share * 100:.{digits}f}\u00a0%"


def entry(label: str, name: str, value: object = "", kind: str = "text", **more: object) -> Markup:
    """Return a field of a form with its label."""
    field = element("input", type=kind, name=name, value=value, **more)
    return element("label", *([element("span", label)] if label else []), field)


def choice(label: str, name: str, value: str, choices: Mapping[str, str]) -> Markup:
    """Return a choice of a form with its label."""
    options = [
        element("option", text, value=each, selected="" if each == value else None)
        for each, text in choices.items()
    ]
    return element("label", element("span", label), element("select", *options, name=name))


def facts(given: Mapping[str, str]) -> Markup:
    """Return names with their values, without the empty ones."""
    shown = {name: value for name, value in given.items() if value}
    rows = [element("dt", name) + element("dd", value, dir="auto") for name, value in shown.items()]
    return element("dl", *map(Markup, rows))


def folded(summary: str, *content: str, class_: str | None = None) -> Markup:
    """Return content that is shown on a click."""
    return element("details", element("summary", summary), *content, class_=class_)


def keyboard(more: str = "") -> Markup:
    """Return what keys do."""
    return folded("Keyboard", element("p", _KEYS.format(more)), class_="help")


def cards(given: Iterable[tuple[str, str, str]]) -> Markup:
    """Return numbers, each with its name and a sentence that explains it."""
    found = []
    for number, name, sentence in given:
        head = element("p", element("b", number), " ", element("span", name), class_="number")
        found.append(element("div", head, element("p", sentence), class_="card"))
    return element("section", *found, class_="cards")


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
    least: float = 0.0,
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
            *([_sortable(groups, noun, kinds, orders, least)] if groups else []),
        ),
        element("footer", element("p", footer)),
        element("script", Markup(program)),
        policy=f"{page_policy(program)}; form-action 'none'",
    )
    with draft_file(output) as file:
        return file.write(page)


def _sortable(
    groups: Sequence[Markup],
    noun: str,
    kinds: Mapping[str, str],
    orders: Mapping[str, str],
    least: float,
) -> Markup:
    """Return a list of groups with what the program of the page needs."""
    search, lowest = "Search keys and titles", int(least * 100)
    judged = "open" in kinds
    measure = "similarity" if judged else "share"
    low, high = f"Least {measure} in percent", f"Largest {measure} in percent"
    tools = [
        entry("", "search", "", "search", placeholder=search, aria_label=search),
        choice("Show", "kind", "", {"": "all", **kinds}),
        entry(
            "Similarity" if judged else "Share",
            "from",
            lowest,
            "number",
            min=0,
            max=100,
            aria_label=low,
        ),
        entry("to", "to", 100, "number", min=0, max=100, aria_label=high),
        choice("Sort", "order", "given", orders),
        *([_button("Save verdicts", id="save")] if judged else []),
        _button("Save as CSV", id="csv"),
        _button("Open all", id="every"),
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
            _button(f"Show all {noun}s"),
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
        *(_button(word.capitalize(), data_verdict=word) for word in verdicts),
        element("span", class_="spread"),
        _button("Show all", data_view="fold"),
        _button("Side by side", data_view="beside"),
        _button(f"Print this {noun}", data_view="print"),
    ]


def _button(text: str, **attributes: object) -> Markup:
    return element("button", text, type="button", **attributes)


def whole_page(title: str, *content: Markup, policy: str = "") -> bytes:
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
        element("style", Markup(_resource("page.css"))),
    )
    page = element("html", head, element("body", *content), lang="en")
    return f"<!doctype html>\n{page}\n".encode("utf-8", "replace")


@cache
def page_policy(program: str = "") -> str:
    """Return the beginning of a policy that allows the style of a page and this program alone."""
    allowed = {"style-src": _resource("page.css"), "script-src": program}
    digests = {
        name: base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for name, content in allowed.items()
        if content
    }
    sources = [f"{name} 'sha256-{digest}'" for name, digest in digests.items()]
    return "; ".join(["default-src 'none'", *sources, "base-uri 'none'"])


@cache
def program_of(name: str) -> str:
    """Return the program of a page, with one that shows it in its reader's language."""
    catalogue = json.dumps(_catalogue(), ensure_ascii=False).replace("<", "\\u003c")
    translator = _resource("translate.js").replace("/*catalogue*/{}", catalogue)
    return f"{_resource(name)}\n{translator}"


def messages(language: str) -> Mapping[str, str]:
    """Return the messages of a language by the English ones."""
    found: dict[str, str] = _catalogue().get(language, {}).get("messages", {})
    return found


@cache
def _catalogue() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_resource("messages.json"))
    return found


@cache
def _resource(name: str) -> str:
    """Return a style or a program that comes with the package."""
    return (importlib.resources.files("fpdb.look") / name).read_text("utf-8")
