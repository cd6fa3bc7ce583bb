"""Some damaged data files: what is read from them, reported and repaired."""

import random
from collections.abc import Callable
from typing import Any


def test_damage(run_torment: Callable[..., Any]) -> None:
    seed = random.randrange(10**6)
    figures = run_torment("damage", 28, seed)
    assert figures.notes["in all"]["noticed by a deep check"]
