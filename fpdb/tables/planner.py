"""Choose the tables for a width, a k and a number of documents, and say what they cost."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from math import comb, isfinite
from operator import le
from typing import Any

from fpdb.errors import InputError, PlanError
from fpdb.tables.plan import Plan, choose_plan, home_plan, nested_plan

WIDTHS = (32, 64, 128)
LARGEST_K = 16
MOST_TABLES = 48
MOST_CHOSEN = 3
# Long enough to single out one document in billions; a longer one only makes more flips.
HOME_PREFIX = 32
# To read a larger share of all fingerprints through tables is no better than to read them all.
LARGEST_SHARE = 0.125


@dataclass(frozen=True)
class Costs:
    """What work costs: seconds and bytes. The defaults were measured on one machine."""

    seconds_per_query: float = 10e-6
    seconds_per_probe: float = 2e-6
    seconds_per_candidate: float = 15e-9
    # Of one insert in a transaction with others, not of a bulk load.
    seconds_per_insert: float = 15e-6
    # What a probe or an insert takes longer when its page has to come from the disk.
    seconds_per_cold_page: float = 100e-6
    bytes_of_memory: float = 16e9
    # Keys, checksums and slack of pages, for each byte of fingerprints and ids.
    bytes_per_byte: float = 1.02
    bytes_per_id: float = 8.0
    # One fingerprint in one table: loaded from sorted columns, or merged and checked.
    seconds_per_loaded_row: float = 0.17e-6
    seconds_per_merged_row: float = 0.25e-6
    # What a document takes more with a text key of 50 bytes, to load or merge it and to keep it.
    seconds_per_text_key: float = 11e-6
    bytes_per_text_key: float = 161.0

    def to_dict(self) -> dict[str, float]:
        """Write the costs as plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Costs":
        """Read costs from plain data; what isn't there keeps its default."""
        return cls(**read_costs(data, [field.name for field in fields(cls)]))


def read_costs(data: Mapping[str, Any], names: Iterable[str]) -> dict[str, float]:
    """Read numbers from plain data, each a cost of one of these names."""
    known = set(names)
    for name, value in data.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name not in known or not number or not isfinite(value) or value < 0:
            raise PlanError(
                f"{name} = {value!r} is no cost",
                hint=f"Give numbers from 0 for any of {', '.join(sorted(known))}.",
            )
    return {name: float(value) for name, value in data.items()}


DEFAULT_COSTS = Costs()


@dataclass(frozen=True)
class Estimate:
    """What a plan is expected to cost: per query, per insert, and in bytes for all documents."""

    tables: int
    prefix: int
    probes: int
    candidates_per_probe: float
    candidates: float
    bytes: int
    seconds: float
    insert_seconds: float

    @property
    def seconds_per_document(self) -> float:
        """One query and one insert, which is what a crawler does with a page."""
        return self.seconds + self.insert_seconds


def estimate(
    plan: Plan, documents: int, k: int | None = None, costs: Costs = DEFAULT_COSTS
) -> Estimate:
    """Estimate what a plan costs with so many documents, for queries within k."""
    probes, share = _probed(plan, k)
    candidates = documents * share
    tables = len(plan.tables)
    per_document = tables * plan.bits / 8 + costs.bytes_per_id
    size = documents * per_document * costs.bytes_per_byte
    cold = max(0.0, 1 - costs.bytes_of_memory / size) * costs.seconds_per_cold_page if size else 0.0
    return Estimate(
        tables=tables,
        prefix=plan.prefix,
        probes=probes,
        candidates_per_probe=candidates / probes,
        candidates=candidates,
        bytes=round(size),
        seconds=costs.seconds_per_query
        + probes * (costs.seconds_per_probe + cold)
        + candidates * costs.seconds_per_candidate,
        insert_seconds=tables * (costs.seconds_per_insert + cold),
    )


