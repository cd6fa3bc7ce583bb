"""Golden fingerprints: what each preset computes, and its id, for ever."""

import json
from pathlib import Path

import pytest

import fpdb
from fpdb.fingerprint import PRESETS, to_int

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text("utf-8"))
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
    recipe, golden = fpdb.recipe(name), GOLDEN["recipes"][name]["fingerprints"]
    assert len(golden) >= 3
    found = recipe.batch(TEXTS[text] for text in golden)
    written = [f"{to_int(entry):0{recipe.bits // 4}x}" for entry in found.fingerprints]
    assert dict(zip(golden, written, strict=True)) == golden, NEVER


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
