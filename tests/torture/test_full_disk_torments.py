"""A full disk under everything that writes, once."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.parametrize("way", ["tmpfs", "ext4", "file size limit", "injected ENOSPC"])
def test_a_full_disk_is_an_error_and_nothing_more(
    way: str, torment: Callable[[str], ModuleType], run_torment: Callable[..., Any]
) -> None:
    if lacking := torment("full").lacking(way):
        pytest.skip(lacking)
    figures = run_torment("full", 1, 4, names=[way])
    assert figures.rounds == 5
    assert figures.acknowledged > 0
