"""The tiers of the tests: which is running, its packages, and the examples of property tests.

`tools/test` sets the variable FPDB_TIER; pytest by itself is the gate.
"""

import importlib
import os
from types import ModuleType

import pytest

TIER = os.environ.get("FPDB_TIER", "gate")
_SCALES = {"quick": 0.1, "gate": 0.2, "full": 10}


def examples(number: int) -> int:
    """Return the number of examples to try in this tier, for `max_examples`.

    Args:
        number: Five times what the gate tries, which tries the same ones each time. `quick` tries a
            tenth of it, `full` ten times as many.
    """
    return max(1, round(number * _SCALES[TIER]))


def of_gate(*names: str) -> list[ModuleType]:
    """Import packages that only the gate promises; in quick, leave out the module that calls this.

    In the gate, a missing package is an error, and not a reason to skip.
    """
    if TIER == "quick":
        pytest.skip("quick has none of its packages", allow_module_level=True)
    return [importlib.import_module(name) for name in names]
