"""The layout of a database: the tables that its header names, and runs."""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from fpdb.documents.catalog import Catalog, IntegerCatalog, TextCatalog, View
from fpdb.errors import DamagedError, InputError, PlanError, RecipeMismatchError
from fpdb.fingerprint import Recipe, preset
from fpdb.models import (
    GROUPS,
    MINHASH,
    PASSAGES,
    Problem,
    Stats,
    TableStats,
    now,
    require_choice,
    require_similarity,
    require_whole,
)
from fpdb.storage import Environment, ReadTransaction, WriteTransaction
from fpdb.storage.drafts import Entries
from fpdb.storage.format import (
    RUNS,
    Counters,
    Header,
    StoredRun,
    pack_header,
    require_supported,
    unpack_header,
)
from fpdb.storage.open_checks import data_size
from fpdb.tables import Index, Plan, best_plan, choose_bands

CATALOGS: dict[str, type[Catalog]] = {kind.kind: kind for kind in (TextCatalog, IntegerCatalog)}


def layout(stored: Header) -> tuple[Index, Catalog]:
    """Return the tables and the catalog that a header describes."""
    plan, similarity = Plan.from_dict(stored["plan"]), stored.get("similarity")
    require_similarity(similarity)
    if (plan.bands is None) != (similarity is None):
        raise DamagedError(
            "the header has bands of sketches or a similarity, expected both or none",
            hint="restore the database from a backup",
        )
    features = stored.get("features", ())
    groups = similarity if GROUPS in features else None
    index = Index(plan, passages=PASSAGES in features, groups=groups)
    if stored["keys"] not in CATALOGS:
        raise DamagedError(
            f"the header names {stored['keys']!r} keys, expected one of {', '.join(CATALOGS)}",
            hint="restore the database from a backup",
        )
    return index, CATALOGS[stored["keys"]](index)


def database_names(index: Index, catalog: Catalog) -> list[str]:
    return ["header", "counters", RUNS, *catalog.names, *index.names]


def read_header(environment: Environment) -> Header:
    environment.require(["header"])
    with environment.read() as txn:
        return unpack_header(txn.get("header", b"header") or b"")


def read_layout(environment: Environment) -> tuple[Header, Index, Catalog]:
    """Read the header of an environment, and check that it has what the header names."""
    stored = read_header(environment)
    require_supported(stored, readonly=environment.readonly)
    index, catalog = layout(stored)
    environment.require(database_names(index, catalog))
    return stored, index, catalog


def header_for(
    recipe: str | Recipe = "web",
    *,
    similarity: float | Literal["recipe"] | None = "recipe",
    k: int | None = None,
    plan: Plan | None = None,
    **options: Any,
) -> tuple[Recipe, Header]:
    """Return the recipe and the header of a new database, from the arguments of `fpdb.create`."""
    chosen = preset(recipe) if isinstance(recipe, str) else recipe
    if similarity == "recipe":
        similarity = chosen.similarity
    if k is None:
        k = plan.k if plan else chosen.k
    described = {"bits": chosen.bits, "similarity": similarity, "k": k, "plan": plan, **options}
    return chosen, new_header(chosen.to_dict(), chosen.id, **described)


def require_created_with(recipe: Recipe | None, k: int | None, stored: Header, path: Path) -> None:
    """Raise RecipeMismatchError if a database was created with another recipe or another k."""
    if recipe is not None and recipe.id != stored["recipe_id"]:
        raise RecipeMismatchError(
            f"{path} was created with the recipe {stored['recipe'].get('name')} "
            f"({stored['recipe_id']}), found {recipe.name} ({recipe.id})",
            hint="leave the recipe out to use the stored one, or create another database",
        )
    if k not in {None, stored["plan"]["k"]}:
        raise RecipeMismatchError(
            f"{path} was created for k={stored['plan']['k']}, found k={k}",
            hint="query with k=…, or create another database",
        )


def new_header(
    recipe: dict[str, Any],
    recipe_id: str,
    *,
    bits: int,
    similarity: float | None,
    k: int,
    keys: str = "text",
    capacity: int = 1_000_000,
    plan: Plan | None = None,
    passages: bool = False,
    groups: bool = False,
) -> Header:
    """Describe a new database; without a plan, it gets the best one for what is asked of it.

    The recipe is plain data, so no secret is needed.
    """
    require_choice("keys", keys, CATALOGS)
    similarity = require_similarity(similarity)
    fields: Header = {"created_by": "fpdb", "keys": keys, "recipe": recipe, "recipe_id": recipe_id}
    if similarity is not None:
        fields["similarity"] = similarity
    elif groups:
        raise _groupless()
    wanted_features = (MINHASH, similarity is not None), (PASSAGES, passages), (GROUPS, groups)
    if features := [name for name, wanted in wanted_features if wanted]:
        fields["features"] = features
    return _planned(fields, bits, k, capacity, plan)


