"""Deliveries to one database: keys that come again, copies, and other writers."""

import json

import pytest

import fpdb
from fpdb.documents.runs import Runs


@pytest.fixture
def deliver(tmp_path, jsonl):
    """Deduplicate records with the database, and return the counts and the ids that stay."""
    number = 0

    def run(records, **options):
        nonlocal number
        number += 1
        out = tmp_path / f"clean-{number}.jsonl"
        path = jsonl(f"in-{number}.jsonl", records)
        counts = fpdb.dedupe(path, out, database=tmp_path / "corpus.fpdb", **options)
        lines = out.read_text().splitlines()
        return counts, [json.loads(line)["id"] for line in lines]

    return run


def stored(tmp_path):
    """The digests of the documents by their keys."""
    with fpdb.open(tmp_path / "corpus.fpdb", readonly=True) as db:
        assert list(db.check()) == []
        return {document.key: document.digest for document in db.scan()}


def digest(text):
    return fpdb.recipe("web").digest(text)


@pytest.fixture
def records(corpus):
    """Ten records that don't resemble each other."""
    return [each | {"date": "2026-05-01"} for each in corpus(10, edited=0)]


def corrected(records, date="2026-06-01"):
    """The same records with one word more."""
    return [each | {"text": each["text"] + " correction", "date": date} for each in records]


def test_corrections_are_counted_and_left_out_by_default(tmp_path, deliver, records):
    deliver(records)
    before = stored(tmp_path)
    new = {"id": "new", "text": "a text of its own that nobody delivered before in any form"}
    counts, kept = deliver([*corrected(records[:6]), *records[6:], new])
    assert (counts.delivered, counts.replaced, kept) == (10, 0, ["new"])
    assert (counts.removed, counts.copies) == (10, 4)
    assert stored(tmp_path) == before | {"new": digest(new["text"])}


def test_corrections_take_the_place_of_what_is_stored(tmp_path, deliver, records):
    deliver(records)
    changed = corrected(records[:6])
    counts, kept = deliver([*changed, *records[6:]], same_key="replace")
    assert (counts.delivered, counts.replaced, counts.copies) == (10, 6, 4)
    assert kept == [each["id"] for each in changed]
    assert stored(tmp_path) == {each["id"]: digest(each["text"]) for each in changed + records[6:]}


def test_what_another_writer_replaces_meanwhile_stays(tmp_path, deliver, records, monkeypatch):
    deliver(records)
    begin = Runs.begin
    theirs = records[0]["text"] + " as another writer has it by now"

    def replace(*arguments):
        with fpdb.open(tmp_path / "corpus.fpdb") as db:
            db.add(records[0]["id"], theirs)
        begin(*arguments)

    monkeypatch.setattr(Runs, "begin", replace)
    counts, _ = deliver(corrected(records), same_key="replace")
    assert (counts.replaced, counts.meanwhile) == (9, 1)
    assert stored(tmp_path)[records[0]["id"]] == digest(theirs)
    assert len(stored(tmp_path)) == 10


def test_a_key_that_comes_twice_replaces_one_document(tmp_path, deliver, records):
    deliver(records)
    twice = [
        {"id": records[0]["id"], "text": records[1]["text"] + " and so on", "date": "2026-06-01"},
        {"id": records[0]["id"], "text": records[2]["text"] + " and so on", "date": "2026-06-01"},
    ]
    counts, kept = deliver(twice, same_key="replace")
    assert (counts.delivered, counts.replaced, len(kept)) == (2, 1, 2)


def test_a_text_that_is_stored_under_another_key_replaces_none(tmp_path, deliver, records):
    deliver(records)
    counts, kept = deliver([records[0] | {"id": records[1]["id"]}], same_key="replace")
    assert (counts.delivered, counts.replaced, counts.copies, kept) == (1, 0, 1, [])


def test_a_text_that_resembles_nothing_replaces_too(tmp_path, deliver, records):
    deliver(records[:2])
    other = records[5] | {"id": records[0]["id"]}
    assert deliver([other])[1] == [other["id"]]
    assert len(stored(tmp_path)) == 3  # under another key
    again = records[6] | {"id": records[1]["id"]}
    assert deliver([again, again], same_key="replace")[1] == [again["id"]]
    assert stored(tmp_path)[again["id"]] == digest(again["text"])
    assert len(stored(tmp_path)) == 3


