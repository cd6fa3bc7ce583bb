"""Rebuild a database beside another, with full pages and tables of any plan; and its statistics."""

import os
from collections.abc import Iterator

from fpdb.arrays import Column, gathered
from fpdb.documents.catalog import View
from fpdb.documents.layout import (
    database_names,
    layout,
    new_database,
    read_places,
    read_runs,
    write_places,
    write_runs,
)
from fpdb.models import Stats, TableStats
from fpdb.storage import Environment
from fpdb.storage.format import Counters, Header
from fpdb.storage.lmdb_file import DATA_FILE
from fpdb.tables.bits import Fingerprints, of_words
from fpdb.tables.bulk_load import BLOCK, load_tables


def compact(
    view: View,
    *,
    described: Header,
    path: str | os.PathLike[str],
    memory: int,
    replace: bool = False,
) -> None:
    """Write what a snapshot shows into a new database, which a header describes.

    It may replace the one at the path, if that is locked.
    """
    txn = view.txn
    counters = Counters.unpack(txn.get("counters", b"counters"))
    index, catalog = layout(described)
    new = new_database(described, counters)
    with Environment.build(path, *new, replace=replace) as built, built.write() as into:
        view.catalog.copy(txn, into)
        write_places(into, {place.identity: place for place in read_places(txn)})
        write_runs(into, read_runs(txn))
        count = counters.documents - counters.short
        load_tables(into, index, lambda: _fingerprints(view), count, memory)
        catalog.load_bands(into, memory)


def _fingerprints(view: View) -> Iterator[tuple[Fingerprints, Column]]:
    for *words, ids in gathered(view.index.home.scan(view.txn), BLOCK):
        yield of_words(words), ids


def stats(view: View, head: Header, environment: Environment) -> Stats:
    """Return the counters, the sizes and what the header says."""
    txn, index, catalog = view.txn, view.index, view.catalog
    counters = Counters.unpack(txn.get("counters", b"counters"))
    plan = index.plan
    tables = tuple(
        TableStats(pages.name, table.prefix, txn.entries(pages.name))
        for pages, table in zip(index.tables, plan.tables, strict=True)
    )
    if index.bands:
        name = index.bands.pages.name
        tables += (TableStats(name, index.bands.shape.bits, txn.entries(name)),)
    return Stats(
        path=str(environment.path),
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
        bytes=(environment.path / DATA_FILE).stat().st_size,
        bytes_used=sum(map(txn.bytes_of, database_names(index, catalog))),
        tables=tables,
        similarity=head.get("similarity"),
        sketches=counters.sketches,
        snapshots=txn.open_snapshots(),
    )
