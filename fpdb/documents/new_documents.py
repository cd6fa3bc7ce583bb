"""New documents with text keys, made ready as far as their ids needn't be known.

That is most of the work of adding many, and needs no transaction.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Column, Places, Rows, Strings
from fpdb.documents.catalog import key_bytes
from fpdb.storage.block import Block
from fpdb.tables import Index
from fpdb.tables.bits import Fingerprints


class NewRows(NamedTuple):
    """Rows of the tables, whose ids are counted from some first id on."""

    fingerprints: Fingerprints
    ids: Column
    of_texts: list[Rows]

    def numbered(self, first: int) -> "NewRows":
        """Return these rows with their ids, given the first one."""
        by = np.uint64(first)
        of_texts = [[*rows[:-1], rows[-1] + by] for rows in self.of_texts]
        return NewRows(self.fingerprints, self.ids + by, of_texts)


@dataclass(frozen=True, eq=False)
class NewDocuments:
    """Packed records, the bytes under which their keys are found, and rows of the tables.

    The ids of the `short` ones are counted from 0 on, as in the rows.
    """

    keys: list[bytes]
    records: Strings
    rows: NewRows
    short: Block
    counts: Places

    @classmethod
    def of(cls, documents: Block, index: Index) -> "NewDocuments":
        """Make documents ready for a database with these tables."""
        numbered = replace(documents, ids=np.arange(len(documents), dtype=np.uint64))
        printed = numbered.printed
        return cls(
            [key_bytes(str(key)) for key in documents.keys],
            documents.pack(index.plan.bits),
            NewRows(
                printed.fingerprints,
                printed.ids,
                [table.made(printed) for table in index.of_texts],
            ),
            numbered[numbered.short.nonzero()[0]],
            numbered.counts,
        )