def test_the_newer_record_replaces_the_older_one(tmp_path, deliver, records):
    deliver(records, keep="newest:date")
    newer, older = corrected(records[:3]), corrected(records[3:6], "2026-04-01")
    undated = [{**each, "date": None} for each in corrected(records[6:])]
    counts, kept = deliver([*newer, *older, *undated], keep="newest:date")
    assert (counts.delivered, counts.replaced) == (10, 3)
    assert kept == [each["id"] for each in newer]
    assert stored(tmp_path) == {each["id"]: digest(each["text"]) for each in newer + records[3:]}
    # By the date of the last one, not of the first.
    between = [{**each, "text": each["text"] + " again"} for each in corrected(newer, "2026-05-20")]
    counts, kept = deliver(between, keep="newest:date")
    assert (counts.replaced, kept) == (0, [])


def test_a_record_that_had_no_date_is_older_than_any(tmp_path, deliver, records):
    deliver([{**records[0], "date": ""}, *records[1:]], keep="newest:date")
    counts, kept = deliver(corrected(records[:1], "1970-01-01"), keep="newest:date")
    assert (counts.replaced, kept) == (1, [records[0]["id"]])


def test_the_date_is_also_that_of_metadata(tmp_path, deliver, records):
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        for each in records:
            db.add(each["id"], each["text"], {"date": each["date"]})
    newer, older = corrected(records[:3]), corrected(records[3:], "2026-04-01")
    assert deliver([*newer, *older], keep="newest:date")[1] == [each["id"] for each in newer]


def test_without_a_stored_date_nothing_is_called_newer(tmp_path, deliver, records):
    deliver(records)
    before = stored(tmp_path)
    with pytest.raises(fpdb.InputError, match=r"has no 'date' of 'doc-\d'") as caught:
        deliver(corrected(records), keep="newest:date")
    assert caught.value.hint
    assert stored(tmp_path) == before
    unchanged = [*records[1:], records[0] | {"id": "another"}]
    assert deliver(unchanged, keep="newest:date")[1] == []
    counts, kept = deliver(corrected(records), keep="newest:date", same_key="keep")
    assert (counts.delivered, counts.replaced, kept) == (10, 0, [])


def test_a_choice_that_nothing_follows_is_refused(tmp_path, jsonl, records):
    path = jsonl("in.jsonl", records)
    with pytest.raises(fpdb.InputError, match="no database"):
        fpdb.dedupe(path, tmp_path / "out.jsonl", same_key="replace")
    with pytest.raises(fpdb.InputError, match="found same_key 'other'"):
        fpdb.dedupe(path, tmp_path / "out.jsonl", database=tmp_path / "db", same_key="other")


def test_records_without_a_key_replace_none(tmp_path, records):
    """Their places are the same in each delivery."""
    for texts in (records[:5], corrected(records[:5])):
        plain = [{"text": each["text"]} for each in texts]
        list(fpdb.dedupe(plain, database=tmp_path / "corpus.fpdb"))
    counts = []
    list(
        fpdb.dedupe(
            [{"text": each["text"]} for each in records[5:]],
            database=tmp_path / "corpus.fpdb",
            same_key="replace",
            on_progress=counts.append,
        )
    )
    assert (counts[-1].delivered, counts[-1].kept) == (0, 5)
    assert len(stored(tmp_path)) == 10


@pytest.mark.parametrize("keys", ["same", "other"])
@pytest.mark.parametrize("similarity", [0.8, None], ids=["similarity", "bits"])
def test_copies_have_equal_texts_not_equal_sketches(tmp_path, deliver, records, similarity, keys):
    fpdb.create(
        tmp_path / "corpus.fpdb", similarity=similarity, k=None if similarity else 3
    ).close()
    deliver(records)
    edited = [each | {"text": each["text"].upper()} for each in records[:4]]  # of one sketch
    new = [
        each if keys == "same" else each | {"id": f"new {n}"}
        for n, each in enumerate(edited + records[4:])
    ]
    counts, kept = deliver([*new, {"id": "x", "text": "one more"}])
    assert (counts.removed, counts.copies, kept) == (10, 6, ["x"])


def test_a_copy_of_any_document_is_one(tmp_path, deliver, records):
    """Be another one as near, and added before."""
    with fpdb.create(tmp_path / "corpus.fpdb") as db:
        for each in records:
            db.add(f"{each['id']} in capitals", each["text"].upper())
            db.add(f"{each['id']} as it is", each["text"])
    counts, kept = deliver(records)
    assert (counts.removed, counts.copies, kept) == (10, 10, [])


