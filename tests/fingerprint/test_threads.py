"""Threads fingerprint texts side by side, with the results of one."""

import numpy as np
import pytest

import fpdb

TEXTS = [f"number {number} of the texts, {'and so on, ' * (number % 50)}" for number in range(2500)]


@pytest.mark.parametrize(
    ("name", "jobs"), [("web", 0), ("web", 3), ("title", 3), ("submissions", 0), ("jieba", 3)]
)
def test_the_batch_of_several_threads_is_that_of_one(name, jobs):
    recipe = fpdb.recipe("words").replace(segment="jieba") if name == "jieba" else fpdb.recipe(name)
    parts = {"sketches": True, "passages": True}
    one, several = (recipe.batch(iter(TEXTS), **parts, jobs=each) for each in (1, jobs))
    np.testing.assert_array_equal(several.fingerprints, one.fingerprints)
    np.testing.assert_array_equal(several.features, one.features)
    np.testing.assert_array_equal(several.short, one.short)
    np.testing.assert_array_equal(several.sketches, one.sketches)
    assert several.passages == one.passages


def test_the_first_text_that_is_wrong_is_reported_by_threads_too():
    with pytest.raises(fpdb.InputError, match="found int"):
        fpdb.recipe("web").batch(["x" * 200_000, 5, "y"], jobs=2)
    with pytest.raises(fpdb.InputError, match="jobs"):
        fpdb.recipe("web").batch([], jobs=-1)