def plans(
    bits: int, k: int, documents: int, *, query_k: int | None = None, costs: Costs = DEFAULT_COSTS
) -> list[Plan]:
    """List the plans for a width, a k and a number of documents, the best first.

    With a `query_k` they are chosen for queries with that k instead, if any tables serve it.
    """
    if bits not in WIDTHS:
        raise PlanError(f"fingerprints of {bits} bits", hint="Choose 32, 64 or 128 bits.")
    if not 0 <= k <= LARGEST_K:
        raise PlanError(f"a plan for k = {k}", hint=f"Choose k from 0 to {LARGEST_K}.")
    if documents < 1:
        raise PlanError(f"a plan for {documents} documents", hint="Plan for at least one.")
    wider = query_k is not None and query_k > k
    found = list(_feasible(bits, k, query_k)) if wider else []
    if not found:
        query_k, found = None, list(_feasible(bits, k))
    if not found:
        nearest = next(less for less in range(k, -1, -1) if any(_feasible(bits, less)))
        raise PlanError(
            f"k = {k} in {bits} bits takes too many probes, or probes that read too much",
            hint=f"With {bits} bits k can be {nearest}; or take wider fingerprints.",
        )

    return sorted(
        found, key=lambda plan: estimate(plan, documents, query_k, costs).seconds_per_document
    )


def _probed(plan: Plan, k: int | None = None) -> tuple[int, float]:
    """How many probes a query makes, and which share of all fingerprints they read."""
    probes = plan.probes(k)
    count = sum(len(masks) for _, masks in probes)
    share = sum(len(masks) / 2 ** plan.tables[table].prefix for table, masks in probes)
    return count, share


def _feasible(bits: int, k: int, query_k: int | None = None) -> Iterator[Plan]:
    """All designs whose probes are neither too many nor too wide, and that nothing else beats."""
    known: list[tuple[int, int, float]] = []
    for plan in sorted(_designs(bits, k, query_k or k), key=lambda plan: len(plan.tables)):
        try:
            probes, share = _probed(plan, query_k)
        except PlanError:
            continue
        burden = (len(plan.tables), probes, share)
        beaten = any(all(map(le, other, burden)) for other in known)
        if share <= LARGEST_SHARE and not beaten:
            known.append(burden)
            yield plan


def _designs(bits: int, k: int, query_k: int) -> Iterator[Plan]:
    if k == 0:
        yield home_plan(bits, k, min(bits, HOME_PREFIX))
        return
    # Fewer blocks than k + 1 make fewer tables with longer prefixes, at the price of flipped bits.
    # More of them have shorter prefixes, which a query with a larger k flips fewer bits of.
    for blocks in range(2, query_k + 2):
        yield choose_plan(bits, k, blocks)
    for choose in range(2, MOST_CHOSEN + 1):
        if comb(k + choose, choose) <= MOST_TABLES and k + choose <= bits:
            yield choose_plan(bits, k, choose=choose)
    if (k + 1) ** 2 <= MOST_TABLES:
        yield nested_plan(bits, k)


# From the smallest Jaccard similarity that is wanted to k, for 64 bits and the recipe web. The
# comments give the shares of pairs that similar which lie within k (news-zh, laws-zh, reuters-en).
_K_OF_64 = (
    (0.95, 6),  # .99, 1, 1
    (0.8, 7),  # .98, 1, .99
    (0.75, 8),  # .99, 1, .98
    (0.7, 9),  # .99, 1, .99
    (0.6, 12),  # .95, 1, .97
    (0.5, 15),  # .91, 1, .97
)
# What a near-duplicate usually is; tables of a database with sketches are chosen for it.
USUAL = 0.8


def first_look(bits: int, k: int, min_jaccard: float) -> int:
    """Return the k that finds the texts with a Jaccard similarity, at least the database's own k.

    Raises:
        InputError: No k is known for a similarity that low.
    """
    for least, within in _K_OF_64:
        if min_jaccard >= least:
            # A distance grows with the bits; for 32 of them the half is rounded up.
            return max(k, -(-within * bits // 64))
    raise InputError(
        f"no k is known that finds the texts with a Jaccard similarity of {min_jaccard}, "
        f"expected at least {_K_OF_64[-1][0]}",
        hint="give the k of the first look as well; 16 of 64 bits hold most texts at .5",
    )
