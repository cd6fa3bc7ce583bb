"""A few commands with little address space."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_commands_with_little_memory(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("memory", 30, 5)
    assert figures.rounds == 30
