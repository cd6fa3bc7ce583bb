"""Some damaged data files: what is read from them, reported and repaired."""

import random
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_damage(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("damage", 28, random.randrange(10**6))
    assert figures.notes["in all"]["noticed by a deep check"]
