"""The tiers of the tests: which one is running, and how many examples its property tests try.

`tools/test` sets the variable FPDB_TIER; pytest by itself is the gate.
"""

import os

TIER = os.environ.get("FPDB_TIER", "gate")
_SCALES = {"quick": 0.2, "gate": 1, "full": 10}


def examples(in_gate: int) -> int:
    """Return the number of examples to try in this tier, for `max_examples`.

    Args:
        in_gate: The number that the gate tries. `quick` tries a fifth, `full` ten times as many.
    """
    return max(1, round(in_gate * _SCALES[TIER]))
