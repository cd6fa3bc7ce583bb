"""Records and tables in memory, without their near-duplicates."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from fpdb.arrays import Column, Marks
from fpdb.dedupe.cuts import counted
from fpdb.dedupe.decide import Decider
from fpdb.dedupe.prepare import RecordBlock
from fpdb.dedupe.run import BAD, Deduplication, Where, require_next
from fpdb.errors import InputError
from fpdb.io.annotations import Annotation, have_numbered_keys, require_free
from fpdb.io.arrow import annotation_batch, edited, is_dataset, is_split, selectable, widened
from fpdb.io.batches import batch_of, read_table
from fpdb.models import Document

_TOGETHER = 1000


def kept_rows(run: Deduplication, table: Any, where: Where | None) -> Any:
    """Return a table of the same kind, or its splits, with the rows that stay."""
    splits = dict(table) if is_split(table) else {"": table}
    several = {name: selectable(rows) for name, rows in splits.items()}
    if run.cut is not None and any(map(is_dataset, splits.values())):
        raise InputError(
            "found a Dataset, whose texts can't be changed here",
            hint="give dataset.to_pandas(), or files",
            parameter="cut",
        )

    def blocks() -> Iterator[RecordBlock]:
        for number, (name, (rows, _)) in enumerate(several.items()):
            for part in read_table(rows, "", run.reading, annotated=run.annotate):
                yield RecordBlock(part, f"{name} row ".lstrip(), name or "the table", number)

    def split(marks: Marks) -> list[Marks]:
        ends = np.cumsum([decider.sizes[number] for number in range(len(several))])
        return np.split(marks, ends[:-1])

    def shingles(marks: Marks) -> Iterator[list[Column]]:
        done, [numbers] = 0, marks.nonzero()
        for (rows, select), part_marks in zip(several.values(), split(marks), strict=True):
            for part in read_table(selectable(select(rows, part_marks))[0], "", run.reading):
                batch = part()
                if cuts:
                    cuts.shorten(batch, numbers[done : done + len(batch)])
                done += len(batch)
                yield decider.recipe.shingles_many(text or "" for text in batch.texts)

    with run.opened(where) as database, run.room() as room:
        if database is not None:
            require_next(database)
        cuts = counted(run, room, blocks())
        with Decider(run, database, room) as decider:
            codes = decider.decided(cuts.shortened(blocks()) if cuts else blocks())
            decider.settle(codes, shingles)
            marks = run.keepers(codes)
            decider.require_fit(marks)
            if run.annotate:
                every = np.arange(len(codes))
                numbered = have_numbered_keys(decider.annotations(every))
                added = annotation_batch(decider.annotations(every), numbered_keys=numbered)
            chosen, first, written = {}, 0, run.written(codes)
            lost = cuts.marks & written & (codes != BAD) if cuts else np.zeros_like(written)
            for name, part, changed in zip(several, split(written), split(lost), strict=True):
                rows, select = several[name]
                if cuts:
                    places = changed.nonzero()[0].tolist()
                    edits = {place: partial(cuts.edit, first + place) for place in places}
                    rows = edited(rows, run.reading.names_of_text, edits)
                whole = widened(rows, added.slice(first, len(part))) if run.annotate else rows
                chosen[name] = select(whole, part)
                first += len(part)
            decider.finish(marks)
    return type(table)(chosen) if is_split(table) else chosen[""]


def kept_records(run: Deduplication, records: Iterable[Any], where: Where | None) -> Iterator[Any]:
    """Yield the records that stay; those of some thousand once they are decided.

    When all were taken, they are added to the database.
    """
    for name, value in (("most", run.most), ("cut", run.cut)):
        if value is not None:
            raise InputError(
                f"found {name} {value}, and records, which are yielded before all are read",
                hint="give files or a table",
                parameter=name,
            )
    marks, decided = [np.empty(0, np.bool_)], 0
    with run.opened(where) as database, run.room() as room:
        if database is not None:
            require_next(database)
        with Decider(run, database, room, read_once=True) as decider:
            for blocks, codes in decider.decisions(_record_blocks(run, records)):
                marks.append(run.keepers(codes))
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
