"""fpdb plan: the designs of the paper, and what they cost."""

import json
import random

import pytest

import fpdb


def rows(done):
    """The rows of the table: whether each is chosen, and its fields."""
    _, *lines = done.out.partition("\n\n")[0].splitlines()
    return [(line.startswith("*"), line.lstrip("* ").split()) for line in lines]


def test_the_designs_of_the_paper_for_two_to_the_34_fingerprints(run):
    done = run("plan", "--documents", "2**34")
    assert (done.code, done.err) == (0, "")
    shown = rows(done)
    assert [chosen for chosen, _ in shown] == [True] + [False] * (len(shown) - 1)
    four = next(fields for _, fields in shown if fields[:2] == ["4", "16"])
    assert four[2:5] == ["4", "262,144", "1,048,576"]
    table, _, facts = done.out.partition("\n\n")
    assert len({len(line) for line in table.splitlines()}) == 1
    assert "17,179,869,184, 2**34\n" in facts
    assert "4.1e-05 a query by chance" in facts
    plans = json.loads(run("plan", "--documents", "2**34", "--json").out)["plans"]
    [found] = [each for each in plans if (each["tables"], each["prefix"]) == (4, 16)]
    assert (found["candidates_per_probe"], found["candidates"]) == (262_144, 1 << 20)
    assert [each["chosen"] for each in plans] == [chosen for chosen, _ in shown]


def test_plans_of_more_than_a_database_can_hold_are_last_and_none_is_starred(run):
    few, many = (
        json.loads(run("plan", "--documents", documents, "--json").out)["plans"]
        for documents in ("1e10", "1e12")
    )
    assert [plan["chosen"] for plan in few] == [True] + [False] * (len(few) - 1)
    fits = [plan["bytes"] <= 1 << 40 for plan in few]
    assert fits == sorted(fits, reverse=True)
    assert {True, False} == {*fits}
    assert {(plan["chosen"], plan["bytes"] > 1 << 40) for plan in many} == {(False, True)}
    shown = rows(run("plan", "--documents", "1e12"))
    assert not any(chosen for chosen, _ in shown)


def test_a_database_that_will_match_by_chance_is_created_with_a_warning(run, tmp_path):
    done = run("create", tmp_path / "a", "--recipe", "bigram-32", "--json")
    assert json.loads(done.out)["bits"] == 32
    assert done.err == (
        "warning: a query will match about 1.3 unrelated documents by chance, at 1,000,000 "
        "documents of 32 bits and k=3; take a recipe of 64 bits, or create it with a smaller -k, "
        "or with the --capacity that you expect\n"
    )
    stdin = b'{"key": "a", "text": "b"}\n'
    done = run("ingest", tmp_path / "new", "-r", "bigram-32", "-q", stdin=stdin)
    assert done.err.startswith("warning: a query will match about 1.3 ")
    assert run("ingest", tmp_path / "new", "-q", stdin=stdin).err == ""
    few = ["--recipe", "ascii-mt", "--capacity", "10000"]
    assert run("create", tmp_path / "b", *few).err == ""
    assert run("create", tmp_path / "c", "--similarity", "off").err == ""
    # Where texts are compared, bits don't decide.
    assert run("create", tmp_path / "d", "--recipe", "ascii-mt", "--similarity", "0.8").err == ""


def test_the_default_is_what_create_takes(run, tmp_path):
    chosen = next(fields for chosen, fields in rows(run("plan")) if chosen)
    made = json.loads(run("create", tmp_path / "db", "--similarity", "off", "--json").out)
    assert made["plan"] == f"{chosen[0]} tables, p={chosen[1]}"
    for documents in ("1000000", "1e8"):
        found = run("plan", "--similarity", 0.8, "-n", documents, "--json")
        made = run("create", tmp_path / documents, "--capacity", documents, "--json")
        assert json.loads(found.out)["plans"][0]["name"] == json.loads(made.out)["plan"]
    news = json.loads(run("create", tmp_path / "news", "-r", "news-md5", "--json").out)
    assert news["plan"] == "5 tables, p=12"  # as the script of the article has them


def test_bands_for_a_similarity(run):
    done = run("plan", "--similarity", 0.8)
    assert (done.code, done.err) == (0, "")
    assert "bands          9 bands of 6 bins" in done.out
    assert "95.3% at 0.80" in done.out
    plain = json.loads(run("plan", "--similarity", 0.8, "--json").out)
    # Six bins of two texts with a similarity of .8 agree, if their winners do or by accident.
    for each, share in plain["recall"].items():
        agreeing = float(each) + (1 - float(each)) / 16
        assert share == pytest.approx(1 - (1 - agreeing**6) ** 9, abs=1e-4)
    assert plain["bands"] == {"count": 9, "bins": 6}
    assert plain["chance_candidates"] == pytest.approx(9 * 1e6 / 2**24)
    [cost] = plain["plans"]
    assert f"{(cost['bytes'] + cost['key_bytes']) / 1e6:.0f} B a document" in done.out


@pytest.mark.full
def test_a_document_takes_the_bytes_of_the_plan(run, tmp_path):
    dice = random.Random(1)
    words = [f"word{number}" for number in range(20_000)]
    texts = (" ".join(dice.choices(words, k=30)) for _ in range(20_000))
    with fpdb.build(tmp_path / "db") as database:
        for _ in database.add_many(fpdb.Document(f"{n:050}", text) for n, text in enumerate(texts)):
            pass
        database.compact(tmp_path / "full")
    with fpdb.open(tmp_path / "full") as database:
        stats = database.stats()
    [planned] = json.loads(run("plan", "--similarity", 0.8, "--json").out)["plans"]
    expected = (planned["bytes"] + planned["key_bytes"]) / 1e6
    assert stats.bytes_used / stats.documents == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "k"),
    [
        ([], 7),
        (["-r", "words"], 3),
        (["-r", "news-md5"], 4),
        (["-r", "news-md5", "-k", "2"], 2),
        (["-r", "own.toml"], 9),
    ],
)
def test_the_k_of_a_new_database_is_that_of_its_recipe(run, tmp_path, monkeypatch, arguments, k):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.toml").write_text('base = "web"\nk = 9\n', "utf-8")
    assert json.loads(run("create", "db", "--json", *arguments).out)["k"] == k
    with fpdb.open("db") as database:
        assert database.k == k
    assert run("ingest", "new", "-q", *arguments[:2], stdin=b"").code == 0
    with fpdb.open("new") as database:
        assert database.k == (4 if "news-md5" in arguments else k)
