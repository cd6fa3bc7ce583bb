"""Decide the groups of documents: the keeper that each resembles most, and who follows a keeper."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import numpy as np

from fpdb.arrays import Marks, Strings
from fpdb.documents.batch_lookup import BatchLookup
from fpdb.documents.catalog import SLICE, View
from fpdb.documents.lookup import (
    Candidates,
    Search,
    answer,
    matched,
    nearest_each,
    not_found,
    to_match,
)
from fpdb.documents.similarity import KnownTexts
from fpdb.errors import DamagedError, InputError
from fpdb.models import KEEPER, Group, Key, Match, Matches
from fpdb.storage import WriteTransaction
from fpdb.storage.block import Block, TextColumns
from fpdb.storage.format import ID_BYTES, Stored
from fpdb.tables.bands import MOST_COMPARED
from fpdb.tables.groups import GroupTables

# Unchecked members that are compared with their new keepers before each document is written.
CHECKED = 100
# In place of the keeper of a document that isn't there, or is decided anew.
_GONE = -1
# When so many members of a group were met among candidates, all are read together.
_MET = 8


def keeper_of(view: View, tables: GroupTables, stored: Stored) -> int:
    """Return the id of the keeper of a stored document's group."""
    _, keepers = tables.new_keepers(view.txn, np.array([stored.id], np.uint64))
    if len(keepers):
        return int(keepers[0])
    return int.from_bytes(stored.keeper) if stored.keeper else stored.id


def keeper_key(view: View, stored: Stored) -> Key | None:
    """Return the key of the keeper of a stored document's group, if groups are kept."""
    if not view.index.groups:
        return None
    keeper = keeper_of(view, view.index.groups, stored)
    return stored.key if keeper == stored.id else view.catalog.named(view.txn, keeper).key


def name_keepers(view: View, matches: Matches) -> None:
    """Let matches have the keys of the keepers of their groups."""
    matches[:] = [
        match._replace(group=keeper_key(view, view.catalog.named(view.txn, match.id)))
        for match in matches
    ]


def nearest_documents(
    view: View, texts: TextColumns, least: float
) -> tuple[dict[int, Match], set[int], Marks]:
    """Return the nearest document of each of many texts, by their places, with its keeper's key.

    Also return the places of texts that some document has, and mark those with too many candidates
    to be compared here.
    """
    matches = dict[int, Match]()
    nearest, crowded, copies = nearest_each(view, texts, least)
    columns = (column.tolist() for column in nearest.only(~crowded[nearest.first]))
    for place, number, share, apart, _ in zip(*columns, strict=True):
        stored = view.catalog.named(view.txn, number)
        match = to_match(stored, number, apart, share)
        matches[place] = match._replace(group=keeper_key(view, stored))
    return matches, set((copies & ~crowded).nonzero()[0].tolist()), crowded


def group_of(view: View, key: Key) -> Group:
    """Return the group of the document with a key."""
    txn, catalog, tables = view.txn, view.catalog, view.index.groups
    if not tables:
        raise InputError(
            "the database keeps no groups",
            hint="create it with groups, or compact it with groups",
        )
    if (stored := catalog.find(txn, key)) is None:
        raise not_found(key)
    keeper = keeper_of(view, tables, stored)
    ids = np.append(np.uint64(keeper), tables.members_of(txn, keeper))
    first, *members = catalog.keys_of(txn, ids)
    if first is None or None in members:
        raise DamagedError(f"the group of {key!r} has a document that isn't there")
    return Group(first, tuple(member for member in members if member is not None))


def most_similar(keepers: Iterable[Match]) -> Match | None:
    """Return the most similar of some keepers, and of equally similar ones the oldest."""
    return min(keepers, key=lambda keeper: (-(keeper.similarity or 0.0), keeper.id), default=None)


