"""A page: its frame, its style, its controls, and words for numbers.

The texts of documents are escaped. A policy in the page lets nothing run but its own program, and
nothing be fetched.
"""

import base64
import hashlib
import importlib.resources
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from fpdb.markup import FORMULA_SIGNS, Markup, element
from fpdb.models import Key

_SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff]"),
    "ko": re.compile("[\uac00-\ud7af]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}
_LOOKED_AT, _SAMPLED = 2000, 300
# Frequent characters that only one way of writing Chinese has.
_TRADITIONAL = re.compile(
    "[們個來這說時國會對發過學還進種經無現開動與樣實頭從點關當東長義問間書電話號氣門馬車見覺觀聽讓認該請]"
)
_SIMPLIFIED = re.compile(
    "[们个来这说时国会对发过学还进种经无现开动与样实头从点关当东长义问间书电话号气门马车见觉观听让认该请]"
)
LONGEST_KEY = 1_000
_TITLE_LENGTH = 120
_KEYS = (
    "j and k: the next and the previous group; o: open or close it; n and p: the next and the "
    "previous text in it{}; /: search."
)


def language_of(text: str) -> str | None:
    """Return the language of a text whose script needs fonts of its own."""
    beginning = text[:_LOOKED_AT]
    for language, script in _SCRIPTS.items():
        if len(script.findall(beginning)) * 10 > len(beginning):
            return language
    return None


def writing_of(text: str) -> str:
    """Return how a Chinese text is written, "traditional" or "simplified"; "" of any other."""
    beginning = text[:_SAMPLED]
    if beginning.isascii() or _SCRIPTS["ja"].search(beginning):
        return ""
    traditional = len(_TRADITIONAL.findall(beginning))
    simplified = len(_SIMPLIFIED.findall(beginning))
    if traditional == simplified:
        return ""
    return "traditional" if traditional > simplified else "simplified"


def writing_note(writings: Mapping[str, int], steps: Sequence[str]) -> str:
    """Say that copies in the other characters aren't found, if there are texts in both.

    Args:
        writings: How many texts are written how, as `writing_of` says.
        steps: How texts are cleaned before they are compared.
    """
    traditional, simplified = map(writings.get, ("traditional", "simplified"))
    if not traditional or not simplified or "t2s" in steps:
        return ""
    texts = "text is" if traditional == 1 else "texts are"
    return (
        f"{traditional:,} {texts} in traditional characters, {simplified:,} in simplified ones: "
        "--recipe web-zh finds copies of each other."
    )


def first_line(text: str) -> str:
    line = text[: 4 * _TITLE_LENGTH].strip().partition("\n")[0]
    return " ".join(line.split())[:_TITLE_LENGTH]


def plural(count: int, noun: str, many: str = "") -> str:
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def percent(share: float, *, exact: bool = True) -> str:
    """Return a share in percent, without a line end before the sign; only all is 100 %."""
    if 0 < share < 0.001:
        return "<\u00a00.1\u00a0%"
    digits = 0 if share in (0, 1) or 0.005 <= share < 0.995 else 1
    sign = "" if exact else "≈\u00a0"
    return f"{sign}{min(share * 100, 99.9) if digits else share * 100:.{digits}f}\u00a0%"


def entry(label: str, name: str, value: object, kind: str, **more: object) -> Markup:
    field = element("input", type=kind, name=name, value=value, **more)
    return element("label", *([element("span", label)] if label else []), field)


def shown_key(key: Key) -> str:
    shown = str(key)
    return shown if len(shown) <= LONGEST_KEY else f"{shown[:LONGEST_KEY]}…"


def button(*content: str, kind: str = "submit", **attributes: object) -> Markup:
    return element("button", *content, type=kind, **attributes)


def choice(label: str, name: str, value: str, choices: Mapping[str, str]) -> Markup:
    options = [
        element("option", text, value=key, selected="" if key == value else None)
        for key, text in choices.items()
    ]
    return element("label", element("span", label), element("select", *options, name=name))


def facts(entries: Mapping[str, str]) -> Markup:
    """Return names with their values, without the empty ones."""
    shown = {name: value for name, value in entries.items() if value}
    rows = [element("dt", name) + element("dd", value, dir="auto") for name, value in shown.items()]
    return element("dl", *map(Markup, rows))


def folded(summary: str, *content: str, class_: str | None = None) -> Markup:
    return element("details", element("summary", summary), *content, class_=class_)


def keyboard(more: str = "") -> Markup:
    return folded("Keyboard", element("p", _KEYS.format(more)), class_="help")


def cards(numbers: Iterable[tuple[str, str, str]]) -> Markup:
    """Return numbers, each with its name and a sentence that explains it."""
    drawn = []
    for number, name, sentence in numbers:
        head = element("p", element("b", number), " ", element("span", name), class_="number")
        drawn.append(element("div", head, element("p", sentence), class_="card"))
    return element("section", *drawn, class_="cards")


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
        *(element("meta", name=name, content=value) for name, value in named.items()),
        element("title", title),
        element("style", Markup(_resource("page.css"))),
    )
    page = element("html", head, element("body", *content), lang="en")
    return f"<!doctype html>\n{page}\n".encode("utf-8", "replace")


@cache
def page_policy(program: str) -> str:
    """Return the beginning of a policy that allows the style of a page and this program alone."""
    allowed = {"style-src": _resource("page.css"), "script-src": program}
    digests = {
        name: base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        for name, content in allowed.items()
    }
    sources = [f"{name} 'sha256-{digest}'" for name, digest in digests.items()]
    return "; ".join(["default-src 'none'", *sources, "base-uri 'none'"])


@cache
def program_of(name: str) -> str:
    """Return the program of a page, with one that shows it in its reader's language."""
    of_pages = {
        code: {part: language[part] for part in ("name", "messages")}
        for code, language in _catalogue().items()
    }
    catalogue = json.dumps(of_pages, ensure_ascii=False).replace("<", "\\u003c")
    translator = _resource("translate.js").replace("/*catalogue*/{}", catalogue)
    signs = json.dumps(FORMULA_SIGNS)
    return f"{_resource(name)}\n{translator}".replace('/*formula signs*/""', signs)


def messages(language: str) -> Mapping[str, str]:
    translated: dict[str, str] = _catalogue().get(language, {}).get("messages", {})
    return translated


def lines(language: str) -> Mapping[str, str]:
    """Return the messages of a terminal, and those of pages, which may be a part of them."""
    terminal: dict[str, str] = _catalogue().get(language, {}).get("terminal", {})
    return {**terminal, **messages(language)}


@cache
def _catalogue() -> dict[str, Any]:
    catalogue: dict[str, Any] = json.loads(_resource("messages.json"))
    return catalogue


@cache
def _resource(name: str) -> str:
    return (importlib.resources.files("fpdb.look") / name).read_text("utf-8")
