"""The layout of a database: which tables and which catalog its header names, old or new."""

import uuid
from typing import Any

from fpdb.documents.catalog import Catalog, IntegerCatalog, TextCatalog
from fpdb.errors import DamagedError, PlanError
from fpdb.models import now, require_choice, require_whole
from fpdb.storage import Environment
from fpdb.storage.drafts import Entries
from fpdb.storage.format import (
    FILES,
    MINHASH,
    Counters,
    Header,
    pack_header,
    require_supported,
    unpack_header,
)
from fpdb.tables import Index, Plan, plans
from fpdb.tables.planner import USUAL, first_look

CATALOGS: dict[str, type[Catalog]] = {kind.kind: kind for kind in (TextCatalog, IntegerCatalog)}


def layout(stored: Header) -> tuple[Index, Catalog]:
    """Return the tables and the catalog that a header describes."""
    index = Index(Plan.from_dict(stored["plan"]))
    if stored["keys"] not in CATALOGS:
        raise DamagedError(
            f"the header names {stored['keys']!r} keys, expected one of {', '.join(CATALOGS)}",
            hint="restore the database from a backup",
        )
    return index, CATALOGS[stored["keys"]](index, sketched=stored.get("sketch") is not None)


def database_names(index: Index, catalog: Catalog) -> list[str]:
    """Return the names of all sub-databases."""
    return ["header", "counters", FILES, *catalog.names, *index.names]


def read_layout(environment: Environment) -> tuple[Header, Index, Catalog]:
    """Read the header of an environment, and check that it has what the header names."""
    environment.require(["header"])
    with environment.read() as txn:
        stored = unpack_header(txn.get("header", b"header") or b"")
    require_supported(stored, readonly=environment.readonly)
    index, catalog = layout(stored)
    environment.require(database_names(index, catalog))
    return stored, index, catalog


def new_header(
    recipe: dict[str, Any],
    recipe_id: str,
    *,
    bits: int,
    keys: str,
    sketch: str | None,
    k: int,
    capacity: int,
    plan: Plan | None = None,
) -> Header:
    """Describe a new database; without a plan, it gets the best one for its k and capacity.

    The recipe is plain data, so no secret is needed.
    """
    require_choice("keys", keys, CATALOGS)
    require_choice("sketch", sketch, (None, MINHASH))
    fields: Header = {
        "created_by": "fpdb",
        "keys": keys,
        "recipe": recipe,
        "recipe_id": recipe_id,
    }
    if sketch:
        fields |= {"sketch": sketch, "features": [sketch]}
    return _planned(fields, bits, k, capacity, plan)


def replanned(stored: Header, *, k: int | None, capacity: int | None, plan: Plan | None) -> Header:
    """Describe a copy of a database with a plan, or with the best plan for a k or a capacity.

    With none of the three, it keeps its plan.
    """
    current = Plan.from_dict(stored["plan"])
    if plan is None and capacity is None and k in {None, current.k}:
        plan = current
    return _planned(
        stored,
        current.bits,
        current.k if k is None else k,
        stored["capacity"] if capacity is None else capacity,
        plan,
    )


def _planned(fields: Header, bits: int, k: int, capacity: int, plan: Plan | None) -> Header:
    require_whole("k", k)
    require_whole("capacity", capacity, 1)
    if plan is None:
        # A database with sketches needs the tables that serve the first look of its questions.
        query_k = first_look(bits, k, USUAL) if fields.get("sketch") else None
        plan = plans(bits, k, capacity, query_k=query_k)[0]
    if (plan.bits, plan.k) != (bits, k):
        raise PlanError(
            f"the plan is made for {plan.bits} bits and k={plan.k}, expected {bits} bits and k={k}",
            hint="take one of fpdb.plans(bits, k, documents)",
        )
    return {**fields, "plan": plan.to_dict(), "capacity": capacity}


def new_database(described: Header, counters: Counters | None = None) -> tuple[list[str], Entries]:
    """Return the sub-databases and the first entries of a new database, to create it with.

    Use it as `Environment.build(path, *new_database(header))`. Its uuid and its time are new, but
    with the counters of another database it is a copy of that one, and keeps them.
    """
    index, catalog = layout(described)
    if counters is None:
        counters = Counters(sketches=0 if catalog.sketched else None)
        described = {**described, "uuid": str(uuid.uuid4()), "created": now()}
    first = {
        "header": {b"header": pack_header(described)},
        "counters": {b"counters": counters.pack()},
    }
    return database_names(index, catalog), first
