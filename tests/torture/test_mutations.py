"""Some files with changes aimed at their structure: none answers wrongly without a trace."""

import random
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_mutations(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("mutations", 42, random.randrange(10**6))
    values = figures.notes["values"]
    assert values["files"] == 6
    assert not values["wrong answers"]
    assert not figures.notes["meta pages"]["wrong answers"]
