"""What is removed: by the definition in a few lines, for every order of preference."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.fingerprint.sketches import standard_error

WORDS = " ".join(f"word{number}" for number in range(2000))


def brute_force(records, similar, prefer=lambda record: 0, before=()):
    """Consider the records in the order of preference: drop what is similar to a kept one."""
    kept, dropped = list(before), {}
    for record in sorted(records, key=lambda record: -prefer(record)):
        nearest = max(kept, key=lambda other: similar(record, other), default=None)
        if nearest is not None and similar(record, nearest):
            dropped[record["id"]] = nearest["id"]
        else:
            kept.append(record)
    return [record for record in records if record["id"] not in dropped], dropped


def by_shingles(records, least):
    """Compare texts by their shingles; the similarity of those far above the limit is estimated."""
    recipe = fpdb.recipe("web")
    texts = [record["text"] for record in records]
    sketches, sets = recipe.batch(texts, sketches=True).sketches, recipe.shingles_many(texts)
    known = {
        record["id"]: (sketch, set(shingles.tolist()))
        for record, sketch, shingles in zip(records, sketches, sets, strict=True)
    }
    error = standard_error(least)

    def similar(one, other):
        (sketch, shingles), (sketch_of_other, others) = known[one["id"]], known[other["id"]]
        if one["text"] == other["text"]:
            return 1.0
        estimate = fpdb.sketch_jaccard(sketch, sketch_of_other)
        exact = len(shingles & others) / len(shingles | others)
        return 0.0 if exact < least else estimate if estimate >= least + 4 * error else exact

    return similar


def kept_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.process)])
@pytest.mark.parametrize(
    ("keep", "prefer"),
    [
        ("first", lambda record: 0),
        ("longest", lambda record: len(record["text"])),
        ("newest:n", lambda record: record["n"]),
    ],
)
def test_what_stays_is_what_the_definition_says(tmp_path, corpus, jsonl, keep, prefer, jobs):
    records = corpus(160)
    out, removed = tmp_path / "out.jsonl", tmp_path / "removed.jsonl"
    counts = fpdb.dedupe(jsonl("in.jsonl", records), out, keep=keep, removed=removed, jobs=jobs)
    similar = by_shingles(records, 0.8)
    kept, dropped = brute_force(records, similar, prefer)
    assert kept_in(out) == kept
    assert len(dropped) > 30
    rows = [json.loads(line) for line in removed.read_text().splitlines()]
    named = {record["id"]: record for record in records}
    texts = fpdb.recipe("web").shingles_many(record["text"] for record in records)
    shingles = dict(zip(named, (set(some.tolist()) for some in texts), strict=True))
    lost = 0
    assert {row["key"] for row in rows} == dropped.keys()
    for row in rows:
        own, other = named[row["key"]], named[row["kept_key"]]
        assert similar(own, other) == pytest.approx(row["similarity"], abs=1e-4)
        own_shingles = shingles[row["key"]] - shingles[row["kept_key"]]
        expected = len(own_shingles) / len(shingles[row["key"]])
        error = 1e-4 if row["similarity"] < 0.9 or row["similarity"] == 1 else 0.04
        assert row["own_share"] == pytest.approx(expected, abs=error)
        lost += len(own_shingles)
        assert row["source"].endswith(f"in.jsonl:{own['n'] + 1}")
        assert row["kept_source"].endswith(f"in.jsonl:{other['n'] + 1}")
    assert (counts.read, counts.kept, counts.removed) == (160, len(kept), len(dropped))
    texts = {record["text"] for record in kept}
    gone = [record["text"] for record in records if record["id"] in dropped]
    assert counts.copies == len(gone) - len(set(gone) - texts) > 0
    total = sum(len(shingles[key]) for key in dropped)
    assert counts.own_share == pytest.approx(lost / total, abs=0.01)
    assert counts.own_share > 0.01
    unlisted = fpdb.dedupe(tmp_path / "in.jsonl", tmp_path / "again.jsonl", keep=keep)
    assert unlisted.own_share == pytest.approx(lost / total, abs=0.01)


@given(
    numbers=st.lists(st.sampled_from([0, 1, 3, 7, 0xFF, 0xFF0, 0xFFFF, 1 << 63]), max_size=30),
    k=st.integers(0, 5),
    keep=st.sampled_from(["first", "newest:n"]),
)
@settings(max_examples=examples(100), deadline=None)
def test_fingerprints_within_k_of_a_kept_one_are_removed(tmp_path_factory, numbers, k, keep):
    folder = tmp_path_factory.mktemp("bits")
    rows = [f"{place}\t{number:016x}\t{place % 3}" for place, number in enumerate(numbers)]
    source = folder / "in.tsv"
    source.write_text("\n".join(["id\tprint\tn", *rows]))
    reading = fpdb.Reading(fingerprint_field="print")
    fpdb.dedupe(source, folder / "out.tsv", reading, k=k, keep=keep)
    records = [{"id": place, "bits": number} for place, number in enumerate(numbers)]
    kept, _ = brute_force(
        records,
        lambda one, other: (one["bits"] ^ other["bits"]).bit_count() <= k,
        lambda record: record["id"] % 3 if keep != "first" else 0,
    )
    lines = (folder / "out.tsv").read_text().split("\n")
    assert [line for line in lines[1:] if line] == [rows[record["id"]] for record in kept]


def test_only_what_is_equal_is_as_similar_as_can_be():
    """Texts that differ in one word often have the same sketch, and so an estimate of 1."""
    texts = [f"{number} {WORDS}" for number in range(9)]
    records = [{"id": place, "text": text} for place, text in enumerate([*texts, *texts])]
    assert list(fpdb.dedupe(records, similarity=1.0)) == records[:9]


def test_what_resembles_a_document_by_an_equal_sketch_is_estimated(tmp_path):
    """The database has no texts, and so can't show that one differs."""
    texts, removed = [f"{number} {WORDS}" for number in range(9)], []
    delivered = [{"id": f"a{place}", "text": text} for place, text in enumerate(texts[:3])]
    list(fpdb.dedupe(delivered, database=tmp_path / "db", similarity=1.0))
    records = [{"id": f"b{place}", "text": text} for place, text in enumerate(texts)]
    list(fpdb.dedupe(records, database=tmp_path / "db", on_removed=removed.append))
    assert {each.similarity for each in removed} == {1.0}
    assert [each.key for each in removed if not each.estimated] == ["b0", "b1", "b2"]
    assert len(removed) > 3


