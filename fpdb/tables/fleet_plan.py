"""Plan for more machines than one: a database on each, a join on all of them, or one database.

It is arithmetic: the plans and costs of a database and of a join, for so many documents and
machines, side by side.
"""

from dataclasses import dataclass
from typing import Literal

from fpdb.errors import PlanError
from fpdb.storage.opening import LARGEST_MAP
from fpdb.tables.join_plan import JoinCosts, JoinPlan, join_plans
from fpdb.tables.plan import Plan
from fpdb.tables.planner import DEFAULT_COSTS, Costs, Estimate, estimate, plans


@dataclass(frozen=True)
class DatabasePlan:
    """One database of so many documents: its tables, its room, and how long it takes to make it.

    `keys` are text, of 50 bytes each, or integers.
    """

    plan: Plan
    documents: int
    keys: Literal["text", "integer"]
    costs: Costs

    @property
    def estimate(self) -> Estimate:
        """What its tables take, and a query and an insert."""
        return estimate(self.plan, self.documents, costs=self.costs)

    @property
    def file_bytes(self) -> int:
        """What its tables and keys take, without metadata and sketches."""
        each = self.costs.bytes_per_text_key if self.keys == "text" else 0.0
        return self.estimate.bytes + round(self.documents * each)

    @property
    def fits(self) -> bool:
        """Whether a database can be so large, on any disk."""
        return self.file_bytes <= LARGEST_MAP

    @property
    def memory_share(self) -> float:
        """How much of its tables the memory of a machine holds, from 0 to 1."""
        return min(1.0, self.costs.bytes_of_memory / max(1, self.estimate.bytes))

    @property
    def load_seconds(self) -> float:
        """How long it takes to load it from sorted columns."""
        return self._written(self.costs.seconds_per_loaded_row)

    @property
    def merge_seconds(self) -> float:
        """How long it takes to merge it from other databases, with the check at the end."""
        return self._written(self.costs.seconds_per_merged_row)

    def _written(self, seconds_per_row: float) -> float:
        key = self.costs.seconds_per_text_key if self.keys == "text" else 0.0
        return self.documents * (len(self.plan.tables) * seconds_per_row + key)


@dataclass(frozen=True)
class FleetPlan:
    """What some machines can make of so many documents, in three ways.

    `each` is the database of one machine, if each has an equal part of the documents; `join` finds
    the pairs of all of them in a batch; `whole` is one database on one machine.
    """

    machines: int
    cores: int
    each: DatabasePlan
    join: JoinPlan
    whole: DatabasePlan

    @property
    def file_bytes(self) -> int:
        """What the databases of all machines take together."""
        return self.machines * self.each.file_bytes

    @property
    def seconds_per_query(self) -> float:
        """What one of many queries takes, each of which all machines are asked, on all cores."""
        return self.each.estimate.seconds / self.cores


def fleet_plan(
    bits: int,
    k: int,
    documents: int,
    *,
    machines: int,
    cores: int | None = None,
    keys: Literal["text", "integer"] = "text",
    queries: int | None = None,
    costs: Costs = DEFAULT_COSTS,
    join_costs: JoinCosts | None = None,
) -> FleetPlan:
    """Plan for so many documents on so many machines, with the best plan for each way.

    `cores` are those of one machine; by default as many as this one has. With `queries`, the join
    is of so many other fingerprints with the documents.
    """
    if keys not in ("text", "integer"):
        raise PlanError(f"keys = {keys!r}", hint="Choose text or integer.")
    join, *_ = join_plans(
        bits, k, documents, queries=queries, machines=machines, cores=cores, costs=join_costs
    )
    part = -(-documents // machines)
    each, whole = (
        DatabasePlan(plans(bits, k, count, costs=costs)[0], count, keys, costs)
        for count in (part, documents)
    )
    return FleetPlan(machines, join.cores, each, join, whole)
