"""Copies of a database that two processes write to."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.full
def test_copies_are_whole_and_torn_ones_are_refused(
    torment: Callable[[str], ModuleType], run_torment: Callable[..., Any]
) -> None:
    copies = torment("copies")
    figures = run_torment("copies", 2, 12, names=[copies.SLOW, "backup", "hold cp"])
    assert figures.notes["backup"] == figures.notes["hold cp"] == {copies.WHOLE: 2}
    assert figures.refused
