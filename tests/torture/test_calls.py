"""A few of the system calls at which processes are killed or refused."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.mark.full
def test_a_fault_at_some_of_the_calls(run_torment: Callable[..., Any]) -> None:
    figures = run_torment("calls", 3, 3)
    assert figures.rounds >= 30
    loads = ("load the portable form", "load fingerprints")
    for act in ("create", "add", "delete", "build", "compact", "backup", "merge", *loads):
        assert figures.notes[act]["calls"]


def test_calls_are_counted_as_strace_counts_them(
    torment: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    log.write_text(
        "getpid() = 5\n"
        '5  openat(AT_FDCWD, "a", O_RDONLY) = 3\n'
        '5  openat(AT_FDCWD, "b", O_RDWR|O_CREAT, 0600) = 4\n'
        '5  pwrite64(4, "x"..., 1, 0) = 1\n'
        '6  write(4, "x"..., 1) = 1\n'
        '7  openat(AT_FDCWD, "c", O_WRONLY|O_CREAT) = 3\n'
        "5  flock(4, LOCK_EX) = 0\n"
        '5  pwrite64(4, "y"..., 1, 0 <unfinished ...>\n'
        "5  <... pwrite64 resumed>) = 1\n"
        "5  fdatasync(4) = 0\n"
    )
    strace = torment("strace")
    assert list(map(str, strace.calls(log, strace.STORAGE))) == [
        "openat 2",
        "pwrite64 1",
        "write 1",
        "pwrite64 2",
        "fdatasync 1",
    ]