def test_a_database_gets_the_passages_of_what_stays(tmp_path, corpus, jsonl):
    records = corpus(60)
    records.append({"id": "short", "text": "few words", "n": 60})
    with fpdb.create(tmp_path / "a.fpdb", passages=True) as database:
        fpdb.dedupe(jsonl("in.jsonl", records), tmp_path / "out.jsonl", database=database)
        kept = kept_in(tmp_path / "out.jsonl")
        with fpdb.create(tmp_path / "b.fpdb", passages=True) as other:
            list(other.add_many(fpdb.Document(each["id"], each["text"]) for each in kept))
            assert set(database.passage_pairs(least=0)) == set(other.passage_pairs(least=0))
            for record in records[::7]:
                found, expected = (each.passages(record["text"]) for each in (database, other))
                assert [match[:5] for match in found] == [match[:5] for match in expected]
                assert found or len(record["text"]) < 20
        assert list(database.check()) == []


def test_what_an_earlier_delivery_had_is_removed(tmp_path, corpus, jsonl):
    records = corpus(400, edited=0.6)
    first, second = records[:200], records[200:]
    database = tmp_path / "corpus.fpdb"
    kept = {}
    for name, some in (("may", first), ("june", second)):
        out = tmp_path / f"{name}-clean.jsonl"
        fpdb.dedupe(jsonl(f"{name}.jsonl", some), out, database=database)
        kept[name] = kept_in(out)
    fpdb.dedupe([tmp_path / "may.jsonl", tmp_path / "june.jsonl"], tmp_path / "all.jsonl")
    assert kept["may"] + kept["june"] == kept_in(tmp_path / "all.jsonl")
    with fpdb.open(database) as db:
        assert len(db) == len(kept["may"]) + len(kept["june"])


def test_short_and_empty_texts_are_kept_and_equal_short_ones_removed(tmp_path, jsonl):
    texts = ["", "", " ", "kites nest", "kites nest", "!", "谢谢", "谢谢", "42", "42", "!", "-42"]
    records = [{"id": place, "text": text} for place, text in enumerate(texts)]
    counts = fpdb.dedupe(jsonl("in.jsonl", records), tmp_path / "out.jsonl")
    with fpdb.create(tmp_path / "plain.fpdb") as db:
        added = [db.add(str(each["id"]), each["text"], skip_duplicates=True) for each in records]
    expected = [
        record for record, one in zip(records, added, strict=True) if one.status != "duplicate"
    ]
    assert kept_in(tmp_path / "out.jsonl") == expected
    assert [each["id"] for each in expected] == [0, 1, 2, 3, 5, 6, 8, 11]
    assert (counts.short, counts.copies) == (8, 4)