class Grouping:
    """The groups of a database, as one transaction changes them.

    What it has decided of documents, and what isn't written yet, counts more than what is stored.
    """

    def __init__(self, txn: WriteTransaction, view: View, tables: GroupTables) -> None:
        self._txn, self._view, self._tables = txn, view, tables
        self._bits = view.index.plan.bits
        # The ids of keepers, and the keys, by the ids of documents.
        self.keepers: dict[int, int] = {}
        self._keys: dict[int, Key] = {}
        # By a keeper, the members that come, and those that go.
        self._changes: dict[int, dict[int, bool]] = defaultdict(dict)
        # Members, as they are stored, and how many were met of the group of each keeper.
        self._members: set[int] = set()
        self._met: Counter[int] = Counter()
        # From this id on, stored documents are still to be decided.
        self._undecided = 1 << 64
        self.search = Search(view.index.plan.k, None, tables.similarity, only=self._is_keeper)
        self.unchecked = tables.has_unchecked(txn)
        # Whether a group has another keeper now, which no lookup before has found.
        self.passed_on = False

    def _is_keeper(self, number: int) -> bool:
        keeper = self.keepers.get(number)
        if keeper is not None:
            return keeper == number
        if number >= self._undecided or number in self._members:
            return False
        if not (packed := self._view.catalog.named(self._txn, number).keeper):
            return True
        self._members.add(number)
        keeper = int.from_bytes(packed)
        self._met[keeper] += 1
        if self._met[keeper] == _MET:
            wanted = [np.array([keeper], np.uint64)]
            _, members = self._tables.members.last_numbers(self._txn, wanted, MOST_COMPARED)
            self._members.update(members.tolist())
        return False

    def _keeper_of(self, stored: Stored) -> int:
        keeper = self.keepers.get(stored.id)
        return keeper_of(self._view, self._tables, stored) if keeper is None else keeper

    def _named(self, number: int) -> Key:
        known = self._keys.get(number)
        return self._view.catalog.named(self._txn, number).key if known is None else known

    def of(self, stored: Stored) -> Key:
        """Return the key of the keeper of a document's group."""
        return self._named(self._keeper_of(stored))

    def of_match(self, match: Match) -> Key:
        """Return the key of the keeper of the group of a document that was found."""
        keeper = self.keepers.get(match.id)
        if keeper is None:
            keeper = self._keeper_of(self._view.catalog.named(self._txn, match.id))
        return match.key if keeper == match.id else self._named(keeper)

    def join(self, number: int, key: Key, keeper: Match | None) -> Key:
        """Put a document into the group of a keeper, or into its own; return the keeper's key."""
        self._keys[number] = key
        self.keepers[number] = number if keeper is None else keeper.id
        if keeper is None:
            return key
        self._changes[keeper.id][number] = True
        return keeper.key

    def stay(self, number: int, key: Key, stored: Stored) -> Key:
        """Leave a document, which is written anew, in its group; return the keeper's key."""
        self.keepers[number], self._keys[number] = self._keeper_of(stored), key
        return self._named(self.keepers[number])

    def with_keepers(self, documents: Block) -> Block:
        """Return documents with their keepers, where these are other documents.

        Packed documents stay packed; only the records of these are packed anew.
        """
        ids, keepers, catalog = documents.ids.tolist(), self.keepers, self._view.catalog
        places = [
            place for place, number in enumerate(ids) if keepers.get(number, number) != number
        ]
        if not places:
            return documents
        values = [b""] * len(ids)
        for place in places:
            values[place] = keepers[ids[place]].to_bytes(ID_BYTES)
        block = replace(documents, packed=None, further={**documents.further, KEEPER.name: values})
        if not (packed := documents.packed):
            return block
        chosen = np.arange(len(ids))
        chosen[places] = np.arange(len(ids), len(ids) + len(places))
        records = Strings.joined([packed.records, catalog.pack(block[places]).records])
        return replace(block, packed=replace(packed, records=records.chosen(chosen)))

    def leave(self, stored: Stored, going: Container[int] = ()) -> None:
        """Take a document out of its group.

        If it was the keeper, the oldest member takes its place; the others are yet to be checked.
        Members that are `going` too, and sure to leave next, go with it.
        """
        number, tables = stored.id, self._tables
        if self.keepers.get(number) == _GONE:
            return
        keeper = self._keeper_of(stored)
        self.keepers[number] = _GONE
        if keeper != number:
            self._changes[keeper][number] = False
            if self.unchecked:
                self._forget([number])
            return
        if number in self._changes:
            self.write()
        members = tables.members_of(self._txn, number)
        if not len(members):
            return
        stay = np.array([member not in going for member in members.tolist()], np.bool_)
        staying, known = members[stay], self.keepers
        insert = [staying[:1].repeat(len(staying[1:])), staying[1:]]
        remove = [np.full(len(members), number, np.uint64), members]
        tables.members.splice(self._txn, insert, remove)
        sure = np.setdiff1d(members, staying[1:])
        tables.unchecked.splice(self._txn, insert[::-1], [sure, sure])
        self.unchecked = tables.has_unchecked(self._txn)
        known.update((member, _GONE) for member in members[~stay].tolist())
        if not len(staying):
            return
        heir, self.passed_on = int(staying[0]), True
        known.update((member, heir) for member in staying.tolist() if member in known)
        known[heir] = heir
        if there := self._view.catalog.record(self._txn, heir):
            self._store([there])

    def write(self) -> None:
        """Write the rows of members that come or go."""
        rows = [
            ((keeper, member), there)
            for keeper, members in self._changes.items()
            for member, there in members.items()
        ]
        if rows:
            self._tables.change(self._txn, rows)
            self._changes.clear()

    def _store(self, documents: list[Stored]) -> None:
        """Write the records of stored documents with their keepers."""
        block = self.with_keepers(Block.of(documents, self._bits))
        self._view.catalog.put_records(self._txn, block)

    def _forget(self, members: list[int]) -> None:
        """Note that unchecked members need no check any more."""
        numbers = np.array(members, np.uint64)
        self._tables.unchecked.splice(self._txn, self._tables.unchecked.empty(), [numbers, numbers])

    def find(self, question: Stored, search: Search) -> Sequence[Match]:
        """Return the keepers that a document resembles, or only the oldest one with its sketch.

        That is among the first in a band, so a crowd of copies costs no more than a few documents.
        """
        bands, named = self._view.index.bands, self._view.catalog.named
        if bands and question.sketch and not search.known:
            runs = bands.pages.runs(self._txn, bands.of(question)[:1], _MET)
            for number in chain.from_iterable(ids for _, ids in runs):
                if self._is_keeper(number):
                    stored = named(self._txn, number)
                    if stored.sketch == question.sketch:
                        return [to_match(stored, number, 0, 1.0)]
        return answer(self._view, question, search)

    def begin(self, known: KnownTexts | None = None) -> None:
        """Prepare for lookups: check some members of groups whose keeper is another one now."""
        self.passed_on = False
        if self.unchecked:
            self._check(self.search._replace(known=known))

    def _check(self, search: Search) -> None:
        """Compare some unchecked members with their keepers; one that differs is decided anew."""
        read = partial(self._view.catalog.named, self._txn)
        documents = list[Stored]()
        for member, keeper in list(islice(self._unchecked_rows(), CHECKED)):
            stored = read(member)
            documents.append(stored)
            if matched(stored, Candidates([(0, [keeper])], complete=True), search, read):
                self.stay(member, stored.key, stored)
                continue
            self._changes[keeper][member] = False
            self.join(member, stored.key, most_similar(self.find(stored, search)))
        self._forget([stored.id for stored in documents])
        self._store(documents)
        self.write()
        self.unchecked = self._tables.has_unchecked(self._txn)

    def _unchecked_rows(self) -> Iterator[tuple[int, int]]:
        for members, keepers in self._tables.unchecked.scan(self._txn):
            yield from zip(members.tolist(), keepers.tolist(), strict=True)

    def decide(self, first: int = 0) -> None:
        """Decide the groups of all stored texts from an id on, in the order of ids."""
        view = self._view
        while batch := list(islice(view.catalog.records(self._txn, first), SLICE)):
            self._undecided = batch[0].id
            self.keepers.clear()
            self._keys.clear()
            block = Block.of(batch, self._bits)
            texts = (~block.ready).nonzero()[0].tolist()
            lookup = BatchLookup(view, block, self.search, texts, replacing=True)
            for place, stored in enumerate(batch[: lookup.end]):
                keepers: Sequence[Match] | None = lookup.matches(place)
                if keepers is None:
                    keepers = self.find(stored, self.search)
                self.join(stored.id, stored.key, most_similar(keepers))
                lookup.save(place, stored.id, None)
            decided = batch[: lookup.end]
            self._store([row for row in decided if row.keeper or self.keepers[row.id] != row.id])
            self.write()
            first = decided[-1].id + 1
        self._undecided = 1 << 64
