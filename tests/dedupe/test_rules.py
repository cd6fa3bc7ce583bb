"""Which records may go for others, and which of them stay: by the definition, and by hand."""

import json

import numpy as np
import pyarrow
import pytest
from edited import WEB, expected_ids, records_of, window
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import kernels
from fpdb.joins.preference import Preference
from fpdb.joins.rules import own_shares


def by_file(records, folder, **options):
    source, out = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    fpdb.dedupe(source, out, **options)
    return [json.loads(line)["id"] for line in out.read_text().splitlines()]


def by_records(records, _, **options):
    return [record["id"] for record in fpdb.dedupe(records, **options)]


def by_table(records, _, **options):
    named = [record | {"lang": json.dumps(record["lang"])} for record in records]
    named = [
        record | {"lang": "1" if record["lang"] == "1.0" else record["lang"]} for record in named
    ]
    return fpdb.dedupe(pyarrow.Table.from_pylist(named), **options)["id"].to_pylist()


@pytest.mark.parametrize(
    ("deduped", "compiled"), [(by_file, True), (by_records, False), (by_table, True)]
)
@pytest.mark.parametrize(
    ("keep", "prefer"),
    [
        ("first", lambda record: 0),
        ("longest", lambda record: -len(record["text"])),
        ("newest:n", lambda record: -record["n"]),
        ("source:site=c,*,a", lambda record: ["c", "b", None, "a"].index(record["site"])),
        ("source:site=b", lambda record: {"b": 0, None: 2}.get(record["site"], 1)),
    ],
)
def test_what_stays_is_what_the_rules_keep(tmp_path, monkeypatch, deduped, compiled, keep, prefer):
    monkeypatch.setattr(kernels, "enabled", compiled and kernels.enabled)
    counts = set()
    for seed, lose, within in [
        (1, 0.0, None),
        (2, 0.1, "lang"),
        (3, None, "lang"),
        (4, None, None),
    ]:
        records = records_of(seed)
        rule = {"similarity": 0.5, "lose": lose, "within": within}
        found = deduped(records, tmp_path, keep=keep, **rule)
        assert found == expected_ids(records, prefer, **rule)
        counts.add(len(found))
    assert len(counts) > 2


@given(seed=st.integers(0, 1 << 30), keep=st.sampled_from(["first", "longest", "newest:n"]))
@settings(max_examples=examples(30), deadline=None)
def test_of_what_may_lose_nothing_each_shingle_stays(tmp_path_factory, seed, keep):
    records, removed = records_of(seed, 60), []
    options = {"keep": keep, "similarity": 0.5, "lose": 0.0, "on_removed": removed.append}
    by_file(records, tmp_path_factory.mktemp("lose"), **options)
    texts = {record["id"]: set(WEB.shingles(record["text"]).tolist()) for record in records}
    for each in removed:
        assert texts[each.key] <= texts[each.kept_key]
        assert each.own_share == 0


@pytest.mark.parametrize(
    ("texts", "lose", "stay"),
    [
        # Of 58 shingles, a text that is moved by three words has three of its own.
        ([window(0), window(3)], None, [0]),
        ([window(0), window(3)], 3 / 58, [0]),
        ([window(0), window(3)], 0.0517, [0, 1]),
        ([window(0), window(3)], 1, [0]),
        # A part has none, but the whole has, of 58 ten.
        ([window(0), window(0, 50)], 0, [0]),
        ([window(0, 50), window(0)], 0, [0, 1]),
        ([window(0, 50), window(0)], 10 / 58, [0]),
        # What is less similar stays, even if it is contained.
        ([window(0), window(0, 40)], 0, [0, 1]),
        # A few words have equal ones, or nothing.
        (["kites nest", "kites nest", "kites"], 0, [0, 2]),
        ([window(0), window(0)], 0, [0]),
    ],
)
@pytest.mark.parametrize("deduped", [by_file, by_records])
def test_what_a_record_may_lose(tmp_path, deduped, texts, lose, stay):
    records = [{"id": number, "text": text} for number, text in enumerate(texts)]
    assert deduped(records, tmp_path, lose=lose) == stay


def test_the_longest_stays_for_its_parts(tmp_path):
    records = [{"id": number, "text": window(0, 50 + 2 * number)} for number in range(5)]
    assert by_file(records, tmp_path, lose=0) == [0, 1, 2, 3, 4]
    assert by_file(records, tmp_path, lose=0, keep="longest") == [4]


