"""fpdb query: what can be asked for, and how answers look."""

import json
from decimal import ROUND_HALF_UP, Decimal

import pytest
from numbered import text_of

import fpdb
from fpdb.documents import parts as documents_parts


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where) as database:
        for number in range(5):
            database.add(f"u{number}", text_of(number), {"n": number})
        database.add("brief", "far too short")
    return where


@pytest.fixture
def ready(tmp_path):
    """A database of fingerprints at known distances from zero."""
    where = tmp_path / "ready.fpdb"
    with fpdb.create(where, similarity=None) as database:
        database.add_fingerprints([f"d{n}" for n in range(8)], [(1 << n) - 1 for n in range(8)])
    return where


def test_texts_are_named_by_their_number(run, path):
    done = run("query", path, "--text", text_of(3), "-t", text_of(1), "-t", text_of(77))
    assert (done.code, done.err) == (0, "")
    assert done.rows == [["text", "u3", "1.00"], ["text:2", "u1", "1.00"]]


def test_fingerprints_are_named_by_their_digits(run, ready):
    done = run("query", ready, "--fingerprint", "0", "--fingerprint", "0x7f", "-k", 1)
    assert done.rows == [
        ["0", "d0", "0"],
        ["0", "d1", "1"],
        ["0x7f", "d7", "0"],
        ["0x7f", "d6", "1"],
    ]
    first = run("query", ready, "--fingerprint", "0", "--limit", 2).rows
    assert [row[1] for row in first] == ["d0", "d1"]
    decimal = run("query", ready, "--fingerprint", "127", "--base", "decimal", "-k", 0)
    assert decimal.rows == [["127", "d7", "0"]]


def test_the_nearest_have_their_percentage_of_equal_bits(run, ready, tmp_path):
    done = run("query", ready, "--fingerprint", "0", "--fingerprint", "f" * 16, "--nearest", 3)
    assert (done.code, done.err) == (0, "")
    assert done.rows == [
        ["0", "d0", "0", "100.00"],
        ["0", "d1", "1", "98.44"],
        ["0", "d2", "2", "96.88"],  # 96.875
        ["f" * 16, "d7", "57", "10.94"],
        ["f" * 16, "d6", "58", "9.38"],
        ["f" * 16, "d5", "59", "7.81"],
    ]
    listed = run("query", ready, "--fingerprint", "0", "--nearest", 2, "--json")
    assert json.loads(listed.out) == {
        "query": "0",
        "complete": True,
        "matches": [
            {"key": "d0", "id": 0, "distance": 0, "meta": None, "percent": 100.0},
            {"key": "d1", "id": 1, "distance": 1, "meta": None, "percent": 98.44},
        ],
    }
    written = tmp_path / "nearest.csv"
    run("query", ready, "--fingerprint", "0", "--nearest", 1, "-o", written)
    assert written.read_text() == "query,key,distance,percent,complete\n0,d0,0,100.0,True\n"


@pytest.mark.parametrize(
    "more", [("-k", 3), ("--limit", 3), ("--similarity", 0.9), ("--passages",)], ids=lambda o: o[0]
)
def test_the_nearest_have_no_other_limit(run, path, more):
    done = run("query", path, "--text", text_of(1), "--nearest", 3, *more)
    assert (done.code, done.out) == (2, "")
    assert more[0] in done.err or "--nearest N takes N at any distance" in done.err


def test_the_nearest_to_texts_and_files_in_a_database_of_similarity(run, path, tmp_path):
    with fpdb.open(path, readonly=True) as database:
        own = database.recipe.fingerprint(text_of(9))
        apart = {key: (database[key].fingerprint ^ own).bit_count() for key in ("u0", "u1", "u2")}
    file = tmp_path / "new.txt"
    file.write_text(text_of(9))
    done = run("query", path, file, "--text", text_of(9), "--nearest", 100)
    assert [row[0] for row in done.rows] == ["text"] * 5 + [str(file)] * 5
    assert [row[1:] for row in done.rows[:5]] == [row[1:] for row in done.rows[5:]]
    for _, key, distance, equal in done.rows:
        if key in apart:
            share = Decimal(64 - apart[key]) / 64 * 100
            rounded = share.quantize(Decimal("0.01"), ROUND_HALF_UP)
            assert (distance, equal) == (str(apart[key]), str(rounded))


