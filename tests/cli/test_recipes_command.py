"""fpdb recipes, and what stands before every command."""

import json

import pytest

import fpdb
from fpdb.fingerprint import DESCRIPTIONS, PRESETS


def test_list_as_json_holds_the_whole_recipes(run):
    shown = list(map(json.loads, run("recipes", "--json").out.splitlines()))
    assert [each["name"] for each in shown] == list(PRESETS)
    rows = run("recipes").rows
    for each, row in zip(shown, rows, strict=True):
        assert row[:3] == [each["name"], str(each["bits"]), str(each["k"])]
        assert row[3:] == [str(each["similarity"] or "off"), each["id"], each["description"]]
        identity, description = each.pop("id"), each.pop("description")
        assert fpdb.Recipe.from_dict(each).id == identity == fpdb.recipe(each["name"]).id
        assert description == DESCRIPTIONS[each["name"]]


@pytest.mark.parametrize("name", PRESETS)
def test_a_shown_preset_is_a_recipe_file(run, tmp_path, name):
    done = run("recipes", name)
    path = tmp_path / "shown.toml"
    path.write_text(done.out, "utf-8")
    assert (done.code, done.err) == (0, "")
    assert fpdb.read_recipe(path).id == fpdb.recipe(name).id
    assert run("recipes", path).out == done.out


def test_the_version_is_printed(run):
    kernels = "with" if fpdb.kernels_available else "without"
    assert run("--version").out == f"fpdb {fpdb.__version__}, {kernels} kernels\n"