def test_records_of_one_key_replace_nothing(tmp_path, corpus, jsonl):
    records = [each | {"id": "same"} for each in corpus(300, edited=0.3)]
    plain = [each | {"id": str(each["n"])} for each in records]
    database = tmp_path / "corpus.fpdb"
    removed = []
    fpdb.dedupe(
        jsonl("same.jsonl", records),
        tmp_path / "out.jsonl",
        database=database,
        on_removed=removed.append,
    )
    fpdb.dedupe(jsonl("plain.jsonl", plain), tmp_path / "expected.jsonl")
    found = [each["n"] for each in kept_in(tmp_path / "out.jsonl")]
    assert found == [each["n"] for each in kept_in(tmp_path / "expected.jsonl")]
    assert {(each.key, each.kept_key) for each in removed} == {("same", "same")}
    with fpdb.open(database) as db:
        assert len(db) == len(found)
        assert "same" in db


def test_records_without_a_key_go_by_their_place(tmp_path, jsonl, corpus):
    records = [{"text": each["text"]} for each in corpus(60)]
    removed = []
    path = jsonl("in.jsonl", records)
    fpdb.dedupe(path, tmp_path / "out.jsonl", on_removed=removed.append)
    assert removed
    assert all(each.key == each.source for each in removed)
    assert all(each.kept_key.startswith(f"{path}:") for each in removed)


@pytest.mark.parametrize(
    "value", ["2026-11-23", "2026-11-23 10:00", "2026-11-22T10:00:00+02:00", 1e9, "17", None]
)
def test_dates_and_numbers_say_what_is_newest(tmp_path, jsonl, corpus, value):
    text = corpus(1)[0]["text"]
    records = [{"id": "old", "text": text, "date": value}, {"id": "new", "text": text}]
    records[1]["date"] = 2e9 if isinstance(value, float) or value == "17" else "2026-11-24"
    fpdb.dedupe(jsonl("in.jsonl", records), tmp_path / "out.jsonl", keep="newest:date")
    assert [each["id"] for each in kept_in(tmp_path / "out.jsonl")] == ["new"]


def test_a_date_that_is_none_makes_a_record_bad(tmp_path, jsonl, corpus):
    records = corpus(3, edited=0)
    records[0]["date"], records[1]["date"] = "2026-11-23", "last Tuesday"
    bad = []
    counts = fpdb.dedupe(
        jsonl("in.jsonl", records), tmp_path / "out.jsonl", keep="newest:date", on_bad=bad.append
    )
    assert counts.bad == 1
    assert "last Tuesday" in bad[0].reason
    assert kept_in(tmp_path / "out.jsonl") == records


def test_the_time_zone_of_dates_without_one_is_utc(tmp_path, jsonl, corpus):
    text = corpus(1)[0]["text"]
    dates = ["2026-11-23T12:00:00", "2026-11-23T12:30:00+01:00"]
    records = [{"id": date, "text": text, "date": date} for date in dates]
    fpdb.dedupe(jsonl("in.jsonl", records), tmp_path / "out.jsonl", keep="newest:date")
    assert [each["id"] for each in kept_in(tmp_path / "out.jsonl")] == dates[:1]


def test_the_index_isnt_left_behind(tmp_path, corpus, jsonl):
    path = jsonl("in.jsonl", corpus(20))
    fpdb.dedupe(path, tmp_path / "out.jsonl")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_keys_that_are_numbers_stay_numbers(tmp_path, jsonl, corpus):
    records = [each | {"id": 2**63 - each["n"]} for each in corpus(40)]
    rows = []
    fpdb.dedupe(
        [jsonl("in.jsonl", records), jsonl("again.jsonl", records[:5])],
        tmp_path / "out.jsonl",
        database=tmp_path / "corpus.fpdb",
        on_removed=rows.append,
    )
    assert {type(each) for row in rows for each in (row.key, row.kept_key)} == {int}
    assert {row.key for row in rows} >= {2**63 - n for n in range(5)}


def test_a_field_that_no_record_has_is_an_error(tmp_path, jsonl, corpus):
    with pytest.raises(
        fpdb.InputError, match="no record has a date or a number in 'dtae'"
    ) as caught:
        fpdb.dedupe(jsonl("in.jsonl", corpus(9)), tmp_path / "out.jsonl", keep="newest:dtae")
    assert caught.value.hint
