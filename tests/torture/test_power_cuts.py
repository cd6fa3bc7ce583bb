"""A few power cuts on each file system, with and without early write-back."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
@pytest.mark.parametrize("system", ["ext4", "xfs"])
def test_what_was_acknowledged_survives_a_power_cut(
    system: str, run_torment: Callable[..., Any]
) -> None:
    if not shutil.which(f"mkfs.{system}"):
        pytest.skip(f"there is no mkfs.{system}")
    figures = run_torment("power", 2, 11, only=system)
    assert figures.acknowledged > 0
    assert "lost documents" in figures.control or "refused" in figures.control