def replanned(
    stored: Header,
    *,
    k: int | None,
    capacity: int | None,
    similarity: float | None = None,
    passages: bool = False,
    groups: bool = False,
) -> Header:
    """Describe a copy of a database with the best plan for a k, a capacity or a similarity.

    With none of them, it keeps its plan. It may have groups, or room for passages, that the other
    one hasn't.
    """
    if groups and stored.get("similarity") is None:
        raise _groupless()
    wanted_features = (PASSAGES, passages), (GROUPS, groups)
    features = stored.get("features", [])
    more = [name for name, wanted in wanted_features if wanted and name not in features]
    if more:
        stored = {**stored, "features": [*features, *more]}
    current = Plan.from_dict(stored["plan"])
    stored_similarity = stored.get("similarity")
    if similarity is not None:
        similarity = require_similarity(similarity)
        if stored_similarity is None:
            raise InputError(
                "the database keeps no sketches, found a similarity",
                hint="ingest the texts into one that is created with it",
            )
    wanted = stored_similarity if similarity is None else similarity
    same = capacity is None and k in {None, current.k} and wanted == stored_similarity
    return _planned(
        stored if wanted is None else {**stored, "similarity": wanted},
        current.bits,
        current.k if k is None else k,
        stored["capacity"] if capacity is None else capacity,
        current if same else None,
    )


def _groupless() -> InputError:
    return InputError(
        "found groups in a database of bits, expected a similarity, by which documents are grouped",
        hint="create it with a similarity, or without groups",
    )


def _planned(
    fields: Header, bits: int, k: int | None, capacity: int | None, plan: Plan | None
) -> Header:
    k, capacity = require_whole("k", k), require_whole("capacity", capacity, 1)
    if k is None or capacity is None:
        raise InputError(
            f"found k {k} and capacity {capacity}, expected whole numbers",
            hint="leave them out for the defaults",
        )
    similarity = fields.get("similarity")
    if plan is None:
        plan = best_plan(bits, k, capacity, similarity=similarity)
    elif similarity is not None and plan.bands is None:
        plan = replace(plan, bands=choose_bands(similarity, capacity))
    elif similarity is None and plan.bands is not None:
        plan = replace(plan, bands=None)
    if (plan.bits, plan.k) != (bits, k):
        raise PlanError(
            f"the plan is made for {plan.bits} bits and k={plan.k}, expected {bits} bits and k={k}",
            hint="take one of the plans for these bits and this k",
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


def stats_of(view: View, head: Header, path: Path) -> Stats:
    """Return what a database at a path holds, and how."""
    txn, index, plan, counters = view.txn, view.index, view.index.plan, view.counters
    widths = [table.prefix for table in plan.tables]
    widths += [table.bits for table in index.of_texts]
    tables = zip(index.pages[: len(widths)], widths, strict=True)
    return Stats(
        path=str(path),
        uuid=head["uuid"],
        created=head["created"],
        recipe=head["recipe"]["name"],
        recipe_id=head["recipe_id"],
        bits=plan.bits,
        k=plan.k,
        keys=head["keys"],
        plan=plan.name,
        capacity=head["capacity"],
        documents=counters.documents,
        short=counters.short,
        bytes=data_size(path),
        bytes_used=sum(map(txn.bytes_of, database_names(index, view.catalog))),
        tables=tuple(
            TableStats(pages.name, bits, sum(map(txn.entries, pages.names)))
            for pages, bits in tables
        ),
        similarity=head.get("similarity"),
        sketches=counters.sketches,
        groups=view.catalog.grouped,
        snapshots=txn.open_snapshots(),
        unfinished=tuple(
            f"{run.begun} {run.command}".rstrip() for run in read_runs(txn) if not run.finished
        ),
    )


def read_runs(txn: ReadTransaction) -> Iterator[StoredRun]:
    """Yield the runs that added documents, or are about to."""
    with txn.cursor(RUNS) as cursor:
        for key, value in cursor:
            yield StoredRun.unpack(key, value)


def write_runs(txn: WriteTransaction, runs: Iterable[StoredRun]) -> None:
    """Store runs, each instead of one of the same records."""
    txn.put_many(RUNS, ((run.content, run.pack()) for run in runs))


def add_runs(txn: WriteTransaction, runs: Iterable[StoredRun]) -> None:
    """Store the finished runs of other databases; the others can only be finished there."""
    finished = [run for run in runs if run.finished]
    # Of those of the same records, a finished one stays.
    write_runs(txn, sorted([*finished, *read_runs(txn)], key=attrgetter("finished")))


def forget_runs(txn: WriteTransaction, contents: Iterable[bytes]) -> None:
    for content in contents:
        txn.delete(RUNS, content)


def check_runs(txn: ReadTransaction) -> Iterator[Problem]:
    """Yield the runs that can't be read."""
    with txn.cursor(RUNS) as cursor:
        for key, value in cursor:
            try:
                StoredRun.unpack(key, value)
            except DamagedError as error:
                yield Problem(RUNS, f"{bytes(key).hex()}: {error}")
