"""Describe which tables a database keeps, and build the known designs as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from typing import Any, NamedTuple

from fpdb.errors import PlanError
from fpdb.tables.bits import Permutation
from fpdb.tables.probes import ball, masks, radii

# More probes than this, and reading the whole home table is the better query.
MOST_PROBES = 20_000
# As many sub-databases as the storage opens, with room for those of the documents.
MOST_TABLES = 64
# No database has so many documents that a longer prefix would leave out more of them.
LONGEST_PREFIX = 64

Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Table:
    """One table: fingerprints in the order of their permuted bits, probed by a prefix of them."""

    permutation: Permutation
    prefix: int

    def __post_init__(self) -> None:
        if not 1 <= self.prefix <= self.permutation.bits:
            raise PlanError(
                f"a prefix of {self.prefix} bits on a table of {self.permutation.bits}",
                hint=f"A prefix has 1 to {self.permutation.bits} bits.",
            )

    @property
    def held(self) -> int:
        """A mask of those bits of the unpermuted fingerprint that stand in the prefix."""
        bits = self.permutation.bits
        return self.permutation.inverse.apply_one(((1 << self.prefix) - 1) << (bits - self.prefix))


class TableProbes(NamedTuple):
    """The probes of one query into one table: its prefix, changed by each of the masks."""

    table: int
    masks: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The tables chosen for fingerprints of `bits` bits, of which those within `k` match.

    The first is the home table, whose permutation is the identity. Whatever the tables are, and
    whatever k a query asks for, `probes` leaves nothing within k unfound: tables that fit less
    well only take more of them.
    """

    bits: int
    k: int
    tables: tuple[Table, ...]
    _probes: dict[int, tuple[TableProbes, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not 0 <= self.k <= self.bits:
            raise PlanError(f"k = {self.k} in {self.bits} bits", hint="Choose k from 0 to 16.")
        if len(self.tables) > MOST_TABLES:
            raise PlanError(
                f"a plan of {len(self.tables)} tables; at most {MOST_TABLES} are kept",
                hint="Choose fewer blocks for the front of each table.",
            )
        if not self.tables or not self.tables[0].permutation.identity:
            raise PlanError(
                "the first table isn't a home table",
                hint="Let the permutation of the first table leave every bit where it is.",
            )
        for table in self.tables:
            if table.permutation.bits != self.bits:
                raise PlanError(
                    f"a table of {table.permutation.bits} bits in a plan for {self.bits}",
                    hint="Let all tables of a plan have its width.",
                )

    @classmethod
    def from_blocks(cls, sizes: Sequence[int], k: int) -> "Plan":
        """Cut fingerprints into blocks of these sizes, the highest bits first; a table for each."""
        return choose_plan(sum(sizes), k, sizes=sizes)

    @property
    def name(self) -> str:
        """The plan in short, as `4 tables, p=16`."""
        tables = "1 table" if len(self.tables) == 1 else f"{len(self.tables)} tables"
        return f"{tables}, p={self.prefix}"

    @property
    def prefix(self) -> int:
        """The shortest prefix of all tables."""
        return min(table.prefix for table in self.tables)

    def probes(self, k: int | None = None) -> tuple[TableProbes, ...]:
        """Which prefixes a query must look up to find everything within k.

        A mask changes the prefix as a number of its own: bit 0 is the last bit of the prefix.
        """
        wanted = self.k if k is None else k
        known = self._probes.get(wanted)
        if known is None:
            known = self._probes[wanted] = self._find_probes(wanted)
        return known

    def _find_probes(self, k: int) -> tuple[TableProbes, ...]:
        if not 0 <= k <= self.bits:
            raise PlanError(
                f"k = {k} in {self.bits} bits", hint=f"Ask for k from 0 to {self.bits}."
            )
        found = radii([table.held for table in self.tables], k)
        count = sum(
            ball(table.prefix, radius) for table, radius in zip(self.tables, found, strict=True)
        )
        if count > MOST_PROBES:
            raise PlanError(
                f"k = {k} takes {count:,} probes on {self.name}; at most {MOST_PROBES:,} are made",
                hint=f"ask for a k nearer to {self.k}, or build tables for a larger one",
            )
        return tuple(
            TableProbes(index, masks(table.prefix, radius))
            for index, (table, radius) in enumerate(zip(self.tables, found, strict=True))
            if radius >= 0
        )

    def to_dict(self) -> dict[str, Any]:
        """Write the plan as plain data."""
        tables = [
            {"blocks": [list(block) for block in table.permutation.blocks], "prefix": table.prefix}
            for table in self.tables
        ]
        return {"bits": self.bits, "k": self.k, "tables": tables}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Plan":
        """Read a plan from plain data; anything amiss is a PlanError."""
        try:
            bits, k = _whole(data["bits"]), _whole(data["k"])
            tables = []
            for table in data["tables"]:
                blocks = tuple((_whole(start), _whole(length)) for start, length in table["blocks"])
                tables.append(Table(Permutation(bits, blocks), _whole(table["prefix"])))
        except PlanError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(
                f"this is no plan: {error!r}",
                hint="A plan has bits, k, and tables, each with its blocks and its prefix.",
            ) from error
        return cls(bits, k, tuple(tables))


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is no whole number")


def home_plan(bits: int, k: int, prefix: int) -> Plan:
    """Build the plan that has nothing but a home table."""
    return Plan(bits, k, (Table(Permutation(bits, ((0, bits),)), prefix),))


def choose_plan(
    bits: int,
    k: int,
    blocks: int | None = None,
    choose: int = 1,
    sizes: Sequence[int] | None = None,
) -> Plan:
    """Cut the bits into blocks; each choice of `choose` of them leads one table.

    With k + `choose` blocks, which is the default, k changed bits always leave one choice intact.
    `sizes` cuts by hand, the most significant block first.
    """
    cut = (
        _cut(bits, k + choose if blocks is None else blocks)
        if sizes is None
        else _cut_by_hand(bits, sizes)
    )
    if not 1 <= choose <= len(cut):
        raise PlanError(
            f"choose {choose} of {len(cut)} blocks",
            hint="Choose at least one block, and no more than there are.",
        )
    tables = [_table(bits, front, cut) for front in combinations(cut, choose)]
    return Plan(bits, k, tuple(tables))


def nested_plan(bits: int, k: int, outer: int | None = None, inner: int | None = None) -> Plan:
    """Let each block lead, and behind it each block of a second cut of all that remains.

    With k + 1 blocks in both cuts, the default, k changed bits leave one pair of blocks intact.
    """
    tables: list[Table] = []
    first = _cut(bits, k + 1 if outer is None else outer)
    for lead in first:
        rest = [block for block in first if block != lead]
        second = _cut(bits - lead[1], k + 1 if inner is None else inner)
        pieces = [_locate(block, rest) for block in second]
        flat = [piece for located in pieces for piece in located]
        tables.extend(_table(bits, (lead, *located), flat) for located in pieces)
    return Plan(bits, k, tuple(tables))


def _table(bits: int, front: Sequence[tuple[int, int]], cut: Sequence[tuple[int, int]]) -> Table:
    rest = tuple(block for block in cut if block not in front)
    prefix = min(sum(length for _, length in front), LONGEST_PREFIX)
    return Table(Permutation(bits, (*front, *rest)), prefix)


def _cut(bits: int, blocks: int) -> Blocks:
    """Cut bits into blocks as even as possible, the longer ones first."""
    if not 1 <= blocks <= bits:
        raise PlanError(
            f"{bits} bits can't be cut into {blocks} blocks",
            hint="Choose a smaller k, or wider fingerprints.",
        )
    short, longer = divmod(bits, blocks)
    return _cut_by_hand(bits, [short + (block < longer) for block in range(blocks)])


def _cut_by_hand(bits: int, sizes: Sequence[int]) -> Blocks:
    if sum(sizes) != bits or min(sizes, default=0) < 1:
        raise PlanError(
            f"blocks of {list(sizes)} bits don't make {bits}",
            hint=f"Let the sizes add up to {bits}.",
        )
    return tuple(zip(accumulate(sizes, initial=0), sizes, strict=False))


def _locate(block: tuple[int, int], within: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Find the pieces of the fingerprint that a block covers of others laid end to end."""
    start, length = block
    pieces = []
    position = 0
    for other_start, other_length in within:
        low = max(start, position)
        high = min(start + length, position + other_length)
        if low < high:
            pieces.append((other_start + low - position, high - low))
        position += other_length
    return pieces
