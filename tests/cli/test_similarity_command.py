"""--similarity: matches, pairs and clusters of similar texts, and what is printed of them."""

import json
import random

import pytest

import fpdb

WORDS = [f"word{number}" for number in range(300)]


@pytest.fixture
def texts():
    """Ten families of three texts: alike, nearly alike, and less so."""
    dice, found = random.Random(4), {}
    for family in range(10):
        words = dice.choices(WORDS, k=80)
        for number, edits in enumerate((0, 2, 9)):
            other = list(words)
            for _ in range(edits):
                other[dice.randrange(80)] = dice.choice(WORDS)
            found[f"{family}{'abc'[number]}"] = " ".join(other)
    return found


@pytest.fixture
def records(tmp_path, texts):
    path = tmp_path / "texts.jsonl"
    lines = (json.dumps({"url": key, "text": text}) + "\n" for key, text in texts.items())
    path.write_text("".join(lines), "utf-8")
    return path


@pytest.fixture
def stored(tmp_path, records, run):
    path = tmp_path / "crawl.fpdb"
    assert run("create", path, "--similarity", "0.7").code == 0
    done = run("ingest", path, records)
    assert done.code == 0
    return path


def answers(path, ask):
    with fpdb.open(path, readonly=True) as database:
        return ask(database)


def test_query_by_bits_prints_the_distance(run, stored, texts):
    done = run("query", stored, "--text", texts["0a"], "-k", 12)
    matches = answers(stored, lambda db: db.query(texts["0a"], k=12))
    assert len(matches) >= 2
    assert done.rows == [["text", match.key, str(match.distance)] for match in matches]
    plain = json.loads(run("query", stored, "--text", texts["0a"], "-k", 12, "--json").out)
    assert "similarity" not in plain["matches"][0]
    both = run("query", stored, "--text", texts["0a"], "-k", 12, "--similarity", "0.7")
    assert (both.code, "expected one of them" in both.err) == (3, True)


def test_a_database_of_bits_has_no_similar_texts(run, tmp_path, records, texts):
    path = tmp_path / "bits.fpdb"
    assert run("create", path, "--similarity", "off").code == 0
    assert run("ingest", path, records).code == 0
    assert run("query", path, "--text", texts["0a"]).rows[0] == ["text", "0a", "0"]
    for command in (["query", "--text", texts["0a"]], ["pairs"], ["clusters"]):
        done = run(command[0], path, *command[1:], "--similarity", "0.9")
        assert (done.code, "keeps no sketches" in done.err) == (3, True)


def test_ready_fingerprints_are_questions_of_bits(run, stored, texts):
    number = f"{fpdb.recipe('web').fingerprint(texts['0a']):016x}"
    assert run("query", stored, "--fingerprint", number).rows[0] == [number, "0a", "0"]
    done = run("query", stored, "--fingerprint", "abc", "--similarity", "0.9")
    assert done.code == 2
    assert "--similarity compares texts" in done.err
    line = json.dumps({"key": "k", "fingerprint": number}).encode()
    options = ["--fingerprint-field", "fingerprint"]
    assert run("query", stored, "-", *options, stdin=line).rows[0] == ["k", "0a", "0"]
    done = run("query", stored, "-", *options, "--similarity", "0.9", stdin=line)
    assert (done.code, done.rows) == (3, [])
    assert "-:1: found a ready fingerprint" in done.err


def test_pairs_and_clusters_are_those_of_the_library(run, stored):
    done = run("pairs", stored)
    expected = answers(stored, lambda db: list(db.pairs()))
    assert {("0a", "0b"), ("1a", "1b")} <= {pair[:2] for pair in expected}
    assert done.rows == [[pair.key, pair.other, f"{pair.similarity:.2f}"] for pair in expected]
    as_json = run("pairs", stored, "--json").out.splitlines()
    assert [json.loads(line) for line in as_json] == [pair._asdict() for pair in expected]
    strict = run("pairs", stored, "--similarity", "0.99").rows
    assert strict == [row for row in done.rows if float(row[2]) > 0.97]
    clusters = answers(stored, lambda db: list(db.clusters()))
    shown = run("clusters", stored).rows
    assert [row[2] for row in shown if row[1] == "duplicate"] == [
        key for cluster in clusters for key in cluster.duplicates
    ]


def shuffled(dice, words):
    """The same words in another order."""
    return " ".join(dice.sample(words, len(words)))


def misread(dice, words):
    """Each sixth word with another letter."""
    return " ".join(f"{word[:-1]}x" if at % 6 == 0 else word for at, word in enumerate(words))


def joined(dice, words):
    """Two words more as one: by letters, hardly anything has changed."""
    return " ".join([*words[:2], words[2] + words[3], *words[4:]])


OWN = {
    "word sets": ('segment = "words"\n', shuffled, 40),
    "titles": ('base = "title"\nsimilarity = 0.6\n', joined, 6),
    "windows of tokens": (
        'segment = "whitespace"\nsimilarity = 0.45\n[grams]\nn = 2\n',
        misread,
        40,
    ),
    "windows of letters": ('base = "char-4"\nsimilarity = 0.6\n[grams]\nn = 3\n', misread, 40),
}


@pytest.mark.parametrize(("parts", "edit", "length"), OWN.values(), ids=OWN)
def test_a_recipe_of_its_own_features_is_asked_as_any_other(run, tmp_path, parts, edit, length):
    """Copies that no shingles show are found by each command that looks for similar texts."""
    recipe, records, stored, out = (tmp_path / name for name in ("own.toml", "in.jsonl", "db", "o"))
    recipe.write_text('sketch = "features"\n' + parts, "utf-8")
    own, dice = fpdb.read_recipe(recipe), random.Random(5)
    words = [[f"{dice.choice(WORDS)}r{dice.randrange(99)}" for _ in range(length)] for _ in "123"]
    texts = {f"o{number}": " ".join(each) for number, each in enumerate(words)}
    texts |= {f"p{number}": edit(dice, each) for number, each in enumerate(words)}
    lines = (json.dumps({"url": key, "text": text}) + "\n" for key, text in texts.items())
    records.write_text("".join(lines), "utf-8")
    alike = [[f"o{number}", f"p{number}"] for number in range(3)]
    for one, other in alike:
        for sketch in ("features", "shingles"):
            compared = fpdb.compare(texts[one], texts[other], recipe=own.replace(sketch=sketch))
            similar = compared.shingle_jaccard >= own.similarity
            assert similar == (sketch == "features")
    assert run("create", stored, "--recipe", recipe).code == 0
    assert run("ingest", stored, records).code == 0
    limit = ["--recipe", recipe, "--similarity", own.similarity]
    for found in (run("pairs", stored), run("copies", records, *limit[:2])):
        assert sorted(row[:2] for row in found.rows) == alike
    [asked] = run("query", stored, "--text", texts["p2"], "--json").out.splitlines()
    assert sorted(match["key"] for match in json.loads(asked)["matches"]) == alike[2]
    assert run("dedupe", records, *limit, "-o", out.with_suffix(".jsonl")).code == 0
    kept = out.with_suffix(".jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["url"] for line in kept] == ["o0", "o1", "o2"]
    shown = run("report", records, *limit, "--json", "-o", out.with_suffix(".html"))
    assert json.loads(shown.out)["groups"] == 3
    rated = json.loads(run("eval", records, *limit, "--json").out)["recipes"][0]["similar"]
    assert rated["reported"] + rated["equal"] == 3
