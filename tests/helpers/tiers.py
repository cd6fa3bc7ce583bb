"""The tiers of the tests: which one is running, and how many examples its property tests try.

`tools/test` sets the variable FPDB_TIER; pytest by itself is the gate.
"""

import os

TIER = os.environ.get("FPDB_TIER", "gate")
_SCALES = {"quick": 0.1, "gate": 0.5, "full": 10}


def examples(number: int) -> int:
    """Return the number of examples to try in this tier, for `max_examples`.

    Args:
        number: Twice what the gate tries, which tries the same ones each time. `quick` tries a
            tenth of it, `full` ten times as many.
    """
    return max(1, round(number * _SCALES[TIER]))
