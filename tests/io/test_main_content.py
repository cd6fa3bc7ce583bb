"""The main content of a page is its article, however the page is made, and never nothing."""

import json
from collections import Counter
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.io.extraction import extract

ARTICLE = [
    "The old bridge at Lindow is closed until further notice, because the river washed out a pier.",
    "Engineers will look at what is left of it when the water has fallen, the council said.",
    "Only one way remains:",
    "The ferry at Ashby runs every twenty minutes, and takes no more than six cars at a time.",
    "A decision about repairs is expected in the autumn. The last ones took more than four years.",
]
ZH = [
    "记者从有关部门获悉，今年的粮食产量再创新高，来自全国各地的代表出席了在北京召开的会议。",
    "会议指出：",
    "各地要继续做好春耕备耕工作，保障农资供应，确保全年粮食和重要农产品稳定安全供给。",
    "下一步还将扩大试点范围。",
]
TITLE = "The bridge at Lindow is closed for months"
SUMMARY = (
    "The river has washed out one of the piers, and nobody can say when cars may cross it again."
)
MENU = "".join(f'<li><a href="/{n}">Section number {n}</a></li>' for n in range(30))
TEASERS = "".join(
    f"<div><div><div><a href=/t{n}><img src=x>A story of the day number {n}</a></div>"
    f"<div>Story number {n} says little, but it says it at some length, and ends with a dot.</div>"
    "</div></div>"
    for n in range(3)
)


def read(body, title=TITLE):
    return extract(f"<html><head><title>{title} - News</title></head><body>{body}", True)[0]


def paragraphs(texts, tag="p"):
    return "".join(f"<{tag}>{text}</{tag}>" for text in texts)


def page(article):
    """Put a page around an article, in elements that say nothing of what they are."""
    return (
        f"<div><ul>{MENU}</ul></div><div><h1>{TITLE}</h1><div>5 May, by A. Writer</div></div>"
        f"<div>{article}</div><div>Editor: B. Writer</div><div>{TEASERS}</div>"
        "<div>All rights reserved by the owners of this page, and by nobody else.</div>"
    )


@pytest.mark.parametrize("texts", [ARTICLE, ZH], ids=["en", "zh"])
@pytest.mark.parametrize(
    "mark",
    [
        paragraphs,
        lambda texts: paragraphs(texts, "div"),
        "<br><br>".join,
        lambda texts: f"<div><div>{paragraphs(texts)}</div></div>",
        lambda texts: f"<main><article>{paragraphs(texts)}</article></main>",
        lambda texts: f"<div class='widget share-this'>{paragraphs(texts)}</div>",
        lambda texts: f"<form><aside>{paragraphs(texts)}</aside></form>",
        lambda texts: f"<table><tr><td>{paragraphs(texts)}</table>",
        lambda texts: paragraphs(f"<span>{text}</span>" for text in texts),
        lambda texts: paragraphs(texts).replace("</p>", ""),
    ],
    ids=["p", "div", "br", "nested", "article", "named", "form", "table", "span", "unclosed"],
)
def test_it_is_the_article(mark, texts):
    assert read(page(mark(texts))).split() == " ".join(texts).split()


def test_what_is_said_twice_is_left_out():
    summary = f"<div>{SUMMARY}</div>"
    assert read(f"{summary}<div>{summary}{paragraphs(ARTICLE)}</div>").split("\n") == ARTICLE
    # All of a page may be there twice, for a large and for a small screen.
    twice = f"<div>{paragraphs(ARTICLE)}</div><div>{paragraphs(ARTICLE)}</div>"
    assert read(twice).split("\n")[:5] == ARTICLE


