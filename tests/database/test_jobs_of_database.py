"""add_many and query_many with jobs, and documents that are prepared elsewhere."""

import pytest
from numbered import text_of

import fpdb
from fpdb import Document

pytestmark = pytest.mark.process


def documents():
    for number in range(2500):
        yield Document(f"u{number}", text_of(number % 2200), {"n": number})
        if number % 50 == 0:
            yield Document(f"short{number}", "a very brief text", [number])
            yield Document(f"u{number - 1}" if number else "first", text_of(number + 5000))
            yield Document(f"ready{number}", fingerprint=number)


def rows_in(database):
    return [(d.key, d.id, d.fingerprint, d.short, d.meta) for d in database.scan()]


@pytest.mark.parametrize("skip_duplicates", [False, True])
def test_add_many_gives_the_same_whatever_the_number_of_jobs(tmp_path, skip_duplicates):
    seen = []
    for jobs in (1, 2):
        with fpdb.create(tmp_path / f"{jobs}.fpdb") as db:
            added = list(db.add_many(documents(), skip_duplicates=skip_duplicates, jobs=jobs))
            seen.append((added, rows_in(db)))
    assert seen[0] == seen[1]
    assert {each.status for each in seen[0][0]} >= {"added", "replaced", "short"}


@pytest.mark.slow("only more than a thousand questions are prepared by several threads")
def test_query_many_gives_the_same_whatever_the_number_of_jobs(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(documents()))
        texts = [text_of(number) for number in range(2500)] + ["a very brief text", "none at all"]
        one, two = (list(db.query_many(texts, limit=3, jobs=jobs)) for jobs in (1, 2))
        assert one == two
        assert (len(one[0]), len(one[-2]), len(one[-1])) == (2, 3, 0)
        assert [match.key for match in next(db.query_many(texts, jobs=2))] == ["u0", "u2200"]


@pytest.mark.slow("only more than a thousand documents are prepared by several threads")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_document_costs_its_thousand_and_what_follows(tmp_path, jobs):
    bad = {1500: Document("", "x"), 2700: Document("y", None)}
    source = [bad.get(number, Document(f"u{number}", text_of(number))) for number in range(4000)]
    with fpdb.create(tmp_path / "db") as db:
        with pytest.raises(fpdb.InputError, match="found the key ''"):
            list(db.add_many(source, jobs=jobs))
        assert len(db) == 1000
        with pytest.raises(fpdb.InputError, match="can't be stored"):
            list(db.add_many([*source[:1400], Document("z", "x", object())], jobs=jobs))
        with pytest.raises(fpdb.InputError, match="expected a whole number from 0"):
            next(db.add_many(source, jobs=-jobs))
        with pytest.raises(fpdb.InputError, match="expected a whole number from 0"):
            next(db.query_many([], jobs=-jobs))


def test_a_preparer_tells_good_documents_from_bad_ones(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        some = [Document(f"u{n}", text_of(n)) for n in range(9)]
        some[2], some[3], some[8] = Document("", "x"), Document("y"), Document("z", "x", 2**64)
        prepared, bad = db.preparer.sift(some)
        assert [place for place, _ in bad] == [2, 3, 8]
        assert all(isinstance(error, fpdb.InputError) and error.hint for _, error in bad)
        assert [added.key for added in db.add_prepared(prepared)] == [
            "u0",
            "u1",
            *map("u{}".format, range(4, 8)),
        ]
        with pytest.raises(fpdb.InputError):
            db.preparer.prepare(some)
        nothing, none_bad = db.preparer.sift([])
        assert (len(nothing), none_bad) == (0, [])
        many = db.preparer.prepare([Document(f"v{n}", "x") for n in range(2500)])
        assert len(list(db.add_prepared(many))) == 2500
