"""fpdb compare with one file: each of its pairs is measured as it comes."""

import json
import random
import resource

import pytest

import fpdb

WORDS = [f"word{number}" for number in range(50)]


def text_like(text, dice):
    words = text.split()
    words[dice.randrange(len(words))] = "another"
    return " ".join(words)


@pytest.fixture
def pairs():
    dice = random.Random(4)
    firsts = [" ".join(dice.choices(WORDS, k=30)) for _ in range(20)]
    return [(text, text_like(text, dice)) for text in firsts] + [(firsts[0], firsts[1])]


def as_tsv(pairs):
    return "".join(f"{first}\t{second}\n" for first, second in pairs).encode()


@pytest.mark.parametrize("recipe", ["web", "words", "ascii-mt", "web-128"])
def test_each_pair_has_the_measures_of_two_texts(run, pairs, recipe):
    done = run("compare", "-", "--recipe", recipe, stdin=as_tsv(pairs))
    assert (done.code, len(done.rows)) == (0, len(pairs))
    for number, (row, pair) in enumerate(zip(done.rows, pairs, strict=True), 1):
        whole = fpdb.compare(*pair, recipe=recipe)
        similarity = f"{whole.shingle_jaccard:.4f}" if recipe in ("web", "web-128") else None
        expected = [str(number), str(whole.distance), similarity, f"{whole.percent:.2f}"]
        assert row == [cell for cell in expected if cell is not None]
    assert done.err.startswith("pairs 21; ")


def test_the_verdict_is_one_up_to_k(run, pairs):
    for k in (0, 5, 64):
        done = run("compare", "-", "-k", k, "-q", stdin=as_tsv(pairs))
        assert {row[4] for row in done.rows if int(row[1]) <= k} <= {"1"}
        assert {row[4] for row in done.rows if int(row[1]) > k} <= {"0"}
        assert done.err == ""
    assert run("compare", "-", "-k", 64, stdin=as_tsv(pairs)).err.startswith(
        "pairs 21, duplicates 21 (100.0%); "
    )


def test_texts_in_csv_and_json_lines(run, tmp_path):
    (tmp_path / "pairs.csv").write_text('"one, two\nthree four",one two three four\n', "utf-8")
    record = {"left": "one, two\nthree four", "right": "one two three four"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(record) + "\n", "utf-8")
    (tmp_path / "pairs.txt").write_text("one, two three four\tone two three four\n", "utf-8")
    for name in ("pairs.csv", "pairs.jsonl", "pairs.txt"):
        assert run("compare", tmp_path / name).rows == [["1", "0", "1.0000", "100.00"]]


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("numbers.tsv", "x\tff\tf0\ny\tF\t0x0f\n", ["2", "3"]),
        ("names.csv", "first,other,second\nff,x,f0\nF,y,0x0f\n", ["first", "second"]),
        ("lines.jsonl", '{"a": 255, "b": "f0"}\n{"a": "F", "b": 15}\n', ["a", "b"]),
    ],
)
def test_fingerprints_in_two_fields(run, tmp_path, name, content, options):
    (tmp_path / name).write_text(content)
    fields = [part for field in options for part in ("--fingerprint-field", field)]
    done = run("compare", tmp_path / name, *fields, "-k", 3, "-r", "ascii-mt")
    assert done.code == 0
    measured = [row[1:] for row in done.rows]
    assert measured == [["4", "87.50", "0"], ["0", "100.00", "1"]]


def test_bad_lines_are_named_and_the_rest_is_done(run, tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(b"one\tone\nalone\n1\t2\t3\n\xff\xfe\x80 \t1\ntwo\ttwo\n")
    done = run("compare", path)
    assert (done.code, [row[0] for row in done.rows]) == (4, ["1", "5"])
    assert f"{path}:2: found 1 field, expected two texts" in done.err
    assert f"{path}:3: found 3 fields, expected two texts" in done.err
    assert f"{path}:4: " in done.err
    assert "bad records: 3" in done.err


def test_nothing_but_bad_lines_is_an_error(run, tmp_path):
    path = tmp_path / "essay.txt"
    path.write_text("one line\nanother line\n")
    done = run("compare", path)
    assert (done.code, done.out) == (3, "")
    assert "error: none of 2 records can be used" in done.err
    assert "hint: " in done.err
    fields = ["--fingerprint-field", "a", "--fingerprint-field", "b"]
    wrong = run("compare", "-", *fields, stdin=b"a\tc\nff\tff\n")
    assert (wrong.code, wrong.out) == (3, "")
    assert "'b'" in wrong.err
    assert run("compare", tmp_path / "none.tsv").code == 3


@pytest.mark.process
def test_a_pair_is_answered_before_the_next_one_comes(start):
    process = start("compare", "-", "-r", "ascii-mt", "-k", 2)
    for number in (1, 2):
        process.stdin.write(b"int main(){return 0;}\tint main(){return 1;}\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"%d\t2\t93.75\t1\n" % number
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait() == 0


@pytest.mark.full
def test_a_judge_compares_900_pairs_in_a_second(start, tmp_path):
    dice = random.Random(1)
    letters = [chr(code) for code in range(32, 127) if chr(code) != '"']
    programs = ["".join(dice.choices(letters, k=1000)) for _ in range(900)]
    path = tmp_path / "pairs.tsv"
    path.write_bytes(as_tsv([(program, program[5:] + "x") for program in programs]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = start("compare", path, "-r", "ascii-mt", "-k", 2)
    assert process.stdout.read().count(b"\n") == 900
    assert process.wait() == 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1


def test_short_texts_are_compared_as_a_whole(run, tmp_path):
    (tmp_path / "pairs.tsv").write_text("good morning\tbad evening\nThanks!\tThanks!\n")
    done = run("compare", tmp_path / "pairs.tsv", "-k", 3)
    assert done.code == 4
    assert done.rows == [["2", "0", "-", "100.00", "1"]]
    assert "pairs.tsv:1: a text without features" in done.err
