"""Golden fingerprints: what each preset computes, and its id, for ever.

`python tests/fingerprint/test_golden.py` writes those of presets that have none yet.
"""

import json
from pathlib import Path

import pytest

import fpdb
from fpdb.fingerprint import PRESETS, to_int

PATH = Path(__file__).with_name("golden.json")
GOLDEN = json.loads(PATH.read_text("utf-8"))
NEVER = (
    "A recipe must never change: databases hold fingerprints that were made with it. "
    "Undo the change, or give the new recipe a new name and add its own golden fingerprints."
)


def text_of(entry):
    """A golden text is written out, or a piece that is repeated."""
    return entry if isinstance(entry, str) else entry["piece"] * entry["times"]


TEXTS = {name: text_of(entry) for name, entry in GOLDEN["texts"].items()}


def test_every_preset_has_golden_fingerprints():
    assert set(GOLDEN["recipes"]) == set(PRESETS)


@pytest.mark.parametrize("name", GOLDEN["recipes"])
def test_a_preset_never_changes_its_id(name):
    assert fpdb.recipe(name).id == GOLDEN["recipes"][name]["id"], NEVER


@pytest.mark.parametrize("name", GOLDEN["recipes"])
def test_a_preset_never_changes_a_fingerprint(name):
    golden = GOLDEN["recipes"][name]["fingerprints"]
    assert len(golden) >= 3
    assert fingerprints(fpdb.recipe(name), golden) == golden, NEVER


def fingerprints(recipe, names):
    """Return the fingerprints of texts with these names, in hexadecimal digits."""
    computed = recipe.batch(TEXTS[name] for name in names).fingerprints
    return {
        name: f"{to_int(number):0{recipe.bits // 4}x}"
        for name, number in zip(names, computed, strict=True)
    }


@pytest.mark.parametrize("name", GOLDEN["passages"])
def test_the_numbers_of_passages_never_change(name):
    golden = GOLDEN["passages"][name]
    found = fpdb.recipe(name).batch((TEXTS[text] for text in golden), passages=True).passages
    written = [each.hex(" ", 5) for each in found]
    assert dict(zip(golden, written, strict=True)) == golden, NEVER


def test_ready_terms_never_change_the_fingerprint_of_tagged_title():
    terms = [tuple(pair) for pair in GOLDEN["terms"]["pairs"]]
    found = fpdb.recipe("tagged-title").fingerprint_segments(terms)
    assert f"{found:016x}" == GOLDEN["terms"]["fingerprint"], NEVER


if __name__ == "__main__":
    for name in PRESETS.keys() - GOLDEN["recipes"].keys():
        recipe = fpdb.recipe(name)
        golden = {"id": recipe.id, "fingerprints": fingerprints(recipe, TEXTS)}
        GOLDEN["recipes"][name] = golden
    PATH.write_text(json.dumps(GOLDEN, indent=1, ensure_ascii=False) + "\n", "utf-8")
