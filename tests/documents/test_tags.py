"""Texts with tags: which ones seem to be HTML, and who is warned of them."""

import asyncio
import warnings

import pytest

import fpdb
from fpdb.integrations.batcher import Batcher, added_to

WORDS = " ".join(f"word{place}" for place in range(40))
# A page as many sites send it: the first element ends long after the beginning.
PAGE = f"<!doctype html>\n<html><head><style>{'p { margin: 0 }' * 500}</style><body><p>{WORDS}"
PAGES = [fpdb.Document(str(number), f"{PAGE} {number}") for number in range(30)]


@pytest.fixture
def db(tmp_path):
    with fpdb.create(tmp_path / "db") as database:
        yield database


@pytest.mark.parametrize(
    ("text", "tagged"),
    [
        (PAGE, True),
        ("\ufeff \r\n" + PAGE, True),
        (f"<p>{WORDS}</p>", True),
        (f"{WORDS[:99]} <ul><li>one</li><li>two</li></ul> {WORDS}", True),
        (None, False),
        ("", False),
        (WORDS, False),
        (f"if (a < b && b > c) return; {WORDS}", False),
        (f"<ana@town.example> wrote: {WORDS}", False),
        (f"End an element by </p>, and <b>bold</b> words look so. {WORDS}", False),
        (f"{WORDS * 8} <p>{WORDS}</p> <p></p> <p></p>", False),
    ],
)
def test_which_texts_seem_to_have_tags(text, tagged):
    assert fpdb.Document("a", text).has_tags is tagged


def add(db):
    for page in PAGES:
        db.add(page.key, page.text)


def add_many(db, jobs=1):
    assert sum(1 for _ in db.add_many(PAGES, jobs=jobs, transaction=10)) == len(PAGES)


def add_many_by_workers(db):
    add_many(db, jobs=2)


def add_in_batches(db):
    async def run():
        batcher = Batcher(lambda documents: list(db.add_many(documents)))
        await asyncio.gather(*(batcher.add([page]) for page in PAGES))
        await batcher.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "way",
    [add, add_many, pytest.param(add_many_by_workers, marks=pytest.mark.process), add_in_batches],
)
def test_the_first_text_with_tags_is_warned_of(db, way):
    db.add("plain", WORDS)
    with pytest.warns(fpdb.TagsWarning, match="'0' has tags.*fpdb.html_text") as found:
        way(db)
    assert len(found) == 1
    assert len(db) == 1 + len(PAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        way(db)


def test_a_warning_that_is_an_error_stores_nothing(db):
    for page in PAGES[:2]:
        with fpdb.open(db.path) as handle, pytest.raises(fpdb.TagsWarning):
            handle.add(page.key, page.text)
    assert len(db) == 0


def test_the_line_that_adds_is_named(db):
    with pytest.warns(fpdb.TagsWarning) as found:
        db.add("a", PAGE)
    assert found[0].filename == __file__


def test_html_that_was_read_as_html_is_not_warned_of(db):
    """Text about tags, which a pipeline or a server took out of HTML, is stored as it is."""
    stored = added_to(db)([fpdb.Document("a", f"<b> and </b>: {WORDS}")])
    assert [outcome.status for outcome in stored] == ["added"]
