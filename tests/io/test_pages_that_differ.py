"""Pages of one template that say different things aren't alike, whatever notices they share."""

import random

import pytest
import sites

import fpdb
from fpdb.io.extraction import extract

DESIGNS = list(sites.DESIGNS)


def text_of(page):
    return extract(page, main=True)[0]


def alike(texts):
    documents = (fpdb.Document(number, text) for number, text in enumerate(texts))
    return [(pair.key, pair.other) for pair in fpdb.exact_pairs(documents, 0.8)]


def made(kind, design, count, **options):
    writer = sites.Writer(random.Random(f"{kind.__name__} {design}"))
    return [kind(writer, design, **options) for _ in range(count)]


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize(
    ("kind", "count"),
    [(sites.item, 250), (sites.enum, 300), (sites.news, 100), (sites.thread, 100)],
    ids=["shop", "api", "news", "forum"],
)
def test_no_two_pages_of_a_site_are_alike(kind, count, design):
    assert alike(map(text_of, made(kind, design, count))) == []


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("own", [10, 20, 40, 80])
def test_a_template_with_few_words_of_its_own(own, design):
    texts = list(map(text_of, made(sites.template, design, 50, own=own)))
    if design not in sites.SILENT:
        assert not any(sites.SHOP_NOTICE[1][:30] in text for text in texts)
    # With ten words beside a notice of 130 that nothing sets apart, the pages are indeed alike.
    if own > 10 or design not in sites.SILENT:
        assert alike(texts) == []


@pytest.mark.parametrize("design", DESIGNS)
def test_all_posts_of_a_thread_are_its_content(design):
    writer = sites.Writer(random.Random(design))
    for count in (2, 3, 4, 12):
        posts = sites.posts(writer, count)
        text = text_of(sites.threaded("The thread", posts, design))
        assert all(said in text for _, _, said in posts)
        if count == 12:
            shorter = text_of(sites.threaded("The thread", posts[:-1], design))
            assert alike([text, shorter]) == [(0, 1)]


@pytest.mark.parametrize("design", [each for each in DESIGNS if each not in sites.SILENT])
@pytest.mark.parametrize("tag", ["div class=post", "div", "li", "article", "div class=comment-7"])
def test_comments_are_not_the_article(tag, design):
    writer = sites.Writer(random.Random(f"{tag} {design}"))
    paragraphs = [writer.sentences(3, 5) for _ in range(5)]
    title = writer.phrase(7).capitalize()
    said = sites.boxed(sites.posts(writer, 30), tag)
    content = (
        f"<h1>{title}</h1><div>By {writer.name()}, 5 May 2024</div>"
        f"<div>{sites.tagged(paragraphs, 'p')}</div><h3>30 comments</h3><div>{said}</div>"
    )
    found = text_of(sites.page(title, content, sites.NEWS_NOTICE, design))
    assert found.split("\n") == paragraphs


def test_teasers_with_their_first_words_are_not_the_article():
    writer = sites.Writer(random.Random(1))
    paragraphs = [writer.sentences(3, 5) for _ in range(4)]
    title = writer.phrase(7).capitalize()

    def teasers():
        texts = [f"<a href=/x>{writer.phrase(6)}</a> {writer.sentences(2, 2)}" for _ in range(9)]
        return f"<ul>{sites.tagged(texts, 'li')}</ul>"

    article = f"<h2>{title}</h2><div>{sites.tagged(paragraphs, 'p')}</div>"
    found = text_of(sites.page(title, teasers() + article + teasers(), [], "divs"))
    assert found.split("\n") == paragraphs
