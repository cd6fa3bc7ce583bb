"""The groups of documents: rows that lead from a keeper to the members of its group.

The record of a member leads to its keeper. Where the keeper is gone, another one takes its place at
once in the rows, and in the records by and by: until then, a member is in a further table.
"""

from collections.abc import Iterable

import numpy as np

from fpdb.arrays import Column, Rows
from fpdb.storage import ReadTransaction, WriteTransaction
from fpdb.tables.levels import NumberLevels


class GroupTables:
    """The sub-databases of the groups of documents that have at least this similarity."""

    def __init__(self, similarity: float) -> None:
        self.similarity = similarity
        # Rows of a keeper and a member, and of a member and the new keeper of its group.
        self.members = NumberLevels("groups", keys=2, columns=2)
        self.unchecked = NumberLevels("unchecked", keys=1, columns=2)

    @property
    def pages(self) -> list[NumberLevels]:
        return [self.members, self.unchecked]

    def members_of(self, txn: ReadTransaction, keeper: int) -> Column:
        """Return the members of a keeper's group, but itself."""
        return np.fromiter(self.members.run(txn, keeper), np.uint64)

    def has_unchecked(self, txn: ReadTransaction) -> bool:
        return any(map(txn.entries, self.unchecked.names))

    def new_keepers(self, txn: ReadTransaction, members: Column) -> Rows:
        """Return the unchecked ones of some sorted members, and the keepers of their groups."""
        if not self.has_unchecked(txn):
            return self.unchecked.empty()
        return self.unchecked.find(txn, [members])

    def change(self, txn: WriteTransaction, rows: Iterable[tuple[tuple[int, int], bool]]) -> None:
        """Write rows of keepers and members, each one that is there from now on or isn't."""
        insert, remove = list[tuple[int, int]](), list[tuple[int, int]]()
        for row, there in sorted(rows):
            (insert if there else remove).append(row)
        self.members.splice(txn, columns_of(insert), columns_of(remove))


def columns_of(rows: list[tuple[int, int]]) -> Rows:
    """Return pairs of numbers as columns."""
    return list(np.array(rows, np.uint64).reshape(-1, 2).T.copy())
