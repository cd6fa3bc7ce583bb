"""The seeds of the fuzz targets pass their checks, so that a rename shows in the gate."""

import importlib

import pytest
from modules import LAB


@pytest.mark.process
@pytest.mark.slow("it fingerprints by every recipe, and starts the child process that reads HTML")
def test_seeds_pass_their_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(LAB / "fuzzers")
    checks = importlib.import_module("checks")
    assert checks.CHECKS.keys() == checks.SEEDS.keys()
    for target, check in checks.CHECKS.items():
        for seed in checks.SEEDS[target]:
            check(seed)
