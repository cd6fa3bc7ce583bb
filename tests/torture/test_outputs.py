"""A few kills of commands that write files."""

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.full
def test_killed_commands_leave_whole_files_or_old_ones(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("outputs", 16, 5)
    assert figures.rounds == 16
    assert any(note.startswith("left 1") for note in figures.notes)
