"""What is decided beside a database by the texts of its documents, which it doesn't have."""

import json
import random

import pyarrow
import pytest
from edited import WORDS, expected_ids, records_of, window

import fpdb
from fpdb.dedupe import decide
from fpdb.dedupe import records as in_memory
from fpdb.documents.runs import Runs


def delivered(records, form, folder, **options):
    """Deduplicate records in one of the forms, and return the ids of what stays."""
    if form == "file":
        source, out = folder / "in.jsonl", folder / "out.jsonl"
        source.write_text("".join(json.dumps(record) + "\n" for record in records))
        fpdb.dedupe(source, out, **options)
        return [json.loads(line)["id"] for line in out.read_text().splitlines()]
    if form == "table":
        return fpdb.dedupe(pyarrow.Table.from_pylist(records), **options)["id"].to_pylist()
    if form == "documents":
        records = [fpdb.Document(each["id"], each["text"], meta={"n": 1}) for each in records]
        return [each.key for each in fpdb.dedupe(records, **options)]
    return [each["id"] for each in fpdb.dedupe(records, **options)]


def earlier_and_later(seed):
    """Return the records that a database has, of which none may go, and those that come then."""
    records = [
        {"id": each["id"], "text": each["text"], "size": len(each["text"])}
        for each in records_of(seed, 240)
    ]
    stay = set(expected_ids(records[:120], lambda _: 0, 0.8))
    return [record for record in records[:120] if record["id"] in stay], records[120:]


def share_of(removed, texts):
    """Return the exact similarity of a removed record and what stays, and its own share."""
    own, other = (
        set(shingles.tolist())
        for shingles in fpdb.recipe("web").shingles_many(
            [texts[removed.key], texts[removed.kept_key]]
        )
    )
    return len(own & other) / len(own | other), len(own - other) / len(own)


@pytest.mark.parametrize(
    ("form", "seed", "lose"),
    [
        *(("file", 1, None), ("table", 2, None), ("records", 3, 0.08), ("documents", 4, 0)),
        *(("file", 5, 0.2), ("table", 4, 0), ("records", 2, None), ("documents", 3, 0.08)),
    ],
)
def test_what_stays_beside_stored_documents_is_what_exact_comparison_keeps(
    tmp_path, form, seed, lose
):
    before, after = earlier_and_later(seed)
    texts = {record["id"]: record["text"] for record in [*before, *after]}
    assert delivered(before, "records", tmp_path, database=tmp_path / "db") == [
        record["id"] for record in before
    ]
    asked, removed = [], []

    def text_of(key):
        asked.append(key)
        return texts[key]

    options = {"texts": text_of, "lose": lose, "on_removed": removed.append}
    kept = delivered(after, form, tmp_path, database=tmp_path / "db", **options)
    # The stored ones come first, and stay.
    same = {record["id"] for record in before}
    expected = expected_ids(
        [*before, *after], lambda record: record["id"] not in same, 0.8, lose=lose
    )
    if lose is not None:  # by which more of the stored ones would have stayed, and do
        assert set(expected) >= same
    assert kept == [key for key in expected if key not in same]
    assert len(asked) == len(set(asked))
    assert set(asked) <= same
    stored = [each for each in removed if each.kept_key in same]
    assert len(stored) > 5
    assert not any(each.estimated for each in removed)
    exactly = [each for each in stored if each.own_share is not None]
    assert any(each.own_share > 0 for each in exactly) is (lose != 0)
    for each in exactly:
        if texts[each.key] != texts[each.kept_key]:
            assert (each.similarity, each.own_share) == share_of(each, texts)
    if lose is not None:
        assert exactly == stored


def test_a_preference_is_among_the_delivered_records_only(tmp_path):
    before, after = earlier_and_later(6)
    texts = {record["id"]: record["text"] for record in before}
    delivered(before, "records", tmp_path, database=tmp_path / "db")
    kept = delivered(after, "file", tmp_path, database=tmp_path / "db", texts=texts, keep="longest")
    expected = expected_ids(
        [*before, *after],
        lambda record: 0 if record["id"] in texts else 1 / (1 + record["size"]) + 1,
        0.8,
    )
    assert kept == [key for key in expected if key not in texts]


