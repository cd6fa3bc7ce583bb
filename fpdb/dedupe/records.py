"""Records and tables in memory, without their near-duplicates."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from fpdb.arrays import Column, Marks
from fpdb.dedupe.decide import Decider
from fpdb.dedupe.prepare import RecordBlock
from fpdb.dedupe.run import Deduplication, Where, require_next
from fpdb.errors import InputError
from fpdb.io.annotations import Annotation, have_numbered_keys, require_free
from fpdb.io.arrow import annotation_batch, is_split, selectable, widened
from fpdb.io.batches import batch_of, read_table
from fpdb.models import Document

_TOGETHER = 1000


def kept_rows(run: Deduplication, table: Any, where: Where | None) -> Any:
    """Return a table of the same kind, or its splits, with the rows that stay."""
    splits = dict(table) if is_split(table) else {"": table}
    several = {name: selectable(rows) for name, rows in splits.items()}
    blocks = (
        RecordBlock(part, f"{name} row ".lstrip(), name or "the table", number)
        for number, (name, (rows, _)) in enumerate(several.items())
        for part in read_table(rows, "", run.reading, annotated=run.annotate)
    )

    def split(marks: Marks) -> list[Marks]:
        ends = np.cumsum([decider.sizes[number] for number in range(len(several))])
        return np.split(marks, ends[:-1])

    def shingles(marks: Marks) -> Iterator[list[Column]]:
        for (rows, select), part_marks in zip(several.values(), split(marks), strict=True):
            for part in read_table(selectable(select(rows, part_marks))[0], "", run.reading):
                yield decider.recipe.shingles_many(text or "" for text in part().texts)

    with run.opened(where) as database, run.room() as room:
        if database is not None:
            require_next(database)
        with Decider(run, database, room) as decider:
            codes = np.concatenate([np.empty(0, np.uint8), *(x for _, x in decider.each(blocks))])
            decider.settle(codes, shingles)
            marks = run.kept(codes)
            decider.require_fit(marks)
            if run.annotate:
                every = np.arange(len(codes))
                numbered = have_numbered_keys(decider.annotations(every))
                added = annotation_batch(decider.annotations(every), numbered_keys=numbered)
            decider.finish(marks)
    chosen, first = {}, 0
    for (name, (rows, select)), part in zip(
        several.items(), split(run.written(codes)), strict=True
    ):
        whole = widened(rows, added.slice(first, len(part))) if run.annotate else rows
        chosen[name] = select(whole, part)
        first += len(part)
    return type(table)(chosen) if is_split(table) else chosen[""]


def kept_records(run: Deduplication, records: Iterable[Any], where: Where | None) -> Iterator[Any]:
    """Yield the records that stay; those of some thousand once they are decided.

    When all were taken, they are added to the database.
    """
    if run.most is not None:
        raise InputError(
            "found the most that a source may lose, and records, which are yielded before all are "
            "decided",
            hint="give files or a table",
            parameter="most",
        )
    marks, decided = [np.empty(0, np.bool_)], 0
    with run.opened(where) as database, run.room() as room:
        if database is not None:
            require_next(database)
        with Decider(run, database, room, read_once=True) as decider:
            for blocks, codes in decider.each(_record_blocks(run, records)):
                marks.append(run.kept(codes))
                written = run.written(codes)
                chosen: Iterator[Any] = compress(
                    chain.from_iterable(block.records for block in blocks), written.tolist()
                )
                if run.annotate:
                    added = decider.annotations(decided + written.nonzero()[0])
                    chosen = map(_annotated, chosen, added)
                yield from chosen
                decided += len(codes)
            every = np.concatenate(marks)
            decider.require_fit(every)
            decider.finish(every)


def _annotated(record: Any, added: Annotation) -> Any:
    if isinstance(record, Document):
        return dataclasses.replace(record, meta={**(record.meta or {}), **added._asdict()})
    return {**record, **added._asdict()}


def _record_blocks(run: Deduplication, records: Iterable[Any]) -> Iterator[RecordBlock]:
    source, first = iter(records), 1
    while batch := list(islice(source, _TOGETHER)):
        for number, record in enumerate(batch, first):
            if not isinstance(record, Document | Mapping):
                raise InputError(
                    f"found {record!r:.40}, expected a record",
                    hint="pass the whole table, or dictionaries such as {'text': …}",
                )
            if run.annotate:
                fields = record.meta or {} if isinstance(record, Document) else record
                require_free(fields, f"record {number}")
        yield RecordBlock(
            partial(batch_of, batch, first, run.reading), "record ", "the records", records=batch
        )
        first += len(batch)
