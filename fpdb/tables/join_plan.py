"""Plan a join of all documents with all: by which bits they meet, and what that takes.

A database probes a few tables; a join sends each fingerprint once to each table, where it meets
those that agree with it in the bits of the prefix. Of k + c blocks, two fingerprints within k agree
in at least c, so that a table for each choice of c blocks leaves no pair out. More tables have
longer prefixes: more rows to send, and fewer candidates to check.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import combinations, pairwise
from math import ceil, comb
from typing import Any

from fpdb.errors import PlanError
from fpdb.tables.planner import LARGEST_K, WIDTHS, read_costs

_MOST_TABLES = 1000
# A task of a join takes about so long; shorter ones cost more to start, longer ones to repeat.
_TASK_SECONDS = 60.0
# What one task holds at once stays far below the memory of a usual executor.
_TASK_ROWS = 4_000_000


@dataclass(frozen=True)
class JoinCosts:
    """What a join costs on one core: seconds and bytes. The defaults were measured with Spark.

    A row is one fingerprint in one table: made, sent to where its prefix belongs, sorted, and read
    again there. Only the network between machines is an assumption.
    """

    seconds_per_document: float = 4e-6
    seconds_per_row: float = 3e-6
    seconds_per_candidate: float = 6e-9
    bytes_per_row: float = 24.4
    start_seconds: float = 20.0
    # Not measured but assumed: what one machine sends and receives, which is a gigabit a second.
    bytes_per_second_per_machine: float = 125e6

    def to_dict(self) -> dict[str, float]:
        """Write the costs as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "JoinCosts":
        """Read costs from plain data; what isn't there keeps its default."""
        read = cls(**read_costs(data, [field.name for field in fields(cls)]))
        if not read.bytes_per_second_per_machine:
            raise PlanError(
                "bytes_per_second_per_machine = 0 is no cost",
                hint="Give what one machine sends and receives, as 125e6 for a gigabit a second.",
            )
        return read


@dataclass(frozen=True)
class JoinPlan:
    """A way to find all pairs within k of so many documents on some machines.

    With `queries`, it is the pairs of so many other fingerprints with the documents. `masks` has
    the bits of each table's prefix. `rows` are sent between the machines, which takes
    `shuffle_bytes`; `candidates` are checked; `seconds` is the time by estimate, for fingerprints
    that are spread evenly: the start, the work and the network, one after the other.
    """

    bits: int
    k: int
    documents: int
    machines: int
    cores: int
    masks: tuple[int, ...]
    costs: JoinCosts
    queries: int | None = None

    @property
    def prefix(self) -> int:
        """The length of the shortest prefix."""
        return min(mask.bit_count() for mask in self.masks)

    @property
    def name(self) -> str:
        """The plan in short, as `10 tables, p=25`."""
        tables = "1 table" if len(self.masks) == 1 else f"{len(self.masks)} tables"
        return f"{tables}, p={self.prefix}"

    @property
    def rows(self) -> int:
        """How many fingerprints are sent, each once for each table."""
        return (self.documents + (self.queries or 0)) * len(self.masks)

    @property
    def shuffle_bytes(self) -> int:
        """What the rows take on their way between the machines, and on their disks meanwhile."""
        return round(self.rows * self.costs.bytes_per_row)

    @property
    def candidates(self) -> int:
        """How many pairs of fingerprints are expected to share a prefix, and are checked."""
        share = sum(2.0 ** -mask.bit_count() for mask in self.masks)
        others = (self.documents - 1) / 2 if self.queries is None else self.queries
        return round(self.documents * others * share)

    @property
    def core_seconds(self) -> float:
        """The work, without the start: what one core would take."""
        return (
            (self.documents + (self.queries or 0)) * self.costs.seconds_per_document
            + self.rows * self.costs.seconds_per_row
            + self.candidates * self.costs.seconds_per_candidate
        )

    @property
    def work_seconds(self) -> float:
        """How long the work takes if all cores have an equal part of it."""
        return self.core_seconds / (self.machines * self.cores)

    @property
    def network_seconds(self) -> float:
        """How long rows are on their way to other machines; of N machines, one Nth stays."""
        sent = self.shuffle_bytes / self.machines * (1 - 1 / self.machines)
        return sent / self.costs.bytes_per_second_per_machine

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.costs.start_seconds + self.work_seconds + self.network_seconds

    @property
    def tasks(self) -> int:
        """Into how many parts the work is cut."""
        parts = max(self.core_seconds / _TASK_SECONDS, self.rows / _TASK_ROWS)
        return max(self.machines * self.cores, ceil(parts))


def join_plans(
    bits: int,
    k: int,
    documents: int,
    *,
    queries: int | None = None,
    machines: int = 1,
    cores: int | None = None,
    costs: JoinCosts | None = None,
) -> list[JoinPlan]:
    """List the plans for a join of so many documents, the fastest first.

    With `queries`, it is a join of so many others with the documents. `cores` are those of one
    machine; by default as many as this one has.
    """
    if bits not in WIDTHS:
        raise PlanError(f"fingerprints of {bits} bits", hint="Choose 32, 64 or 128 bits.")
    if not 0 <= k <= LARGEST_K:
        raise PlanError(f"a join for k = {k}", hint=f"Choose k from 0 to {LARGEST_K}.")
    each = cores if cores is not None else os.cpu_count() or 1
    counts = {"documents": documents, "machines": machines, "cores": each, "queries": queries}
    for name, value in counts.items():
        if value is not None and value < 1:
            raise PlanError(f"a join with {value} {name}", hint=f"Give at least 1 of {name}.")
    own = JoinCosts() if costs is None else costs
    found = [
        JoinPlan(bits, k, documents, machines, each, masks, own, queries)
        for masks in _choices(bits, k)
    ]
    return sorted(found, key=lambda plan: plan.seconds)


def _choices(bits: int, k: int) -> list[tuple[int, ...]]:
    """Give the masks of all designs: c of k + c blocks each."""
    if k == 0:
        return [((1 << bits) - 1,)]
    found = []
    for choose in range(1, bits - k):
        if comb(k + choose, choose) > _MOST_TABLES:
            break
        cuts = [bits * block // (k + choose) for block in range(k + choose + 1)]
        blocks = [(1 << high) - (1 << low) for low, high in pairwise(cuts)]
        found.append(tuple(sum(chosen) for chosen in combinations(blocks, choose)))
    return found
