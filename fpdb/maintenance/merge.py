"""Merge databases into a new one, which is built beside its path, checked, and moved there.

Each source is one sorted stream of keys, of ids, of records; a merge reads the streams side by
side, and the tables are loaded in bulk. A merge that is cut short leaves nothing to go on with.
"""

import contextlib
import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import Any, Literal

import numpy as np

from fpdb.arrays import Column
from fpdb.documents.catalog import Catalog, View
from fpdb.documents.layout import (
    layout,
    new_database,
    read_files,
    read_layout,
    replanned,
    write_files,
)
from fpdb.errors import DamagedError, InputError, RecipeMismatchError
from fpdb.maintenance.check import check, require_complete_copy
from fpdb.maintenance.rebuild import CopySource, copy_documents, write_tables
from fpdb.models import Merged, MergedSource, require_choice, require_whole
from fpdb.progress import tracked
from fpdb.storage import Environment, Ongoing, ReadTransaction, WriteTransaction, open_checks
from fpdb.storage.format import PASSAGES, Counters, Header, StoredRun
from fpdb.tables.bits import Fingerprints
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY

RULES = ("newest", "first")

# A key, the place of its source, its id; an integer key also has the rest of its row of `ids`.
_SourceKey = tuple[Any, ...]


def merge(
    sources: Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    keep: Literal["newest", "first"] = "newest",
    capacity: int | None = None,
    memory: int = MEMORY,
) -> Merged:
    """Write the documents of several databases, which have the same recipe, into a new one.

    Of documents with the same key, the `newest` stays, which is the one that was added last, and of
    equally old ones that of the first source; or that of the `first` source. Integer keys stay the
    ids; otherwise the ids follow the order of the sources, and in each of them that of its own ids.

    The tables are those of the sources if these are the same and the capacity suffices; otherwise
    those of the best plan for the number of documents. Sorting takes about `memory` bytes.

    Each source is read in one snapshot. The new database appears at its path when it is complete,
    on disk, and checked deeply. If the merge fails or is killed, nothing appears.

    Raises:
        RecipeMismatchError: The sources have different recipes, kinds of keys, similarities or k.
        DamagedError: A source is damaged.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    require_choice("keep", keep, RULES)
    directory = open_checks.resolved(path)
    open_checks.require_vacant(directory)
    with contextlib.ExitStack() as draft:
        with contextlib.ExitStack() as held:
            opened = [_open(source, held) for source in _distinct(sources)]
            _require_alike(opened)
            described = _header(opened, capacity)
            built = draft.enter_context(Environment.build(directory, *new_database(described)))
            with built.write() as into:
                counters, taken = _write(into, layout(described)[1], opened, keep)

            def places(_: ReadTransaction) -> Iterator[tuple[Fingerprints, Column]]:
                return chain.from_iterable(source.places() for source in opened)

            write_tables(built, described, counters, places, memory)
        # The check needs neither the snapshots, which keep other files growing, nor this handle.
        built.close()
        for problem in check(built.path, deep=True):
            raise DamagedError(
                f"what was merged for {directory} is damaged: {problem.where}: {problem.what}",
                hint="run `fpdb check` on the databases that it was made of",
            )
    return Merged(directory, sum(source.documents for source in taken), taken)


def _distinct(sources: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    if isinstance(sources, str | bytes | os.PathLike):
        raise InputError(f"found {sources!r}, expected several paths", hint="give a list of paths")
    known: dict[open_checks.Identity, str | os.PathLike[str]] = {}
    for source in sources:
        identity = open_checks.identify(open_checks.resolved(source))
        if identity in known:
            raise InputError(
                f"{known[identity]} and {source} are the same database",
                hint="name each database once",
            )
        known[identity] = source
    if not known:
        raise InputError("found no database to merge", hint="name at least one")
    return list(known.values())


def _open(path: str | os.PathLike[str], held: contextlib.ExitStack) -> CopySource:
    """Open a source, and a snapshot of it, until a stack ends."""
    environment = held.enter_context(
        Environment.open(path, readonly=True, verify=require_complete_copy)
    )
    described, index, catalog = read_layout(environment)
    txn = held.enter_context(environment.read())
    return CopySource(environment.path, described, View(txn, index, catalog))


def _require_alike(opened: Sequence[CopySource]) -> None:
    first, *others = (
        {
            **each.header,
            "k": each.header["plan"]["k"],
            "passages": PASSAGES in each.header["features"],
        }
        for each in opened
    )
    for source, other in zip(opened[1:], others, strict=True):
        for name in ("recipe_id", "keys", "similarity", "k", "passages"):
            one, two = first.get(name), other.get(name)
            if one != two:
                again = name in {"similarity", "k"} and None not in (one, two)
                raise RecipeMismatchError(
                    f"{opened[0].path} (recipe {first['recipe'].get('name')}) was created with "
                    f"{name}={one}, {source.path} (recipe {other['recipe'].get('name')}) with "
                    f"{name}={two}",
                    hint=f"compact one of them with the {name} of the other"
                    if again
                    else "ingest the texts of one of them again, with the options of the other",
                )


def _header(opened: Sequence[CopySource], capacity: int | None) -> Header:
    """Describe the new database: as the sources, with tables that suit all their documents."""
    first = opened[0]
    stored = [source.view.index.plan for source in opened]
    total = sum(source.view.counters.documents for source in opened)
    room = max(source.header["capacity"] for source in opened)
    if capacity is None and total <= room and all(each == stored[0] for each in stored):
        return replanned({**first.header, "capacity": room}, k=None, capacity=None)
    wanted = max(total, room) if capacity is None else capacity
    return replanned(first.header, k=None, capacity=wanted)


def _write(
    into: WriteTransaction, catalog: Catalog, sources: Sequence[CopySource], rule: str
) -> tuple[Counters, tuple[MergedSource, ...]]:
    """Write the documents; return the counters, and what was taken of each source."""
    next_id = 0
    if catalog.kind == "text":
        for source in sources:
            source.base = next_id
            with Ongoing(source.view.txn), source.view.txn.cursor("documents") as cursor:
                next_id += int.from_bytes(cursor.key()) + 1 if cursor.last() else 0
    read = [_keys(place, source) for place, source in enumerate(sources)]
    total = sum(source.view.counters.documents for source in sources)
    kept = _kept(sources, tracked(heapq.merge(*read), "merge the keys", "key", total), rule)
    moved = ((key, number + sources[place].base, *rest) for key, place, number, *rest in kept)
    # All keys are read here, so then it is known which documents are dropped.
    catalog.fill_keys(into, moved)
    for source in sources:
        np.frombuffer(source.dropped, np.uint64).sort()
    copy_documents(into, sources)
    taken = tuple(
        MergedSource(s.path, s.view.counters.documents - len(s.dropped), len(s.dropped))
        for s in sources
    )
    documents, short = sum(each.documents for each in taken), into.entries("short")
    sketches = sum(map(_sketches, sources)) if catalog.sketched else None
    runs = [run for s in sources for run in s.read(read_files(s.view.txn, StoredRun))]
    write_files(into, sorted(runs, key=attrgetter("finished")))
    return Counters(next_id, documents, short, 1, sketches), taken


def _keys(place: int, source: CopySource) -> Iterator[_SourceKey]:
    """Yield the keys of a source in order, with its place."""
    entries = source.view.catalog.key_entries(source.view.txn)
    return ((key, place, *rest) for key, *rest in source.read(entries))


def _kept(
    sources: Sequence[CopySource], keys: Iterable[_SourceKey], rule: str
) -> Iterator[_SourceKey]:
    """Yield each key once, with the document that stays; note the others as dropped."""
    for _, group in groupby(keys, key=itemgetter(0)):
        rivals = list(group)
        kept = rivals[0]
        if len(rivals) > 1 and rule == "newest":  # the first of equally old ones
            kept = max(rivals, key=lambda rival: _added(sources[rival[1]], *rival[2:]))
        for rival in rivals:
            if rival is not kept:
                sources[rival[1]].dropped.append(rival[2])
        yield kept


def _added(source: CopySource, number: int, *row: int) -> int:
    if row:  # of an integer key
        return row[-1]
    [stored] = source.read(map(source.view.catalog.named, [source.view.txn], [number]))
    return stored.added


def _sketches(source: CopySource) -> int:
    """Count the sketches of the documents that aren't dropped."""
    catalog, txn = source.view.catalog, source.view.txn
    found = (catalog.record(txn, number) for number in source.dropped)
    dropped = sum(stored is not None and bool(stored.sketch) for stored in found)
    return (source.view.counters.sketches or 0) - dropped