@pytest.mark.parametrize(
    "beside",
    [
        f"<div class='comments'>{paragraphs([SUMMARY, SUMMARY.replace('river', 'sea')])}</div>",
        f"<p hidden>{SUMMARY}</p>",
        f"<div style='color: red; display: none'><p>{SUMMARY}</p></div>",
        f"<aside><p>{SUMMARY}</p></aside>",
        f"<figure><img><figcaption>{SUMMARY}</figcaption></figure>",
        "<ul class='share'><li>Send</li><li>Print</li></ul>",
        f"<ul>{MENU}</ul>",
        f"<h2><a href=/x>{SUMMARY}</a></h2>",
        f"<script>document.write('<p>{SUMMARY}</p>')</script>",
        f"<svg><svg><text>{SUMMARY}</text></svg></svg>",
        f"<!-- <p>{SUMMARY}</p> -->",
        f"<template><p>{SUMMARY}</p></template>",
    ],
)
def test_what_is_beside_the_article_is_left_out(beside):
    body = paragraphs(ARTICLE[:3]) + beside + paragraphs(ARTICLE[3:])
    assert read(page(body)).split("\n") == ARTICLE


def test_attributes_are_no_markup():
    odd = '<p title=\'a > b </p> <script> "\'>Short lines, and "quoted" ones, are &lt;kept&gt;.</p>'
    found = read(paragraphs(ARTICLE[:2]) + odd + paragraphs(ARTICLE[3:]))
    assert found.split("\n")[2] == 'Short lines, and "quoted" ones, are <kept>.'


def test_headings_and_links_of_the_article_are_kept():
    body = paragraphs(ARTICLE[:2]) + "<h2>The ferry</h2>" + paragraphs(ARTICLE[3:])
    linked = body.replace("ferry at Ashby", "<a href=/ferry>ferry at Ashby</a>")
    assert read(page(linked)).split("\n") == [*ARTICLE[:2], "The ferry", *ARTICLE[3:]]


def test_a_page_without_an_article_is_its_own_text():
    places = [f"<li><div>Place {n}</div><div>{n} Mill Lane</div></li>" for n in range(40)]
    found = read(f"<ul>{MENU}</ul><ul>{''.join(places)}</ul><footer>{SUMMARY}</footer>")
    assert found.split("\n")[-2:] == ["Place 39", "39 Mill Lane"]
    assert "Section" not in found
    # A short notice isn't what a long list is about, and a short page is what little it says.
    assert "Place 39" in read(f"<p>{SUMMARY}</p><ul>{''.join(places)}</ul>")
    assert read("<div>Nothing here</div>") == "Nothing here"


def test_short_pages_of_one_site_differ():
    def site(body):
        return read(
            f"<header><a href=/>Office</a></header><ul>{MENU}</ul><div class=content>{body}</div>"
            "<footer>Contact, imprint and licence</footer>"
        )

    login = site("<h1>Sign in</h1><form><label>Name</label><input><button>Go</button></form>")
    tasks = ["Welcome", "Pay taxes", "Renew a passport", "Register a birth", "Find a school"]
    home = site(paragraphs(tasks, "div"))
    assert home.split("\n") == tasks
    assert login
    assert login != home


SPEC = "Steel kettle, 1.7 litres, 2200 watts, grey, with a cool handle, article 4711, 29.90 euro"
NOTICE = f"<p>{SUMMARY}</p>" + paragraphs(
    [
        "All prices include value added tax and exclude the cost of delivery, as the law asks for.",
        "You may return what you bought within thirty days and without giving any reason for it.",
    ]
)


@pytest.mark.parametrize(
    "body",
    [
        f"<main><h1>Kettle</h1><p>{SPEC}</p></main><div>{NOTICE}</div>",
        f"<div role=main><p>{SPEC}</p></div><div>{NOTICE}</div>",
        f"<article><h1>Kettle</h1><p>{SPEC}</p></article><div>{NOTICE}</div>",
        f"<div><h1>Kettle</h1><p>{SPEC}</p></div><footer>{NOTICE}</footer>",
        f"<div><p>{SPEC}</p></div><footer>{NOTICE}</footer>",
        f"<div><h1>Kettle</h1><p>{SPEC}</p></div><div class=legal-note>{NOTICE}</div>",
        f"<dialog class=cookie-consent>{NOTICE}</dialog><div><h1>Kettle</h1><p>{SPEC}</p></div>",
    ],
    ids=["main", "role", "article", "footer", "footer alone", "named", "dialog"],
)
def test_a_notice_is_never_the_page(body):
    found = read(f"<ul>{MENU}</ul>{body}", "Kettle")
    assert SPEC in found
    assert SUMMARY not in found


