"""Plans with blocks of any sizes, which fpdb chooses none of, but keeps as well."""

from collections.abc import Sequence
from itertools import accumulate

from fpdb.tables import Plan


def plan_of_blocks(sizes: Sequence[int], k: int) -> Plan:
    """Return the plan with a table for each block of these sizes, the highest bits first."""
    cut = list(zip(accumulate(sizes, initial=0), sizes, strict=False))
    tables = [
        {
            "blocks": [front, *(block for block in cut if block != front)],
            "prefix": min(front[1], 64),
        }
        for front in cut
    ]
    return Plan.from_dict({"bits": sum(sizes), "k": k, "tables": tables})
