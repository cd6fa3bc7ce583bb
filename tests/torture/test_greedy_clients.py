"""A few greedy clients of each kind at a server."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("fpdb.integrations.server", reason="the extra serve isn't installed")


@pytest.mark.full
def test_a_server_with_greedy_clients(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("greedy", 18, 5, seconds=2.0, connections=200, patience=4)
    assert figures.rounds == 18
