from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from modules import modules_of


@pytest.fixture
def torment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import one of the modules of the torture tool, which find each other beside themselves."""
    yield from modules_of("torments", monkeypatch)


@pytest.fixture
def run_torment(torment: Callable[[str], ModuleType], tmp_path: Path) -> Callable[..., Any]:
    """Run a short version of a torment, whose control must fail; nothing may be lost or wrong."""

    def run(name: str, rounds: int, seed: int, **options: Any) -> Any:
        module = torment(name)
        if missing := module.missing():
            pytest.skip(missing)
        figures = module.run(rounds, seed, tmp_path, **options)
        again = f"tools/torture {name} --rounds {rounds} --seed {seed}; the files are in {tmp_path}"
        assert figures.good, f"{figures}\n{again}"
        assert figures.control
        return figures

    return run