@pytest.mark.parametrize("k", [22, 40, 64])
def test_a_query_has_any_k(run, ready, k):
    done = run("query", ready, "--fingerprint", "f" * 16, "-k", k)
    assert (done.code, done.err) == (0, "" if k > 40 else "no match\n")
    assert len(done.rows) == (8 if k == 64 else 0)
    assert run("query", ready, "--fingerprint", "0", "-k", 65).code == 3


def test_records_are_named_by_their_key_or_their_place(run, path, tmp_path):
    file = tmp_path / "pages.jsonl"
    records = [{"text": text_of(1)}, {"url": "mine", "text": text_of(2)}]
    file.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    done = run("query", path, file)
    assert [row[:2] for row in done.rows] == [[f"{file}:1", "u1"], ["mine", "u2"]]


def test_the_summary_has_the_share_of_questions_with_a_match(run, ready, path):
    rows = b"".join(b"%d\t%x\n" % (n, number) for n, number in enumerate([0, 1, 1 << 60, 1 << 40]))
    options = ["--format", "tsv", "--key-field", "1", "--fingerprint-field", "2", "-k", "0"]
    done = run("query", ready, *options, stdin=rows)
    assert done.err.startswith("queries 4, with a match 2 (50.0%), matches 2; ")
    # Several matches of one question count once.
    done = run("query", ready, *options[:-1], "1", stdin=b"0\t0\n")
    assert done.err.startswith("queries 1, with a match 1 (100.0%), matches 2; ")
    empty = run("query", path, stdin=b"").err
    assert empty.startswith("queries 0; ")
    assert empty.endswith("\nno match\n")


@pytest.mark.parametrize("base", ["decimal", "signed", "binary"])
def test_fingerprints_in_any_base(run, tmp_path, base):
    numbers = {"low": 5, "high": (1 << 64) - 2}
    rows = [f"{key}\t{fpdb.format_fingerprint(n, 64, base)}\n" for key, n in numbers.items()]
    file = tmp_path / "prints.tsv"
    file.write_text("".join(rows), "utf-8")
    fields = ["--key-field", "1", "--fingerprint-field", "2", "--base", base]
    assert run("load", tmp_path / "db", file, *fields, "--format", "tsv").code == 0
    with fpdb.open(tmp_path / "db") as database:
        assert {key: database[key].fingerprint for key in numbers} == numbers
    done = run("query", tmp_path / "db", file, *fields)
    assert [row[:3] for row in done.rows] == [["low", "low", "0"], ["high", "high", "0"]]
    digits = fpdb.format_fingerprint(numbers["high"] - 1, 64, base)
    done = run("query", tmp_path / "db", "--fingerprint", digits, "--base", base)
    assert done.rows[0][:3] == [digits, "high", "2"]


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_signed_numbers_have_the_width_of_their_database(run, tmp_path, bits):
    fpdb.create(tmp_path / "db", recipe=fpdb.recipe("web").with_bits(bits)).close()
    record = {"key": "minus", "fingerprint": -2}
    load = ["load", tmp_path / "db", "-", "--format", "jsonl", "--base", "signed"]
    assert run(*load, stdin=json.dumps(record).encode()).code == 0
    with fpdb.open(tmp_path / "db") as database:
        assert database["minus"].fingerprint == (1 << bits) - 2
    done = run("query", tmp_path / "db", "--fingerprint", "-1", "--base", "signed")
    assert done.rows[0][:3] == ["-1", "minus", "1"]


def test_all_kinds_of_questions_at_once_in_order(run, path, tmp_path):
    file = tmp_path / "page.txt"
    file.write_text(text_of(2), "utf-8")
    number = f"{fpdb.recipe('web').fingerprint(text_of(1)):016x}"
    stdin = json.dumps({"key": "last", "text": text_of(3)}).encode()
    done = run("query", path, file, "-", "-t", text_of(0), "--fingerprint", number, stdin=stdin)
    assert [row[:2] for row in done.rows] == [
        ["text", "u0"],
        [number, "u1"],
        [str(file), "u2"],
        ["last", "u3"],
    ]


def test_json_gives_one_object_for_each_question(run, path):
    done = run("query", path, "--json", "-t", text_of(3), "-t", text_of(77))
    first, second = map(json.loads, done.out.splitlines())
    assert first == {
        "query": "text",
        "complete": True,
        "matches": [
            {
                "key": "u3",
                "id": 3,
                "distance": 0,
                "similarity": 1.0,
                "meta": {"n": 3},
                "exact": True,
            }
        ],
    }
    assert second == {"query": "text:2", "complete": True, "matches": []}


