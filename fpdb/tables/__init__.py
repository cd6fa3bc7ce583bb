"""From fingerprints to candidates: bit permutations, plans, and the tables they describe.

Nothing in this folder depends on texts or files.
"""

from fpdb.tables.bands import Bands
from fpdb.tables.batch import Hits, find_together, near_among, near_many
from fpdb.tables.bits import Permutation, distances
from fpdb.tables.index import Index
from fpdb.tables.plan import Plan, Table, require_k
from fpdb.tables.planner import (
    Estimate,
    JoinPlan,
    best_plan,
    chance_matches,
    choose_bands,
    estimate_cost,
    join_plans,
    plans,
)
from fpdb.tables.scans import scan, scan_is_better, scan_many

__all__ = [
    "Bands",
    "Estimate",
    "Hits",
    "Index",
    "JoinPlan",
    "Permutation",
    "Plan",
    "Table",
    "best_plan",
    "chance_matches",
    "choose_bands",
    "distances",
    "estimate_cost",
    "find_together",
    "join_plans",
    "near_among",
    "near_many",
    "plans",
    "require_k",
    "scan",
    "scan_is_better",
    "scan_many",
]
