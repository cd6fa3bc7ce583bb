"""Torn copies on each file system that can be mounted here."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_torn_copies_are_refused_on_all_file_systems(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("mounts", 1, 5)
    assert figures.refused == figures.rounds
    assert len(figures.notes) >= 6
