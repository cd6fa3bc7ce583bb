"""Replacements at constant size, with both kinds of keys.

Without readers: how long a snapshot lasts depends on what else the machine is doing.
"""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_replacements_leave_the_file_small(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("growth", 800, 13, documents=10_000, readers=0)
    assert figures.acknowledged == 1600
    for kind in ("text keys", "integer keys"):
        assert figures.notes[kind]["times compacted"] < 2.5
