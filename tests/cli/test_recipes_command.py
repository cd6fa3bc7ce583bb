"""fpdb recipes, and what stands before every command."""

import json

import pytest

import fpdb
from fpdb.fingerprint import DESCRIPTIONS, PRESETS


def test_list_as_json_holds_the_whole_recipes(run):
    shown = list(map(json.loads, run("recipes", "list", "--json").out.splitlines()))
    assert [each["name"] for each in shown] == list(PRESETS)
    rows = run("recipes", "list").rows
    for each, row in zip(shown, rows, strict=True):
        assert row[:3] == [each["name"], str(each["bits"]), str(each["k"])]
        assert row[3:] == [str(each["similarity"] or "off"), each["id"], each["description"]]
        identity, description = each.pop("id"), each.pop("description")
        assert fpdb.Recipe.from_dict(each).id == identity == fpdb.recipe(each["name"]).id
        assert description == DESCRIPTIONS[each["name"]]


@pytest.mark.parametrize("name", PRESETS)
def test_a_shown_preset_is_a_recipe_file(run, tmp_path, name):
    done = run("recipes", "show", name)
    path = tmp_path / "shown.toml"
    path.write_text(done.out, "utf-8")
    assert (done.code, done.err) == (0, "")
    assert fpdb.read_recipe(path).id == fpdb.recipe(name).id
    assert run("recipes", "show", path).out == done.out


def test_showing_an_unknown_recipe_is_an_error(run):
    done = run("recipes", "show", "wep")
    assert (done.code, done.out) == (3, "")
    assert "hint: did you mean web?" in done.err


def test_idf_tables_are_computed_for_a_recipe_file(run, tmp_path):
    corpus, table, own = (tmp_path / name for name in ("corpus.txt", "idf.tsv", "own.toml"))
    corpus.write_text("猫 dog\n猫 cat\n猫 dog\n", "utf-8")
    done = run("recipes", "idf", corpus, "--output", table)
    assert (done.code, done.out) == (0, "")
    read = fpdb.IdfTable.from_file(table)
    assert set(read.values) == {"猫", "dog"}
    assert done.err == f"{table}: 2 features, id {read.id}\n"
    own.write_text('[weights]\nidf = "idf.tsv"\n', "utf-8")
    features = fpdb.read_recipe(own).features("猫 cat dog")
    assert features["猫"] < features["dog"] < features["cat"]


def test_idf_errors(run, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    done = run("recipes", "idf", empty, "-o", tmp_path / "idf.tsv")
    assert done.code == 3
    assert "no documents, expected at least one" in done.err
    (tmp_path / "one.txt").write_text("a text", "utf-8")
    unwritable = run("recipes", "idf", tmp_path / "one.txt", "-o", tmp_path / "absent" / "idf.tsv")
    assert unwritable.code == 3
    assert "idf.tsv can't be written: No such file" in unwritable.err
    assert run("recipes", "idf", tmp_path / "absent.txt", "-o", tmp_path / "x").code == 3
    assert run("recipes", "idf", "-o", tmp_path / "x").code == 2


def test_the_version_is_printed(run):
    kernels = "with" if fpdb.kernels_available else "without"
    assert run("--version").out == f"fpdb {fpdb.__version__}, {kernels} kernels\n"


@pytest.mark.parametrize("arguments", [[], ["recipes"]])
def test_without_a_command_the_help_is_shown(run, arguments):
    done = run(*arguments)
    assert done.code == 2
    assert "Usage: " in done.out + done.err