@pytest.mark.parametrize(
    "texts", [{}, {"a": window(1)}, {"a": None}, lambda _: None], ids=["none", "wrong", "None", "f"]
)
def test_unknown_texts_and_others_than_were_stored_leave_the_estimate(tmp_path, texts):
    records = [{"id": f"b{start}", "text": window(start)} for start in range(1, 12)]
    results = []
    for name, given in (("plain", None), ("known", texts)):
        removed, path = [], tmp_path / name
        list(fpdb.dedupe([{"id": "a", "text": window(0)}], database=path))
        list(fpdb.dedupe(records, database=path, texts=given, on_removed=removed.append))
        results.append(removed)
    assert results[0] == results[1]
    assert any(each.estimated for each in removed)
    exact = []
    list(fpdb.dedupe([{"id": "a", "text": window(0)}], database=tmp_path / "exact"))
    options = {"texts": {"a": window(0)}, "on_removed": exact.append}
    list(fpdb.dedupe(records, database=tmp_path / "exact", **options))
    assert exact != results[0]


def test_texts_decide_where_a_record_has_more_candidates_than_are_compared_together(
    tmp_path, monkeypatch
):
    """Texts of one template, of which each has three to twelve words of its own."""
    dice = random.Random(8)
    records = [
        {"id": str(number), "text": " ".join(WORDS[:60] + dice.sample(WORDS, dice.randint(3, 12)))}
        for number in range(60)
    ]
    texts = {record["id"]: record["text"] for record in records[:30]}
    expected = expected_ids(records, lambda _: 0, 0.8, lose=0.1)
    for most in (1000, 3):
        path = tmp_path / str(most)
        list(fpdb.dedupe(records[:30], database=path, lose=0.1))
        with monkeypatch.context() as patch:
            patch.setattr("fpdb.documents.lookup.most_compared", lambda most=most: most)
            kept = list(fpdb.dedupe(records[30:], database=path, texts=texts, lose=0.1))
        assert [each["id"] for each in kept] == [key for key in expected if key not in texts]
    assert 0 < len(kept) < 30


def test_few_texts_are_held_at_once(tmp_path, monkeypatch):
    before, after = earlier_and_later(7)
    texts = {record["id"]: record["text"] for record in before}
    results, sizes = [], []
    for most in (decide._CHARACTERS, 2000):
        path = tmp_path / str(most)
        path.mkdir()
        delivered(before, "records", path, database=path / "db")
        look_up = decide.Decider._look_up

        def noted(self, blocks, look_up=look_up):
            sizes.append(len(blocks))
            return look_up(self, blocks)

        with monkeypatch.context() as patch:
            patch.setattr(decide, "_CHARACTERS", most)
            patch.setattr(decide.Decider, "_look_up", noted)
            patch.setattr(in_memory, "_TOGETHER", 10)
            kept = delivered(after, "records", path, database=path / "db", texts=texts)
            results.append(kept)
    assert results[0] == results[1]
    assert sizes[0] > 1
    assert len(sizes) > 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"texts": {}}, "found texts of documents, but no database"),
        ({"texts": {}, "database": "db", "k": 3}, "found texts {}, but fingerprints are compared"),
        ({"texts": 3, "database": "db"}, "found texts=3, expected a function"),
    ],
)
def test_texts_that_nothing_needs_are_refused(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fpdb.InputError, match=message) as caught:
        list(fpdb.dedupe([{"id": "a", "text": window(0)}], **options))
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_what_a_function_raises_ends_the_run_before_anything_is_stored(tmp_path):
    list(fpdb.dedupe([{"id": "a", "text": window(0)}], database=tmp_path / "db"))

    def text_of(key):
        raise ZeroDivisionError(key)

    with pytest.raises(ZeroDivisionError):
        delivered(
            [{"id": "b", "text": window(6)}, {"id": "c", "text": window(100)}],
            *("file", tmp_path),
            database=tmp_path / "db",
            texts=text_of,
        )
    assert not (tmp_path / "out.jsonl").exists()
    with fpdb.open(tmp_path / "db") as db:
        assert list(db) == ["a"]


def test_a_run_is_finished_with_texts_if_it_was_begun_with_them(tmp_path, monkeypatch, jsonl):
    list(fpdb.dedupe([{"id": "a", "text": window(0)}], database=tmp_path / "db"))
    source = jsonl("in.jsonl", [{"id": f"b{start}", "text": window(start)} for start in (6, 7, 8)])
    options = {"output": tmp_path / "out.jsonl", "database": tmp_path / "db"}

    def fail(*_, **__):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "finish", fail)
        with pytest.raises(ZeroDivisionError):
            fpdb.dedupe(source, texts={"a": window(0)}, **options)
    with pytest.raises(fpdb.InputError, match="a run that began to write its outputs"):
        fpdb.dedupe(source, **options)
    fpdb.dedupe(source, texts={"a": window(0)}, **options)
    with fpdb.open(tmp_path / "db") as db:
        assert sorted(db) == ["a", "b7"]
