"""From fingerprints to candidates: bit permutations, plans, and the tables they describe.

`bits` moves and counts bits, one at a time or in arrays. `plan` says which tables a database
keeps, `probes` which probes into them find everything within k, and `planner` what a plan costs.
`join_plan` plans a join of all with all, and `fleet_plan` what several machines would do.
Nothing in this folder knows a text or a file.
"""

from fpdb.tables.batch import Hits, find_together, near_many
from fpdb.tables.bits import Permutation, distances
from fpdb.tables.fleet_plan import DatabasePlan, FleetPlan, fleet_plan
from fpdb.tables.index import Index
from fpdb.tables.join_plan import JoinCosts, JoinPlan, join_plans
from fpdb.tables.plan import Plan, Table, TableProbes
from fpdb.tables.planner import Costs, Estimate, estimate, first_look, plans

__all__ = [
    "Costs",
    "DatabasePlan",
    "Estimate",
    "FleetPlan",
    "Hits",
    "Index",
    "JoinCosts",
    "JoinPlan",
    "Permutation",
    "Plan",
    "Table",
    "TableProbes",
    "distances",
    "estimate",
    "find_together",
    "first_look",
    "fleet_plan",
    "join_plans",
    "near_many",
    "plans",
]
