"""Merge databases into a new one, by steps of which each may be the last for now."""

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from fpdb.database import Database
from fpdb.documents import new_database, replanned
from fpdb.errors import (
    DamagedError,
    InputError,
    KeyConflictError,
    RecipeMismatchError,
)
from fpdb.maintenance import merge as work
from fpdb.maintenance.check import check
from fpdb.maintenance.origins import Origin
from fpdb.maintenance.winners import RULES
from fpdb.models import Merged, MergedSource, require_whole
from fpdb.storage import Environment, drafts, open_checks
from fpdb.storage.aside import Numbers
from fpdb.storage.drafts import Draft
from fpdb.storage.format import Counters, Header
from fpdb.tables import Index, Plan
from fpdb.tables.bulk_load import LEAST_MEMORY, MEMORY

# What the name of a work means; another fpdb may go on with a draft only if it means the same.
_FORM = 1
_USELESS = (KeyConflictError, DamagedError)


def merge(
    sources: Iterable[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    on_conflict: Literal["newest", "first", "error"] = "newest",
    k: int | None = None,
    capacity: int | None = None,
    plan: Plan | None = None,
    memory: int = MEMORY,
) -> Merged:
    """Write the documents of several databases, which have the same recipe, into a new one.

    Of documents with the same key the `newest` stays, the one that was added last, and of equally
    old ones that of the first source; or that of the `first` source; or it is an `error` that they
    differ in more than the time when they were added. Integer keys stay the ids; otherwise the
    ids follow the order of the sources, and in each of them that of its own ids.

    Tables are those of the sources if these are the same and the capacity suffices; else those of
    the best plan for the k, and for as many documents as there are. Sorting takes about `memory`
    bytes.

    Each source is read in one snapshot. The new database is checked, deeply, before it appears at
    its path, on disk for good. A merge that is cut short leaves a draft beside the path, and the
    same merge goes on from there, unless a source has been written to.
    """
    require_whole("memory", memory, LEAST_MEMORY)
    if on_conflict not in RULES:
        raise InputError(
            f"found on_conflict={on_conflict!r}, expected one of {', '.join(RULES)}",
            hint="newest keeps the document that was added last",
        )
    directory = Path(os.path.realpath(path))
    open_checks.require_vacant(directory)
    with contextlib.ExitStack() as claim:
        with contextlib.ExitStack() as stack:
            opened = [
                stack.enter_context(_Source.open(source, readonly=True))
                for source in _distinct(sources)
            ]
            _require_alike(opened)
            for source in opened:
                stack.enter_context(source.moment)
            head = _header(opened, k, capacity, plan)
            name = _work(opened, on_conflict, head)
            index = Index(Plan.from_dict(head["plan"]))
            names, first = new_database(head)
            entries = work.begun(len(opened), sketched=opened[0].sketch is not None)
            first = {"header": {**first["header"], **entries}}
            draft = claim.enter_context(drafts.lasting(directory, name, names, first, _USELESS))
            origins = _origins(opened, draft)
            with Environment.open(draft.path, names) as built:
                work.merge(origins, built, index, rule=on_conflict, memory=memory)
            taken = tuple(
                MergedSource(origin.path, origin.counters.documents - lost, lost)
                for origin in origins
                for lost in [len(origin.dropped)]
            )
        # The check needs no snapshots, which keep the files of others growing.
        _require_sound(draft, directory)
    return Merged(directory, sum(source.documents for source in taken), taken, draft.begun)


class _Source(Database):
    """A database that is merged, with the snapshot of it that is read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.moment = self._environment.read()

    @property
    def head(self) -> Header:
        """Its header."""
        return self._header

    def counters(self) -> Counters:
        """Count what the snapshot holds."""
        return Counters.unpack(self.moment.get("header", b"counters"))

    def state(self) -> list[str | int]:
        """Say which state of which database the snapshot is."""
        counters = self.counters().pack().hex()
        return [str(self.path), self._header["uuid"], counters, self.moment.number()]

    def origin(self, base: int, dropped: Numbers) -> Origin:
        """Give it as the merge reads it."""
        return Origin(
            self.path, self._index, self._catalog, self.moment, self.counters(), base, dropped
        )


def _distinct(sources: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """Refuse a source that is named twice."""
    if isinstance(sources, str | bytes | os.PathLike) or not isinstance(sources, Iterable):
        raise InputError(
            f"found {sources!r:.40}, expected several paths", hint="give a list of paths"
        )
    known: dict[open_checks.Identity, str | os.PathLike[str]] = {}
    for source in sources:
        identity = open_checks.identify(Path(os.path.realpath(source)))
        if identity in known:
            raise InputError(
                f"{known[identity]} and {source} are the same database",
                hint="name each database once",
            )
        known[identity] = source
    if not known:
        raise InputError("found no database to merge", hint="name at least one")
    return list(known.values())


def _require_alike(opened: Sequence[_Source]) -> None:
    """Refuse databases whose documents can't stand in one."""
    first, *others = opened
    for other in others:
        recipes = [
            (each.head["recipe"].get("name"), each.head["recipe_id"]) for each in (first, other)
        ]
        if recipes[0][1] != recipes[1][1]:
            raise RecipeMismatchError(
                f"{first.path} was created with the recipe {recipes[0][0]} ({recipes[0][1]}), "
                f"{other.path} with {recipes[1][0]} ({recipes[1][1]})",
                hint="merge databases of one recipe; ingest the texts of the other one anew",
            )
        if first.keys != other.keys:
            raise InputError(
                f"{first.path} has {first.keys} keys, {other.path} has {other.keys} keys",
                hint="merge databases with keys of one kind; ingest the other one anew",
            )
        if first.sketch != other.sketch:
            with_none, keeper = (first, other) if other.sketch else (other, first)
            raise InputError(
                f"{keeper.path} keeps sketches, {with_none.path} keeps none",
                hint="ingest the texts of one of them anew, with the same --sketch as the other",
            )


def _header(
    opened: Sequence[_Source], k: int | None, capacity: int | None, plan: Plan | None
) -> Header:
    """Describe the new database: as the sources, with tables that suit all their documents."""
    first = opened[0]
    ks = sorted({source.k for source in opened})
    if k is None and len(ks) > 1:
        raise InputError(
            f"the databases were created for k={', '.join(map(str, ks))}",
            hint="say for which k the new one is to be made",
        )
    wanted = ks[0] if k is None else k
    total = sum(source.counters().documents for source in opened)
    room = max(source.head["capacity"] for source in opened)
    if plan is None:
        alike = all(source.plan == first.plan for source in opened) and wanted == first.k
        if alike and capacity is None and total <= room:
            plan = first.plan
    room = max(total, room) if capacity is None else capacity
    return replanned(first.head, k=wanted, capacity=room, plan=plan)


def _work(opened: Sequence[_Source], rule: str, head: Header) -> bytes:
    """Name all that the result depends on."""
    states = [source.state() for source in opened]
    work = [_FORM, states, rule, head["plan"], head["capacity"]]
    return json.dumps(work, sort_keys=True).encode()


def _origins(opened: Sequence[_Source], draft: Draft) -> list[Origin]:
    origins: list[Origin] = []
    base = 0
    for number, source in enumerate(opened):
        origins.append(source.origin(base, Numbers(draft.aside(number))))
        base = origins[-1].behind() if source.keys == "text" else 0
    return origins


def _require_sound(draft: Draft, directory: Path) -> None:
    for problem in check(draft.path, deep=True):
        raise DamagedError(
            f"what was merged for {directory} isn't whole: {problem.where}: {problem.what}",
            hint="run `fpdb check --deep` on the databases that it was made of",
        )
