"""Some Parquet and Arrow files with changed bytes, each ingested before a good one."""

import random
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.process
@pytest.mark.slow("it starts processes, and those of its control die")
def test_a_few_changed_files(run_torment: Callable[..., Any]) -> None:
    run_torment("arrow", 60, 16)


@pytest.mark.full
def test_changed_files(run_torment: Callable[..., Any]) -> None:
    run_torment("arrow", 2000, random.randrange(10**6))
