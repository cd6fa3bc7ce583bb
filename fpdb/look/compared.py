"""The documents of files as columns, of which a report asks what it asks of a database."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fpdb.arrays import Column, Places
from fpdb.documents import layout
from fpdb.documents.prepare import Preparer
from fpdb.fingerprint import Recipe
from fpdb.flow import Flow, Ingested
from fpdb.io.records import Record
from fpdb.joins import Clustering
from fpdb.joins.clusters import clustering_of
from fpdb.joins.columns import GrowingColumn, GrowingTexts, Room, TextColumns
from fpdb.joins.pairs import TextsInColumns
from fpdb.models import Document, Key
from fpdb.storage.format import Stored
from fpdb.tables.bits import to_ints


class ComparedFiles:
    """Documents under the numbers of their records, in the order of reading."""

    keys = "integer"

    def __init__(self, room: Room, recipe: str | Recipe, similarity: float | None) -> None:
        self.recipe, header = layout.header_for(
            recipe, similarity=similarity or "recipe", keys=self.keys
        )
        self.similarity = header.get("similarity")
        self._preparer = Preparer(header, *layout.layout(header), self.recipe)
        self._bits = self._preparer.index.plan.bits
        self._texts = GrowingTexts(room, self._bits)
        self._numbers = GrowingColumn(room, np.int64)

    def fill(self, flow: Flow[Ingested], paths: Sequence[str]) -> None:
        """Read the documents of files, and count them."""
        for numbers, found in numbered_texts(flow, paths, self._preparer):
            self._numbers.add(numbers)
            self._texts.add(TextColumns.of(found, self._bits))

    def __len__(self) -> int:
        return len(self._numbers)

    def clustering(self, *, similarity: float | None = None) -> Clustering:
        """Find all clusters, as a database does."""
        bands = self._preparer.index.bands
        least = similarity or self.similarity
        if bands is None or least is None:
            raise ValueError("clusters of texts have a similarity")
        texts = self._texts.all
        [usable] = (~texts.short).nonzero()
        found = clustering_of(TextsInColumns(texts.side, bands.shape, usable), least)
        return replace(
            found, ids=self._numbers.values[found.ids.astype(np.int64)].astype(np.uint64)
        )

    def keys_of(self, ids: Column) -> list[Key | None]:
        """Return the keys of documents."""
        return list(ids.tolist())

    def get(self, key: Key) -> Document | None:
        """Return a document with its fingerprint and digest, without its text."""
        place = int(np.searchsorted(self._numbers.values, key))
        side = self._texts.all[place : place + 1].side
        [fingerprint] = to_ints(side.fingerprints)
        return Document(key, fingerprint=fingerprint, digest=side.digests.tobytes())


def numbered_texts(
    flow: Flow[Ingested], paths: Sequence[str], preparer: Preparer
) -> Iterator[tuple[Places, list[Stored]]]:
    """Yield the documents of files with the numbers of their records, and count them."""
    first = 0
    preparer = preparer.adapted(flow.reading.max_bytes)
    for found in flow.prepared(flow.parts(paths), preparer, texts_only=True):
        good = [isinstance(each, Record) for each in found.records]
        short = sum(each.fingerprint is None for each in found.documents)
        flow.counts.tally("short", short)
        flow.counts.tally("added", len(found.documents) - short)
        yield first + np.flatnonzero(good), found.documents
        first += len(good)
        flow.show()
