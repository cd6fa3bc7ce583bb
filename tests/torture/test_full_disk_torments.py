"""A full disk under everything that writes, once."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.full
def test_a_full_disk_is_an_error_and_nothing_more(
    torment: Callable[[str], ModuleType], run_torment: Callable[..., Any]
) -> None:
    full = torment("full")
    ways = [way for way in full.WAYS if not full.lacking(way)]
    figures = run_torment("full", 1, 4)
    assert figures.rounds == len(full.ACTS) * len(ways)
    assert figures.acknowledged > 0
    if left_out := set(full.WAYS) - set(ways):
        pytest.skip(f"all but these: {', '.join(sorted(left_out))}")
