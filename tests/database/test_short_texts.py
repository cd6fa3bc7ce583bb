"""Short texts equal others by their words alone, of hardly any words by all of the text."""

import io
import json

import pytest

import fpdb
from fpdb import Document

EMPTY = ["", " \n", "\u3000"]
TINY = [
    "Thanks!",
    "谢谢",
    "登录",
    "👍",
    "!!!",
    "42",
    "-42",
    "C",
    "C++",
    "c",
    "Please wait",
    "please wait",
]
EQUAL = [
    ("Annual report 2024", "  ANNUAL — report, 2024!"),
    ("网页去重了", "网页 去重 了。"),
    ("The ｎｅｗｓ of today", "the news of today"),
]
SEARCHES = [{}, {"similarity": 0.9}, {"k": 3}, {"k": 7}]


@pytest.fixture(params=[0.8, None], ids=["similarity", "bits"])
def db(request, tmp_path):
    with fpdb.create(tmp_path / "db", similarity=request.param) as database:
        yield database


def test_empty_texts_are_stored_and_match_nothing(db):
    added = [db.add(f"k{n}", text, skip_duplicates=True) for n, text in enumerate(EMPTY)]
    assert [each.status for each in added] == ["short"] * len(EMPTY)
    many = [Document(f"m{n}", text) for n, text in enumerate(EMPTY)]
    assert {each.status for each in db.add_many(many, skip_duplicates=True)} == {"short"}
    assert len(db) == db.stats().short == 2 * len(EMPTY)
    for search in SEARCHES[: 2 if db.similarity else 0] + SEARCHES[2:]:
        assert not any(db.query(text, **search) for text in EMPTY)
        assert not any(db.query_many(EMPTY, **search))
    assert not list(db.pairs())
    assert list(db.check()) == []


def test_texts_of_hardly_any_words_match_equal_ones_only(db):
    texts = TINY * 2
    added = [db.add(f"k{n}", text, skip_duplicates=True) for n, text in enumerate(texts)]
    expected = ["short"] * len(TINY) + ["duplicate"] * len(TINY)
    assert [each.status for each in added] == expected
    many = [Document(f"m{n}", f"\n{text} ") for n, text in enumerate(TINY)]
    assert {each.status for each in db.add_many(many, skip_duplicates=True)} == {"duplicate"}
    for number, text in enumerate(TINY):
        [match] = db.query(text)
        assert (match.key, match.distance, match.similarity) == (f"k{number}", 0, 1.0)
    assert not db.query("please wait!")
    assert list(db.check()) == []


def test_a_text_that_stays_as_empty_as_it_was_is_unchanged(db):
    assert db.add("a", "").status == "short"
    assert db.add("a", "").status == "unchanged"
    assert db.add("a", "Please wait").status == "short"
    assert db.add("a", "Please wait").status == "unchanged"


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_case_width_space_and_punctuation_make_no_other_text(db, one, other):
    assert db.add("one", one, skip_duplicates=True).status == "short"
    [match] = db.query(other)
    assert (match.key, match.distance, match.similarity) == ("one", 0, 1.0)
    assert list(db.query_many([other] * 200)) == [[match]] * 200
    assert not db.query(other + " more")
    assert db.add("other", other, skip_duplicates=True).status == "duplicate"


def test_empty_texts_move_with_the_portable_form(db, tmp_path):
    texts = [*EMPTY, *(text for pair in EQUAL for text in pair)]
    list(db.add_many(Document(f"k{n}", text) for n, text in enumerate(texts)))
    file = io.BytesIO()
    db.dump(file)
    fpdb.load(tmp_path / "copy", io.BytesIO(file.getvalue()))
    with fpdb.open(tmp_path / "copy") as copy:
        assert not any(copy.query(text) for text in EMPTY)
        assert all(len(copy.query(text)) == 2 for pair in EQUAL for text in pair)
        assert list(copy.check()) == []


def test_ingest_stores_empty_pages(db, tmp_path):
    texts = [*EMPTY, *(text for pair in EQUAL for text in pair)]
    lines = (json.dumps({"url": f"u{n}", "text": text}) for n, text in enumerate(texts))
    (tmp_path / "in.jsonl").write_text("\n".join(lines), "utf-8")
    done = fpdb.ingest(db, str(tmp_path / "in.jsonl"), skip_duplicates=True)
    assert (done.short, done.duplicates) == (len(EMPTY) + len(EQUAL), len(EQUAL))


def test_a_run_finds_each_stored_text_without_shingles(tmp_path):
    """It is found by its digest alone, and so by one number of all that are looked up together."""
    texts = [f"red kite{number}" for number in range(30)]
    recipe, removed = fpdb.Recipe("own", segment="words", similarity=0.8), []
    with fpdb.create(tmp_path / "db", recipe=recipe) as database:
        list(database.add_many(Document(text, text) for text in texts))
    records = [{"id": text, "text": text} for text in [*texts, "red kite"]]
    options = {"database": tmp_path / "db", "on_removed": removed.append}
    assert list(fpdb.dedupe(records, **options)) == records[-1:]
    assert [row.kept_key for row in removed] == texts
