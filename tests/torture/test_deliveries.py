"""A few kills of dedupe with a database, in each of the ways to go on."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_a_killed_run_loses_nothing_whatever_is_done_next(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("deliveries", 3, 5)
    assert figures.rounds == 18
