"""A batch counts the shingles that each sketch is of, with kernels and without."""

import numpy as np
import pytest

import fpdb
from fpdb import kernels

TEXTS = [
    "",
    "!",
    "kites",
    "kites nest in the tall elm by the river, kites nest in the tall elm by the pond",
    "红色的风筝挂在树上, 红色的风筝挂在树上",
    "naïve ﬁnal ４２ " * 9,
]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("passages", [True, False])
@pytest.mark.parametrize("name", ["web", "words", "char-4", "noisy", "title", "code"])
def test_shingles_are_counted(monkeypatch, name, passages, compiled):
    """Those of a sketch; also where other features vote, or passages need shingles besides."""
    monkeypatch.setattr(kernels, "enabled", compiled and kernels.enabled)
    recipe = fpdb.recipe(name)
    batch = recipe.batch(TEXTS, sketches=True, passages=passages)
    assert batch.shingles.tolist() == [len(np.unique(recipe.shingles(text))) for text in TEXTS]
    assert batch.shingles.max() > 9
    assert recipe.batch(TEXTS).shingles is None