def test_marks_that_mislead_lose_nothing():
    article = paragraphs(ARTICLE)
    # What the page marks may be empty, or a teaser; a name may be that of all of it.
    for body in (
        f"<main><div id=app></div></main><div>{article}</div>",
        f"<article><p>{SUMMARY}</p></article><h1>{TITLE}</h1><div>{article}</div>",
        f"<div class=has-footer><h1>{TITLE}</h1><div>{article}</div></div>",
        f"<div class=cookie-off>{article}</div>",
        f"<h1>News</h1><div>{article}</div><h2>{TITLE}</h2><p>See more</p>",
    ):
        assert read(body).split("\n")[-5:] == ARTICLE


@pytest.mark.parametrize(
    "body",
    [
        f"<article><h1>Ferry</h1><a href=/x>{paragraphs(ARTICLE)}</a></article>",
        f"<h1>Ferry</h1><a href=/x><div>{paragraphs(ARTICLE)}</div>",
        f"<h1>Ferry</h1>{paragraphs(f'<a href=/x>{line}</a>' for line in ARTICLE)}",
    ],
    ids=["one", "unclosed", "each"],
)
def test_what_is_in_links_is_text_if_nothing_else_is(body):
    assert read(f"<nav><ul>{MENU}</ul></nav>{body}").split("\n")[-5:] == ARTICLE


def test_links_are_text_if_hardly_any_sentence_is_in_none():
    days = [f"On day {day}, {line}" for day in range(9) for line in ARTICLE]
    for texts in (days, ZH * 9):
        linked = paragraphs(f"<a href=/x>{line}</a>" for line in texts)
        assert (
            read(f"<h1>Ferry</h1><p>{SUMMARY}</p><div>{linked}</div>").split("\n")[-5:]
            == texts[-5:]
        )
        # Headlines are no sentences.
        headlines = paragraphs((f"<a href=/x>{line.rstrip('.。')}</a>" for line in texts), "li")
        found = read(f"<h1>Ferry</h1><p>{SUMMARY}</p><div>{headlines}</div>")
        assert found.split("\n") == [SUMMARY]


def test_a_section_named_for_what_is_shared_is_text():
    body = paragraphs(ARTICLE[:3]) + f"<div id=a-shared-ferry>{paragraphs(ARTICLE[3:4])}</div>"
    body += paragraphs(ARTICLE[4:])
    assert read(f"<div><h1>{TITLE}</h1>{body}</div>").split("\n") == ARTICLE
    assert SUMMARY not in read(f"<h1>{TITLE}</h1>{body}<div class=sharedaddy>{SUMMARY}</div>")


LEAD = "Lindow waits for its bridge, and nobody knows for how long, not even those who built it."


def test_a_lead_in_a_box_of_its_own_is_part_of_the_article():
    long = [f"On day {day}, {line}" for day in range(9) for line in ARTICLE]
    found = read(
        f"<ul>{MENU}</ul><h1>{TITLE}</h1><div class=intro><p>{LEAD}</p></div>"
        f"<div>By A. Writer</div><div>{paragraphs(long)}</div>"
        f"<div><p>{LEAD.replace('Lindow', 'Ashby')}</p></div>"
    )
    assert found.split("\n") == [LEAD, *long]


def test_short_paragraphs_end_an_article():
    end = "<p>It will sail at dawn.</p><div>Advertisement</div><p>See <a>the plan</a> there.</p>"
    found = read(f"<ul>{MENU}</ul><h1>{TITLE}</h1><div>{paragraphs(ARTICLE)}{end}</div>")
    assert found.startswith("\n".join([*ARTICLE, "It will sail at dawn."]))
    assert found.endswith("See the plan there.")