def test_the_summary_of_what_loses_nothing(tmp_path):
    records = [{"id": number, "text": window(0, 60 - number)} for number in range(5)]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    counts = fpdb.dedupe(source, out, lose=0)
    assert (counts.removed, counts.own_share) == (4, 0.0)


VALUES = [{}, {"v": None}, {"v": ""}, {"v": 1}, {"v": 1.0}, {"v": "1"}, {"v": True}, {"v": [1]}]
VALUES += [{"v": "x"}, {"v": {"b": 1, "a": 2}}, {"v": {"a": 2, "b": 1}}, {"v": 2**70}]


@pytest.mark.parametrize("deduped", [by_file, by_records])
@pytest.mark.parametrize("text", [window(0), "kites nest", ""])
def test_values_are_equal_as_in_json_and_a_missing_one_is_a_value(tmp_path, deduped, text):
    records = [{"id": number, "text": text} | value for number, value in enumerate(VALUES)]
    stay = [0, 3, 5, 6, 7, 8, 9, 11] if text else list(range(12))
    assert deduped(records, tmp_path, within="v") == stay


def test_fingerprints_are_compared_within_a_value_too(tmp_path):
    rows = [("a", "00", "x"), ("b", "01", "x"), ("c", "01", "y"), ("d", "03", "y"), ("e", "07", "")]
    source, out = tmp_path / "in.tsv", tmp_path / "out.tsv"
    source.write_text("\n".join("\t".join(row) for row in [("id", "print", "v"), *rows]))
    reading = fpdb.Reading(fingerprint_field="print")
    for within, stay in ((None, ["a", "d"]), ("v", ["a", "c", "e"])):
        fpdb.dedupe(source, out, reading, k=1, within=within)
        assert [line.split("\t")[0] for line in out.read_text().splitlines()[1:]] == stay


def test_copies_are_counted_within_a_value(tmp_path):
    """One that goes for an edited one isn't a copy of an equal one of another value."""
    rows = [(window(1), "x"), (window(0), "x"), (window(0), "y"), (window(0), "y")]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = (json.dumps({"id": n, "text": text, "v": v}) for n, (text, v) in enumerate(rows))
    source.write_text("\n".join(lines))
    counts = fpdb.dedupe(source, out, within="v")
    assert (counts.kept, counts.removed, counts.copies) == (2, 2, 1)
    counts = fpdb.dedupe(source, out)
    assert (counts.kept, counts.removed, counts.copies) == (1, 3, 2)


@pytest.mark.parametrize(
    ("order", "stay"),
    [
        *(("a,b", "a1"), ("b,a", "b"), ("z,b", "b"), ("*,a,b", "c"), ("a,*,c", "a1")),
        *(("3,*", "3"), ("z,*,c", "b"), ("true,3", "t"), ("b,*,a", "b")),
    ],
)
@pytest.mark.parametrize("deduped", [by_file, by_records])
def test_the_record_of_the_first_source_stays(tmp_path, deduped, order, stay):
    sites = {"-": None, "c": "c", "b": "b", "a1": "a", "a2": "a", "3": 3, "t": True}
    records = [{"id": key, "text": window(0), "site": site} for key, site in sites.items()]
    assert deduped(records, tmp_path, keep=f"source:site={order}") == [stay]


