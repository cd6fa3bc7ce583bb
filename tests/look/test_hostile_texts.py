"""Nothing that a text, a key or a field holds becomes a part of the page but as its data."""

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

import pytest
from outlines import Outline, groups_of

import fpdb
from fpdb.look.page import percent
from fpdb.markup import element, visible

HOSTILE = (
    "<script>alert(1)</script></script><!--<script> ]]> <img src=x onerror=alert(1)> "
    "<svg onload=alert(1)> &lt;b&gt; \u2028\u2029 javascript:alert(1) </style></title></textarea> "
    "\u202egnp.exe\u202c \x00\x07\x1b[31m \ufeff\u200b \ud800 {{7*7}} ${alert(1)} '\"` "
)
WORDS = " ".join(f"word{number}" for number in range(200))
ELEMENTS = {
    "html", "head", "meta", "title", "style", "body", "header", "h1", "p", "main", "section", "div",
    "b", "span", "figure", "h3", "svg", "rect", "text", "path", "figcaption", "details", "summary",
    "table", "thead", "tbody", "tr", "th", "td", "h2", "noscript", "footer", "script",
    "article", "button", "template", "del", "ins", "label", "input", "select",
    "option",
}  # fmt: skip
SCRIPTED = re.compile(r"on\w+|style|src|href|action|formaction|srcdoc")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    source = folder / "<img src=x onerror=alert(1)>.jsonl"
    texts = [f"{HOSTILE} {WORDS} {HOSTILE}", f"{WORDS} {HOSTILE} more", f"{WORDS} {HOSTILE} more"]
    records = [
        {
            "id": f"{HOSTILE}{number}".replace("\ud800", ""),
            "text": text,
            "title": HOSTILE,
            "site": f"{HOSTILE}{number}",
            "day": f"2024-01-0{number + 1}",
        }
        for number, text in enumerate(texts)
    ]
    line = "x" * 1_000_000
    records += [
        {"id": f"long{number}", "text": f"{WORDS.upper()[::-1]} {line}{number}"}
        for number in range(2)
    ]
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    output = folder / "report.html"
    fpdb.report(str(source), output, fpdb.Reading(host_field="site", date_field="day"))
    return output


def test_texts_bring_no_element_and_no_attribute(page):
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    assert set(outline.elements) == ELEMENTS
    assert outline.elements["script"] == 1
    assert outline.elements["style"] == outline.elements["title"] - text.count("<svg") - text.count(
        "<rect"
    )
    assert [found for found in outline.attributes if SCRIPTED.fullmatch(found[1])] == []


def test_keys_stay_as_they_are_and_texts_are_harmless(page):
    [hostile] = [group for group in groups_of(page) if len(group["keys"][0][0]) > 10]
    key = HOSTILE.replace("\ud800", "")
    assert hostile["saved"] == [f"{key}0", f"{key}1"]
    names = [visible(f"{key}{number}") for number in range(3)]
    assert hostile["keys"] == [names[:1], names[1:]]
    assert not re.search("[\x00-\x08\x0b-\x1f\u2028-\u202e\ufeff\ud800]", hostile["text"])
    assert "⟦U+202E⟧gnp.exe⟦U+202C⟧" in "".join(hostile["rows"][1])


def test_the_policy_allows_the_program_and_the_style_alone(page):
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules == {
        "default-src": "'none'",
        "script-src": digest(outline.content["script"][0]),
        "style-src": digest(outline.content["style"][0]),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert not re.search(r"https?://(?!www\.w3\.org)", outline.content["script"][0])


def digest(content):
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


@pytest.mark.parametrize("name", ["page.js", "translate.js"])
def test_the_program_writes_no_markup(name):
    program = (files("fpdb.look") / name).read_text()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        ".style",
    ):
        assert way not in program


def test_a_line_of_a_million_letters_is_cut(page):
    [long] = [group for group in groups_of(page) if group["saved"][0] == "long0"]
    assert len(long["text"]) < 200_000
    assert page.stat().st_size < 400_000
    assert "at the end weren't compared" in long["text"]


def test_what_is_said_of_shares():
    said = {0: "0", 1e-4: "< 0.1", 0.004: "0.4", 0.5: "50", 0.994: "99", 0.9999: "99.9", 1: "100"}
    for share, number in said.items():
        assert percent(share) == f"{number} %".replace(" ", "\u00a0")


def test_elements_escape_what_is_no_markup():
    made = element("p", "<b>", element("i", "&"), class_="a\"'<")
    assert made == '<p class="a&quot;&#x27;&lt;">&lt;b&gt;<i>&amp;</i></p>'
    assert visible("a\u202eb\r\n\tc\u200dd\x00") == "a⟦U+202E⟧b\n\tc\u200dd⟦U+0000⟧"