def test_ready_fingerprints_that_come_again_are_copies(tmp_path):
    rows = [{"id": f"f{n}", "print": n * 0x1234567890ABCDE} for n in range(1, 4)]
    reading = fpdb.Reading(fingerprint_field="print")
    with fpdb.create(tmp_path / "corpus.fpdb", similarity=None, k=3) as db:
        assert len(list(fpdb.dedupe(rows, reading=reading, database=db))) == 3
        counts = []
        more = [*rows, {"id": "f4", "print": rows[0]["print"] ^ 1}]
        options = {"reading": reading, "database": db, "on_progress": counts.append}
        assert list(fpdb.dedupe(more, same_key="replace", **options)) == []
        assert (counts[-1].removed, counts[-1].copies, counts[-1].delivered) == (4, 3, 3)


@pytest.mark.parametrize(
    ("similarity", "lose"),
    [(0.8, None), (None, None), (0.8, 0)],
    ids=["similarity", "bits", "lose"],
)
def test_what_another_writer_adds_meanwhile_is_not_added_again(
    tmp_path, deliver, records, monkeypatch, similarity, lose
):
    """If its estimate is near; and where nothing may be lost, if it is equal."""
    fpdb.create(
        tmp_path / "corpus.fpdb", similarity=similarity, k=None if similarity else 3
    ).close()
    begin = Runs.begin
    brief = {"id": "brief", "text": "Thanks!"}

    def add(*arguments):
        with fpdb.open(tmp_path / "corpus.fpdb") as db:
            for each in [records[1], corrected(records)[3], brief]:
                db.add(f"their {each['id']}", each["text"])
        begin(*arguments)

    monkeypatch.setattr(Runs, "begin", add)
    counts, kept = deliver([*records, brief], lose=lose)
    assert (counts.kept, len(kept)) == (11, 11)  # the outputs were written already
    late = {records[1]["id"], "brief"} | {records[3]["id"] for _ in range(lose is None)}
    assert counts.meanwhile == (len(late) if similarity else counts.meanwhile) >= 2
    keys = stored(tmp_path).keys()
    assert len(keys) == 11 + 3 - counts.meanwhile
    assert {f"their {key}" for key in late} <= keys
    if similarity:
        assert not late & keys
        with fpdb.open(tmp_path / "corpus.fpdb") as db:
            assert [pair.other for pair in db.pairs()] == [records[3]["id"]] * (lose == 0)


def test_what_came_meanwhile_replaces_nothing(tmp_path, deliver, records, monkeypatch):
    deliver(records)
    begin, new = Runs.begin, corrected(records[:2])

    def add(*arguments):
        with fpdb.open(tmp_path / "corpus.fpdb") as db:
            db.add("theirs", new[0]["text"])
        begin(*arguments)

    monkeypatch.setattr(Runs, "begin", add)
    counts, kept = deliver(new, same_key="replace")
    assert (counts.replaced, counts.meanwhile, len(kept)) == (1, 1, 2)
    expected = {each["id"]: digest(each["text"]) for each in [records[0], new[1], *records[2:]]}
    assert stored(tmp_path) == expected | {"theirs": digest(new[0]["text"])}


def test_a_document_under_another_key_keeps_its_date(tmp_path, deliver, records):
    first = [{**records[0], "id": 7}, records[1]]
    others = [{**records[2], "id": 7}, {**records[3], "id": records[1]["id"], "date": None}]
    deliver(first, keep="newest:date")
    deliver(others, keep="newest:date", same_key="keep")
    with fpdb.open(tmp_path / "corpus.fpdb", readonly=True) as db:
        found = {
            key: (document.meta.get("key"), document.meta["newest"])
            for key, document in dict(db).items()
        }
    may = {"date": 1777593600.0}  # 2026-05-01 00:00 UTC
    key = records[1]["id"]
    assert found == {
        "7": (7, may),
        key: (None, may),
        "7 #2": (7, may),
        f"{key} #3": (key, {"date": None}),
    }


def test_the_newest_of_a_cluster_is_known_by_the_date_of_its_delivery(tmp_path, deliver, records):
    deliver(records[:1], keep="newest:date")
    with fpdb.open(tmp_path / "corpus.fpdb") as db:
        db.add("older", records[0]["text"], {"date": "2026-04-01"})
        [cluster] = db.clusters(keep="newest:date")
        assert cluster.keys == (records[0]["id"], "older")
        db.add("newer", records[0]["text"], {"date": "2026-05-02"})
        [cluster] = db.clusters(keep="newest:date")
        assert cluster.representative == "newer"
