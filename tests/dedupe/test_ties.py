"""Which of several kept records a removed one is said to resemble, and counts, by hand."""

import json

import pytest

import fpdb
from fpdb.dedupe import decide

WORDS = [f"word{number}" for number in range(100)]
BITS = {"similarity": None, "k": 2}


def window(start):
    """Sixty words in a row: those of N later ones have (58 - N) / (58 + N) of the shingles."""
    return " ".join(WORDS[start : start + 60])


@pytest.fixture
def removed(tmp_path):
    """Deduplicate fingerprints by their keys, some of them in a database; return the removed."""

    def run(numbers, before=None, **options):
        reading = fpdb.Reading(fingerprint_field="print")
        source = tmp_path / "in.tsv"
        rows = [f"{key}\t{number:016x}\t{n}" for n, (key, number) in enumerate(numbers.items())]
        source.write_text("\n".join(["id\tprint\tn", *rows]))
        if before:
            options["database"] = tmp_path / "db"
            with fpdb.create(options["database"], **BITS) as db:
                db.add_fingerprints(list(before), list(before.values()))
        else:
            options["k"] = 2
        lines = tmp_path / "removed.jsonl"
        fpdb.dedupe(source, tmp_path / "out.tsv", reading, removed=lines, **options)
        plain = [json.loads(line) for line in lines.read_text().splitlines()]
        return [(each["key"], each["kept_key"], each["distance"]) for each in plain]

    return run


def test_of_kept_records_the_nearest_is_named_and_of_equally_near_ones_the_first_key(removed):
    # Each two of the first three differ in four bits.
    numbers = {"c": 0b11, "a": 0b1100, "b": 0b110000, "x": 0, "y": 0b10, "z": 0b11100}
    assert removed(numbers) == [("x", "a", 2), ("y", "c", 1), ("z", "a", 1)]


@pytest.mark.parametrize(
    ("stored", "kept", "named"),
    [
        (("a", 0b11), ("b", 0b1100), ("a", 2)),
        (("b", 0b11), ("a", 0b1100), ("a", 2)),
        (("b", 0b1), ("a", 0b110), ("b", 1)),
        (("a", 0b11), ("b", 0b100), ("b", 1)),
    ],
)
def test_a_stored_document_is_named_if_it_is_nearer_or_its_key_is_first(
    removed, stored, kept, named
):
    assert removed({kept[0]: kept[1], "x": 0}, dict([stored])) == [("x", *named)]


def test_of_a_stored_and_a_kept_text_the_more_similar_is_named(tmp_path, jsonl):
    path = tmp_path / "db"
    with fpdb.create(path) as db:
        db.add("stored", window(0))
    # 48 of 68 shingles are too few, so `kept` stays; 55 of 61, 54 of 62 and 53 of 63 aren't.
    records = [
        {"id": "kept", "text": window(10)},
        {"id": "near stored", "text": window(3)},
        {"id": "near kept", "text": window(13)},
        {"id": "as stored", "text": window(0)},
        {"id": "as kept", "text": window(10)},
    ]
    lines = tmp_path / "removed.jsonl"
    counts = fpdb.dedupe(
        jsonl("in.jsonl", records), tmp_path / "out.jsonl", database=path, removed=lines
    )
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(row["key"], row["kept_key"], row["distance"] == 0) for row in rows] == [
        ("near stored", "stored", False),
        ("near kept", "kept", False),
        ("as stored", "stored", True),
        ("as kept", "kept", True),
    ]
    recipe = fpdb.recipe("web")
    for row, start, other in zip(rows, (3, 13, 0, 10), (0, 10, 0, 10), strict=True):
        one, two = recipe.batch([window(start), window(other)], sketches=True).sketches
        apart = sum(a != b for a, b in zip(one.tobytes().hex(), two.tobytes().hex(), strict=True))
        assert row["similarity"] == round(1 - apart / 240, 4)
    # The database doesn't know how many shingles a document has; of 58, a copy moved by three words
    # has three of its own.
    assert [row["own_share"] for row in rows] == [None, round(3 / 58, 4), 0.0, 0.0]
    assert counts.own_share == 3 / (58 + 58)
    assert (counts.kept, counts.removed, counts.copies) == (1, 4, 2)


@pytest.mark.parametrize("together", [1, 1 << 26])
def test_copies_and_replaced_documents_are_counted_in_every_portion(
    tmp_path, jsonl, monkeypatch, together
):
    """Each file is a portion of its own, or all are one."""
    monkeypatch.setattr(decide, "_CHARACTERS", together)
    monkeypatch.setattr(decide, "GATHERED", 2)
    texts = {name: " ".join(f"{name}{n}" for n in range(40)) for name in "abcdefgh"}
    path = tmp_path / "db"
    with fpdb.create(path) as db:
        for key in "abc":
            db.add(key, texts[key])
    files = [
        [("new", "d"), ("copy", "a"), ("again", "d")],
        [("b", "e"), ("other", "f"), ("more", "f"), ("most", "f")],
        [("a", "a"), ("c", "g"), ("late", "b"), ("last", "h")],
    ]
    sources = [
        jsonl(f"{n}.jsonl", [{"id": key, "text": texts[name]} for key, name in rows])
        for n, rows in enumerate(files)
    ]
    counts = fpdb.dedupe(sources, tmp_path / "out.jsonl", database=path, same_key="replace")
    kept = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert kept == ["new", "b", "other", "c", "last"]
    # `copy`, `a` and `late` have the text of a document, the other three that of a record.
    assert (counts.removed, counts.copies) == (6, 6)
    assert (counts.delivered, counts.replaced) == (3, 2)
    with fpdb.open(path, readonly=True) as db:
        recipe = fpdb.recipe("web")
        digests = {document.key: document.digest for document in db.scan()}
    texts_of = {"a": "a", "b": "e", "c": "g", "new": "d", "other": "f", "last": "h"}
    assert digests == {key: recipe.digest(texts[name]) for key, name in texts_of.items()}


@pytest.mark.parametrize("keep", ["first", "longest", "newest:date"])
def test_of_equally_good_records_the_first_stays_and_one_without_a_date_after_all(
    tmp_path, jsonl, keep
):
    dates = {"a": None, "b": "2026-05-02", "c": "2026-05-02", "d": "2026-05-01"}
    lengths = {"a": "", "b": "!", "c": "!!", "d": "!!"}
    records = [
        {"id": key, "text": window(0) + lengths[key]} | ({"date": date} if date else {})
        for key, date in dates.items()
    ]
    counts = fpdb.dedupe(jsonl("in.jsonl", records), tmp_path / "out.jsonl", keep=keep)
    [kept] = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(kept)["id"] == {"first": "a", "longest": "c"}.get(keep, "b")
    # Only the last two have the same text.
    assert (counts.kept, counts.removed, counts.copies) == (1, 3, 1)


@pytest.mark.parametrize("keep", ["first", "longest", "newest:date"])
def test_of_no_records_none_stays(tmp_path, jsonl, keep):
    counts = fpdb.dedupe(jsonl("in.jsonl", []), tmp_path / "out.jsonl", keep=keep)
    assert (counts.read, counts.kept, (tmp_path / "out.jsonl").read_text()) == (0, 0, "")
