"""Describe which tables a database keeps, and build the known designs as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from typing import Any

from fpdb.errors import PlanError
from fpdb.tables.bits import Permutation
from fpdb.tables.probes import TableProbes, find_probes

# As many sub-databases as the storage opens, with room for those of the documents.
MOST_TABLES = 64
# No database has so many documents that a longer prefix would leave out more of them.
_LONGEST_PREFIX = 64


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
        """A mask of those bits of the unpermuted fingerprint that are in the prefix."""
        bits = self.permutation.bits
        return self.permutation.inverse.apply_one(((1 << self.prefix) - 1) << (bits - self.prefix))


@dataclass(frozen=True)
class Plan:
    """The tables chosen for fingerprints of `bits` bits, of which those within `k` match.

    The first is the home table, whose permutation is the identity. For any tables and any k of a
    query, `probes` leaves nothing within k out: tables that fit less well only take more of them.
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
        """Return the plan with a table for each block of these sizes, the highest bits first."""
        return choose_plan(sum(sizes), k, sizes=sizes)

    @property
    def name(self) -> str:
        """The plan in short, e.g. `4 tables, p=16`."""
        tables = "1 table" if len(self.tables) == 1 else f"{len(self.tables)} tables"
        return f"{tables}, p={self.prefix}"

    @property
    def prefix(self) -> int:
        """The shortest prefix of all tables."""
        return min(table.prefix for table in self.tables)

    def probes(self, k: int | None = None) -> tuple[TableProbes, ...]:
        """Return the lookups that find everything within k, by default the plan's own.

        Raises:
            PlanError: k is out of range, or takes too many probes.
        """
        wanted = self.k if k is None else k
        known = self._probes.get(wanted)
        if known is None:
            if not 0 <= wanted <= self.bits:
                raise PlanError(
                    f"k = {wanted} in {self.bits} bits", hint=f"Ask for k from 0 to {self.bits}."
                )
            known = find_probes([table.held for table in self.tables], wanted)
            self._probes[wanted] = known
        return known

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        tables = [
            {"blocks": [list(block) for block in table.permutation.blocks], "prefix": table.prefix}
            for table in self.tables
        ]
        return {"bits": self.bits, "k": self.k, "tables": tables}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Plan":
        """Return the plan that plain data describe; raise PlanError if they describe none."""
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
    """Return the plan that has only a home table."""
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
    """Let each block lead, followed by each block of a second cut of all that remains.

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
    prefix = min(sum(length for _, length in front), _LONGEST_PREFIX)
    return Table(Permutation(bits, (*front, *rest)), prefix)


def _cut(bits: int, blocks: int) -> tuple[tuple[int, int], ...]:
    """Cut bits into blocks of about equal length, the longer ones first."""
    if not 1 <= blocks <= bits:
        raise PlanError(
            f"{bits} bits can't be cut into {blocks} blocks",
            hint="Choose a smaller k, or wider fingerprints.",
        )
    short, longer = divmod(bits, blocks)
    return _cut_by_hand(bits, [short + (block < longer) for block in range(blocks)])


def _cut_by_hand(bits: int, sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    if sum(sizes) != bits or min(sizes, default=0) < 1:
        raise PlanError(
            f"blocks of {list(sizes)} bits don't make {bits}",
            hint=f"Let the sizes add up to {bits}.",
        )
    return tuple(zip(accumulate(sizes, initial=0), sizes, strict=False))


def _locate(block: tuple[int, int], within: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pieces of the fingerprint that a block covers of others laid end to end."""
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
