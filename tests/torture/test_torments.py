"""Short versions of all torments, whose controls must be caught; nothing may be lost or wrong."""

import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GREEDY = {"seconds": 2.0, "connections": 200, "patience": 4}
# How long a snapshot lasts depends on what else the machine is doing, so nobody reads.
GROWTH = {"documents": 10_000, "readers": 0}
# Rounds, options, how many rounds are counted then at least, and words of its notes.
SHORT: dict[str, tuple[int, dict[str, Any], int, list[str]]] = {
    "kills": (30, {}, 30, ["text keys", "integer keys"]),
    "processes": (10, {}, 10, ["killed"]),
    "calls": (
        3,
        {},
        30,
        ["create", "add", "delete", "build", "compact", "load databases", "backup"],
    ),
    "interrupts": (1500, {}, 1500, ["random moments", "random moments, threads"]),
    "full": (1, {}, 10, []),
    "power": (2, {}, 2, ["acknowledged"]),
    "copies": (2, {"names": ["plain copy at the pace of a network", "backup", "hold cp"]}, 6, []),
    "replacements": (10, {}, 10, ["calls refused"]),
    "growth": (800, GROWTH, 2, ["text keys", "integer keys"]),
    "damage": (42, {}, 42, ["truncation"]),
    "mutations": (42, {}, 42, ["values", "meta pages"]),
    "outputs": (16, {}, 16, ["files and folders left"]),
    "deliveries": (3, {}, 18, ["abandoned"]),
    "memory": (30, {}, 30, ["ingest"]),
    "greedy": (20, GREEDY, 20, ["bodies, with a token"]),
}
IN_THE_GATE = {"kills": 3, "processes": 3, "replacements": 3}


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "rounds"),
    [
        *(
            pytest.param(name, rounds, marks=pytest.mark.slow("it starts and kills processes"))
            for name, rounds in IN_THE_GATE.items()
        ),
        *(pytest.param(name, own[0], marks=pytest.mark.full) for name, own in SHORT.items()),
    ],
)
def test_torment(
    torment: Callable[[str], ModuleType], tmp_path: Path, name: str, rounds: int
) -> None:
    run, seed = torment("run"), random.randrange(10**6)
    assert set(run.TORMENTS) == set(SHORT)
    if missing := run.missing(name):
        pytest.skip(missing)
    _, options, least, notes = SHORT[name]
    figures = run.torment(name, rounds, seed, tmp_path, **options)
    again = f"tools/lab/torture {name} --rounds {rounds} --seed {seed}; the files are in {tmp_path}"
    assert figures.good, f"{figures}\n{again}"
    assert figures.control
    assert figures.rounds >= min(rounds, least)
    assert all(figures.notes[each] for each in notes)
