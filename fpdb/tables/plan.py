"""Describe which tables a database keeps, and build the known designs as data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import accumulate, combinations, pairwise
from typing import Any

from fpdb.errors import PlanError
from fpdb.tables.bands import Bands
from fpdb.tables.bits import Permutation
from fpdb.tables.probes import TableProbes, find_probes

# As many sub-databases as the storage opens, with room for those of the documents.
MOST_TABLES = 64
# In a database of any size, a longer prefix leaves out no more documents.
_LONGEST_PREFIX = 64


def require_k(k: int, bits: int) -> None:
    """Raise PlanError if no two fingerprints of so many bits have a distance."""
    if not 0 <= k <= bits:
        raise PlanError(f"k = {k} in {bits} bits", hint=f"use k from 0 to {bits}")


@dataclass(frozen=True)
class Table:
    """One table: fingerprints in the order of their permuted bits, probed by a prefix of them."""

    permutation: Permutation
    prefix: int

    def __post_init__(self) -> None:
        if not 1 <= self.prefix <= self.permutation.bits:
            raise PlanError(
                f"a prefix of {self.prefix} bits on a table of {self.permutation.bits}",
                hint=f"a prefix has 1 to {self.permutation.bits} bits",
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
    A database that keeps sketches has `bands` as well.
    """

    bits: int
    k: int
    tables: tuple[Table, ...]
    bands: Bands | None = None

    def __post_init__(self) -> None:
        require_k(self.k, self.bits)
        if len(self.tables) > MOST_TABLES:
            raise PlanError(
                f"a plan of {len(self.tables)} tables; at most {MOST_TABLES} are kept",
                hint="choose fewer blocks for the front of each table",
            )
        if not self.tables or not self.tables[0].permutation.identity:
            raise PlanError(
                "the first table isn't a home table",
                hint="let the permutation of the first table leave every bit where it is",
            )
        for table in self.tables:
            if table.permutation.bits != self.bits:
                raise PlanError(
                    f"a table of {table.permutation.bits} bits in a plan for {self.bits}",
                    hint="let all tables of a plan have its width",
                )

    @property
    def name(self) -> str:
        """The plan in short, e.g. `4 tables, p=16; 10 bands of 6 bins`."""
        many = "table" if len(self.tables) == 1 else "tables"
        tables = f"{len(self.tables)} {many}, p={self.prefix}"
        return f"{tables}; {self.bands.name}" if self.bands else tables

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
        require_k(wanted, self.bits)
        return find_probes(tuple([table.held for table in self.tables]), wanted)

    def reads(self, k: int | None = None) -> tuple[int, float]:
        """Return the number of probes of a query, and the share of all fingerprints that they read.

        Raises:
            PlanError: As in `probes`.
        """
        probes = self.probes(k)
        count = sum(len(masks) for _, masks in probes)
        share = sum(len(masks) / 2 ** self.tables[table].prefix for table, masks in probes)
        return count, share

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        tables = [
            {"blocks": [list(block) for block in table.permutation.blocks], "prefix": table.prefix}
            for table in self.tables
        ]
        plain: dict[str, Any] = {"bits": self.bits, "k": self.k, "tables": tables}
        if self.bands:
            plain["bands"] = asdict(self.bands)
        return plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Plan":
        """Return the plan that plain data describe; raise PlanError if they describe none."""
        try:
            bits, k = _whole(data["bits"]), _whole(data["k"])
            shape = data.get("bands")
            bands = (
                Bands(*(_whole(shape[field.name]) for field in fields(Bands))) if shape else None
            )
            tables = []
            for table in data["tables"]:
                blocks = tuple((_whole(start), _whole(length)) for start, length in table["blocks"])
                tables.append(Table(Permutation(bits, blocks), _whole(table["prefix"])))
        except PlanError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PlanError(
                f"this is no plan: {error!r}",
                hint="a plan has bits, k, and tables, each with its blocks and its prefix",
            ) from error
        return cls(bits, k, tuple(tables), bands)


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is no whole number")


def home_plan(bits: int, k: int, prefix: int) -> Plan:
    """Return the plan that has only a home table."""
    return Plan(bits, k, (Table(Permutation(bits, ((0, bits),)), prefix),))


def choose_plan(bits: int, k: int, blocks: int | None = None, choose: int = 1) -> Plan:
    """Cut the bits into blocks; each choice of `choose` of them leads one table.

    With k + `choose` blocks, which is the default, k changed bits always leave one choice intact.
    """
    cut = _cut(bits, k + choose if blocks is None else blocks)
    return Plan(bits, k, tuple(_table(front, cut) for front in combinations(cut, choose)))


def nested_plan(bits: int, k: int) -> Plan:
    """Let each block lead, followed by each block of a second cut of all that remains.

    With k + 1 blocks in both cuts, k changed bits leave one pair of blocks intact.
    """
    tables = []
    for start, length in _cut(bits, k + 1):
        lead = range(start, start + length)
        remainder = [bit for bit in range(bits) if bit not in lead]
        for at, size in _cut(len(remainder), k + 1):
            order = [*lead, *remainder[at : at + size], *remainder[:at], *remainder[at + size :]]
            turns = [place for place in range(1, bits) if order[place] != order[place - 1] + 1]
            blocks = [(order[low], high - low) for low, high in pairwise([0, *turns, bits])]
            prefix = min(length + size, _LONGEST_PREFIX)
            tables.append(Table(Permutation(bits, tuple(blocks)), prefix))
    return Plan(bits, k, tuple(tables))


def _table(front: Sequence[tuple[int, int]], cut: Sequence[tuple[int, int]]) -> Table:
    back = [block for block in cut if block not in front]
    bits = sum(length for _, length in cut)
    prefix = min(sum(length for _, length in front), _LONGEST_PREFIX)
    return Table(Permutation(bits, (*front, *back)), prefix)


def _cut(bits: int, blocks: int) -> list[tuple[int, int]]:
    """Cut bits into blocks of about equal length, the longer ones first."""
    short, longer = divmod(bits, blocks)
    sizes = [short + (block < longer) for block in range(blocks)]
    return list(zip(accumulate(sizes, initial=0), sizes, strict=False))
