"""A short version of the torment that replaces a database under those who use it."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_a_database_is_replaced_under_those_who_use_it(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("swaps", 10, 3)
    assert figures.acknowledged > 0
    assert figures.notes["calls refused"] > 0