def test_the_document_of_the_first_source_represents_a_cluster(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        for key, site in (("a", "x"), ("b", None), ("c", "y"), ("d", "x"), ("e", "y")):
            db.add(key, window(0), {"site": site} if site else None)
        found = [
            (each.representative, each.duplicates) for each in db.clusters(keep="source:site=y,*")
        ]
        assert found == [("c", ("a", "b", "d", "e"))]
        found = [
            (each.representative, each.duplicates) for each in db.clusters(keep="source:site=*,y")
        ]
        assert found == [("a", ("b", "c", "d", "e"))]
        with pytest.raises(fpdb.InputError, match="no document of a cluster has a value in 'host'"):
            db.delete_duplicates(keep="source:host=y,*")
        db.delete_duplicates(keep="source:site=z,y")
        assert list(db) == ["c"]


def test_sources_that_nothing_is_from_are_announced(tmp_path, caplog):
    records = [{"id": site, "text": window(0), "site": site} for site in ("x", "y")]
    said = "has 'z' in 'site'; others have 'y'"
    assert by_records(records, tmp_path, keep="source:site=z,x,*") == ["x"]
    with fpdb.create(tmp_path / "db") as db:
        for record in records:
            db.add(record["id"], record["text"], record)
        assert [each.representative for each in db.clusters(keep="source:site=z,x")] == ["x"]
        db.add("c", "a text that resembles none", {"site": "z"})
        list(db.clusters(keep="source:site=z,x"))
    assert [record.getMessage() for record in caplog.records] == [
        f"no record {said}",
        *[f"no document of a cluster {said}"] * 2,
    ]


def test_what_only_an_estimate_shows_loses_nothing_beside_a_database(tmp_path):
    path, removed = tmp_path / "db", []
    list(fpdb.dedupe([{"id": "a", "text": window(0)}, {"id": "s", "text": "kites"}], database=path))
    records = [
        {"id": key, "text": text}
        for key, text in {"b": window(0), "c": window(1), "d": window(0, 59), "t": "kites"}.items()
    ]
    # The third is a part of the stored document, and of none that was delivered now.
    kept = list(fpdb.dedupe(records, database=path, lose=0, on_removed=removed.append))
    assert [each["id"] for each in kept] == ["c", "d"]
    assert [(each.key, each.kept_key, each.own_share, each.estimated) for each in removed] == [
        ("b", "a", 0.0, False),
        ("t", "s", 0.0, False),
    ]
    with fpdb.open(path) as db:
        assert sorted(db) == ["a", "c", "d", "s"]
    assert list(fpdb.dedupe([{"id": "f", "text": window(2)}], database=path)) == []


@pytest.mark.parametrize(
    ("options", "message", "parameter"),
    [
        ({"lose": -0.1}, "found lose -0.1, expected a share from 0 to 1", ""),
        ({"lose": "much"}, "found lose 'much', expected a share from 0 to 1", ""),
        ({"lose": 0.1, "k": 3}, "found lose 0.1, but fingerprints are compared", "lose"),
        ({"within": "nowhere"}, "no record has a value in 'nowhere'", "within"),
        ({"keep": "source:nowhere=a"}, "no record has a value in 'nowhere'", ""),
        ({"source_field": "nowhere"}, "no record has a value in 'nowhere'", "source_field"),
        ({"source_field": "nowhere", "most": 1}, "no record has a value", "source_field"),
    ],
)
def test_rules_that_nothing_fits_are_refused(tmp_path, options, message, parameter):
    with pytest.raises(fpdb.InputError, match=message) as caught:
        by_file([{"id": 1, "text": window(0)}], tmp_path, **options)
    assert caught.value.hint
    assert caught.value.parameter == parameter
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_database_knows_no_values_of_its_documents(tmp_path):
    records = [{"id": 1, "text": window(0), "lang": "en"}]
    with pytest.raises(fpdb.InputError, match="within 'lang' and a database") as caught:
        by_file(records, tmp_path, database=tmp_path / "db", within="lang")
    assert "database of their own" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    with fpdb.create(tmp_path / "bits", similarity=None, k=3) as db:
        with pytest.raises(fpdb.InputError, match="found lose 0, but fingerprints are compared"):
            by_file(records, tmp_path, database=db, lose=0)
        assert len(db) == 0


@pytest.mark.parametrize(
    "keep",
    [
        *("source", "source:", "source:site", "source:site=", "source:=a", "source:site=a,a"),
        *("source:site=*", "source:site=a,,b", "source:site=a,*,*", "first:n", "longest:"),
        *("newest", "newest:", "site", None),
    ],
)
def test_a_preference_that_is_none_is_refused(keep):
    with pytest.raises(fpdb.InputError, match=r"newest:FIELD or source:FIELD=A,B,\*") as caught:
        Preference.of(keep)
    assert "source:site=a,b" in caught.value.hint


def test_own_shares_follow_from_a_similarity_and_two_sizes():
    """Of 50 and 60 shingles with 44 in common, 6 and 16 are their own; no estimate says less."""
    shares = np.array([44 / 66, 44 / 66, 0.95, 1.0, 0.0])
    sizes, others = np.array([50, 60, 50, 9, 4], np.int32), np.array([60, 50, 60, 9, 5], np.int32)
    assert own_shares(shares, sizes, others).tolist() == [6 / 50, 16 / 60, 0.0, 0.0, 1.0]