def test_exit_code_says_whether_anything_matched(run, path):
    assert run("query", path, "-t", text_of(3)).code == 0
    assert run("query", path, "-t", text_of(3), "--exit-code").code == 0
    nothing = run("query", path, "-t", text_of(77), "--exit-code")
    assert (nothing.code, nothing.out) == (1, "")


def test_a_text_is_fingerprinted_once(run, path, monkeypatch):
    taken, batch = [], fpdb.Recipe.batch

    def counted(recipe, texts, **options):
        taken.extend(texts)
        return batch(recipe, texts, **options)

    monkeypatch.setattr(fpdb.Recipe, "batch", counted)
    for options in ([], ["-k", "3"], ["--similarity", "0.9"]):
        done = run("query", path, "-t", text_of(3), "-t", "brief", *options)
        assert done.rows[0][:2] == ["text", "u3"]
        assert "short texts: 1 " in done.err
    assert taken == [text_of(3), "brief"] * 3


def test_short_texts_find_equal_ones_only_and_that_is_said(run, path):
    done = run("query", path, "-t", "far too short", "-t", "far too shirt")
    assert done.rows == [["text", "brief", "1.00"]]
    assert done.err == "short texts: 2 (they match texts of the same words only)\n"
    assert run("query", path, "-t", "far too short", "-k", 3).rows == [["text", "brief", "0"]]


def test_bad_records_are_reported_and_skipped(run, path):
    stdin = "\n".join(
        [json.dumps({"key": "a", "text": text_of(1)}), "{no", json.dumps({"text": text_of(2)})]
    ).encode()
    done = run("query", path, stdin=stdin)
    assert (done.code, [row[1] for row in done.rows]) == (4, ["u1", "u2"])
    assert done.err.startswith("-:2: isn't JSON")
    assert done.err.splitlines()[-1] == "bad records: 1"


@pytest.fixture
def parts(tmp_path):
    where = tmp_path / "parts.fpdb"
    with fpdb.create(where, passages=True) as database:
        for number in range(3):
            words = [f"word{place}of{number}" for place in range(80)]
            database.add(f"u{number}", " ".join(words), {"title": f"Title {number}"})
    return where


def test_parts_are_found_with_their_shares(run, parts, tmp_path):
    file = tmp_path / "page.txt"
    words = [f"word{place}of1" for place in range(60)] + [f"new{place}" for place in range(60)]
    file.write_text(" ".join(words), "utf-8")
    done = run("query", parts, file, "--passages")
    [[name, key, count, share, other]] = done.rows
    assert (done.code, name, key) == (0, str(file), "u1")
    assert 45 <= int(count) <= 75
    assert float(share) == pytest.approx(int(count) / 120, abs=0.01)
    assert float(other) == pytest.approx(int(count) / 80, abs=0.15)
    assert "with a match 1" in done.err
    assert not run("query", parts, file, "--passages", "--least", "0.9").rows
    [line] = run("query", parts, file, "--passages", "--json").out.splitlines()
    answer = json.loads(line)
    assert (answer["complete"], answer["boilerplate"]) == (True, 0)
    assert answer["matches"][0]["meta"] == {"title": "Title 1"}


def test_texts_whose_parts_are_found_are_named_by_their_number(run, parts):
    texts = [" ".join(f"word{place}of{number}" for place in range(80)) for number in range(2)]
    done = run("query", parts, "--passages", "-t", texts[1], "-t", texts[0])
    assert [row[:2] for row in done.rows] == [["text", "u1"], ["text:2", "u0"]]


def test_passages_of_too_many_documents_are_noted_once(run, parts, monkeypatch):
    monkeypatch.setattr(documents_parts, "MOST_OF_A_PASSAGE", 0)
    text = " ".join(f"word{place}of1" for place in range(80))
    done = run("query", parts, "--passages", "-t", text)
    assert done.err.splitlines()[0] == (
        "text: incomplete, because too many documents share its passages, "
        "80 words in more than a thousand"
    )
    assert "text: " not in "".join(done.err.splitlines()[1:])


def test_what_compares_whole_texts_does_not_go_with_parts(run, path, parts):
    for wrong in (
        ["--passages", "-k", 3],
        ["--passages", "--similarity", "0.9"],
        ["--passages", "--fingerprint", "0"],
        ["--least", "0.5"],
    ):
        assert run("query", parts, "--text", "a", *wrong).code == 2
    done = run("query", path, "--text", "a", "--passages")
    assert done.code == 3
    assert "keeps no passages" in done.err
    assert run("query", parts, "--text", "other words", "--passages", "--exit-code").code == 1