def test_links_among_text_are_text():
    items = [
        "Ann <a href=/1>mended the old rudder</a>",
        "Two <a href=/2>new ropes</a> came at last",
    ]
    rows = "".join(f"<tr><th><a href=/{n}>Pier {n}</a><td>It was built of oak" for n in range(4))
    found = read(
        f"<h1>{TITLE}</h1><div>{paragraphs(ARTICLE[:1])}<h2><a href=#a>The bridge</a></h2>"
        f"{paragraphs(ARTICLE[1:2])}<ul>{paragraphs([*items, 'A new deck was laid'], 'li')}</ul>"
        f"<table>{rows}</table>{paragraphs(ARTICLE[3:])}"
        f"<ul>{paragraphs((f'<a href=/{n}>Story {n}</a>' for n in range(9)), 'li')}</ul>"
        f"{paragraphs(ARTICLE[2:3])}<p>{SUMMARY}</p></div>"
    ).split("\n")
    assert found[1] == "The bridge"
    assert {"Ann mended the old rudder", "Two new ropes came at last", "Pier 2"} <= set(found)
    assert "Story 2" not in found


SHOP = {"@type": "WebSite", "name": "Shop", "description": "A shop"}


def test_a_page_that_a_script_draws_is_what_describes_it():
    def drawn(name, said, shown=""):
        linked = json.dumps({"@graph": [{"@type": "Product", "name": name, "description": said}]})
        return extract(
            f"<title>{name} | Shop</title>"
            f"<meta property=og:description content='A &quot;{name}&quot;'>"
            f"<script type=application/ld+json>{json.dumps(SHOP)}</script>"
            f"<script type=application/ld+json>{linked}</script><script src=app.js></script>"
            f"<body><div id=app>{shown}</div><p>All prices include value added tax.</p>",
            True,
        )[0]

    kettle = drawn("Kettle", "Of steel, for 1.7 litres")
    assert kettle.split("\n") == [
        *("Kettle | Shop", 'A "Kettle"', "Kettle", "Of steel, for 1.7 litres"),
        "All prices include value added tax.",
    ]
    # A page that shows what it describes is as short as it looks, or as long.
    assert "Shop" not in drawn("Kettle", "Of steel", "<h1>Kettle</h1><p>Of steel, and grey</p>")
    assert drawn("Kettle", "Of steel", paragraphs(ARTICLE)).split("\n")[:5] == ARTICLE
    for broken in ("{", "[" * 100_000, '"text"', '{"description": 5}', "[[null]]"):
        page = f"<script type=application/ld+json>{broken}</script><p>Nothing here</p>"
        assert extract(page, True)[0] == "Nothing here"


@pytest.mark.parametrize("mark", ["main", "div role=main"])
def test_a_main_that_holds_title_and_date_is_not_the_content(mark):
    end = mark.split()[0]
    head = f"<{mark}><h1>{TITLE}</h1><p>12 May 2024, 10:12</p></{end}>"
    found = read(f"{head}<div class=content>{paragraphs(ARTICLE)}</div>")
    assert found.split("\n")[-5:] == ARTICLE


def test_a_short_article_is_the_content_of_a_page_of_notices():
    notices = "".join(f"<div>{word} of the site is reserved</div>" for word in "ABCDEFGH")
    assert read(f"{paragraphs(ZH)}<div>{notices}</div>").split("\n") == ZH


TAGS = ["p", "div", "a href=/", "li", "ul", "table", "td", "span", "br", "h2", "form", "aside"]
TAGS += ["div class=comments", "div hidden", "script", "template", "svg", "select", "body", "main"]
PIECES = st.one_of(
    st.sampled_from([f"<{tag}>" for tag in TAGS]),
    st.sampled_from([f"</{tag.split()[0]}>" for tag in TAGS]),
    st.sampled_from([*ARTICLE, *ZH, TITLE, "&nbsp;", "&amp;lt;", "<!-- <p> -->", "<", ">", '"']),
    st.text(max_size=20),
)


@settings(max_examples=examples(200))
@given(st.lists(PIECES, max_size=60))
def test_any_markup_gives_only_what_the_page_holds(pieces):
    page = "".join(pieces)
    found = Counter("".join(extract(page, main=True)[0].split()))
    assert set(found - Counter(unescape(page))) <= {"\ufffd"}
