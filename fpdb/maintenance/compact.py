"""Rebuild a database beside another: the same documents and ids, full pages, tables of any plan."""

import os
from collections.abc import Iterator

import numpy as np

from fpdb.documents import Catalog, new_database
from fpdb.storage import Environment, ReadTransaction
from fpdb.storage.columns import Column, Rows
from fpdb.storage.format import Counters, Header
from fpdb.tables import Index, Plan
from fpdb.tables.bits import Fingerprints
from fpdb.tables.bulk_load import BLOCK, load_tables


def compact(
    txn: ReadTransaction,
    index: Index,
    catalog: Catalog,
    *,
    head: Header,
    path: str | os.PathLike[str],
    memory: int,
) -> None:
    """Write what a snapshot shows into a new database, with the tables that its header names."""
    tables = Index(Plan.from_dict(head["plan"]))
    counters = Counters.unpack(txn.get("header", b"counters"))
    new = new_database(head, counters)
    with Environment.build(path, *new) as built, built.write() as into:
        catalog.copy(txn, into)
        count = counters.documents - counters.short
        load_tables(into, tables, lambda: _documents(txn, index), count, memory)


def _documents(txn: ReadTransaction, index: Index) -> Iterator[tuple[Fingerprints, Column]]:
    """Read the home table in blocks of fingerprints and ids."""
    pages: list[Rows] = [index.home.empty()]
    size = 0
    for rows in index.home.scan(txn):
        pages.append(rows)
        size += len(rows[0])
        if size >= BLOCK:
            yield _joined(pages)
            pages, size = [], 0
    if pages:
        yield _joined(pages)


def _joined(pages: list[Rows]) -> tuple[Fingerprints, Column]:
    *words, ids = (np.concatenate(columns) for columns in zip(*pages, strict=True))
    return words[0] if len(words) == 1 else np.stack(words, axis=-1), ids
