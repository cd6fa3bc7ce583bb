"""A secret works from end to end, and is in nothing that fpdb prints, raises or stores."""

import base64
import json
import pickle
import traceback

import pytest

import fpdb
from fpdb import Secret

KEY = b"correct horse battery staple 0123"


@pytest.fixture
def folder(tmp_path):
    """A recipe with its secret, and documents of which two are near."""
    (tmp_path / "my.key").write_bytes(KEY)
    (tmp_path / "my.key").chmod(0o600)
    (tmp_path / "keyed.toml").write_text('base = "web"\n[hash]\nsecret_file = "my.key"\n')
    words = [f"word{number}" for number in range(300)]
    pages = {"a": words, "b": [*words, "more"], "c": words[::-3], "d": ["short"]}
    with (tmp_path / "pages.jsonl").open("w") as file:
        for key, text in pages.items():
            file.write(json.dumps({"key": key, "text": " ".join(text), "n": 1}) + "\n")
    return tmp_path


def traces():
    """List all the forms in which the secret could show."""
    secret = Secret(KEY)
    forms = [KEY, KEY.hex().encode(), base64.b64encode(KEY), repr(KEY)[2:-1].encode(), b"horse"]
    seed = secret.seed
    forms += [str(seed).encode(), f"{seed:x}".encode(), seed.to_bytes(8, "little")]
    return [*forms, seed.to_bytes(8, "big")]


def assert_hidden(content):
    content = content if isinstance(content, bytes) else content.encode()
    assert not [form for form in traces() if form in content]


@pytest.mark.process
def test_every_command_works_with_a_keyed_recipe_and_hides_its_secret(run, folder):
    db, recipe, pages = folder / "x.fpdb", folder / "keyed.toml", folder / "pages.jsonl"
    outcomes = [
        run("create", db, "--recipe", recipe),
        run("ingest", db, pages, "--recipe", recipe, "--meta-field", "n"),
        run("ingest", db, pages, "--recipe", recipe, "--jobs", 2),
        run("query", db, pages, "--recipe", recipe),
        run("query", db, pages, "--recipe", recipe, "--json"),
        run("pairs", db),
        run("clusters", db),
        run("stats", db),
        run("stats", db, "--json"),
        run("check", db),
        run("get", db, "a"),
        run("export", db),
        run("export", db, "-o", folder / "out.csv"),
        run("export", db, "-o", folder / "all.fpdb.jsonl"),
        run("load", folder / "loaded.fpdb", folder / "all.fpdb.jsonl"),
        run("compact", db, "-o", folder / "small.fpdb"),
        run("backup", db, "-o", folder / "backup.fpdb"),
        run("recipes", recipe),
        run("recipes", recipe, "--json"),
        run(
            "fingerprint", "--recipe", recipe, "-t", "one two three four five six seven eight nine"
        ),
    ]
    assert [done.code for done in outcomes] == [0] * len(outcomes), outcomes
    assert ["a", "b"] in [sorted(row[:2]) for row in outcomes[5].rows]
    for done in outcomes:
        assert_hidden(done.out + done.err)
    for copy in ("small.fpdb", "backup.fpdb", "loaded.fpdb"):
        assert run("query", folder / copy, pages, "--recipe", recipe).rows == outcomes[3].rows
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "my.key":
            assert_hidden(file.read_bytes())


def test_errors_of_a_keyed_database_hide_the_secret(run, folder):
    db, recipe = folder / "x.fpdb", folder / "keyed.toml"
    run("create", db, "--recipe", recipe)
    (folder / "my.key").chmod(0o644)
    refused = run("ingest", db, folder / "pages.jsonl", "--recipe", recipe)
    assert refused.code == 3
    assert "mode 644, expected 600" in refused.err
    (folder / "my.key").chmod(0o600)
    keyless = run("query", db, folder / "pages.jsonl")
    assert keyless.code == 3
    (folder / "my.key").write_bytes(KEY[::-1])
    other = run("ingest", db, folder / "pages.jsonl", "--recipe", recipe)
    assert other.code == 3
    for done in (refused, keyless, other):
        assert "Traceback" not in done.err
        assert_hidden(done.out + done.err)


def test_handles_and_what_they_hand_out_hide_the_secret(folder):
    keyed = fpdb.read_recipe(folder / "keyed.toml")
    with fpdb.create(folder / "y.fpdb", recipe=keyed) as db:
        shown = [
            repr(db),
            repr(db.recipe),
            repr(db.stats()),
            repr(db.preparer),
            repr(vars(db.stats)),
        ]
        shown += [
            repr(db.preparer.prepare([fpdb.Document("k", "some text")])),
            repr(db.__reduce__()),
        ]
        shown.append(repr(list(db.check())))
        try:
            db.add("k", None)
        except fpdb.FpdbError as error:
            shown.append("".join(traceback.format_exception(error)))
        # A pickle of a handle carries the secret to the user's own processes, and says so.
        with pickle.loads(pickle.dumps(db)) as again:
            shown.append(repr(again))
            assert again.add("k", "a few words").status in {"added", "short"}
    for text in shown:
        assert_hidden(text)
