"""Records and tables in memory, without their near-duplicates."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from fpdb.arrays import Column, Marks
from fpdb.dedupe.decide import Decider, require_next
from fpdb.dedupe.prepare import RecordBlock
from fpdb.dedupe.run import Deduplication, Where
from fpdb.errors import InputError
from fpdb.io.arrow import is_split, selectable
from fpdb.io.batches import batch_of, read_table
from fpdb.io.records import Reading
from fpdb.models import Document

_TOGETHER = 1000


def kept_rows(run: Deduplication, table: Any, given: Where | None) -> Any:
    """Return a table of the same kind, or its splits, with the rows that stay."""
    splits = dict(table) if is_split(table) else {"": table}
    several = {name: selectable(each) for name, each in splits.items()}
    blocks = (
        RecordBlock(part, f"{name} row ".lstrip(), name or "the table", number)
        for number, (name, (each, _)) in enumerate(several.items())
        for part in read_table(each, run.reading)
    )

    def split(marks: Marks) -> list[Marks]:
        ends = np.cumsum([decider.sizes[number] for number in range(len(several))])
        return np.split(marks, ends[:-1])

    def shingles(marks: Marks) -> Iterator[list[Column]]:
        for (_, select), some in zip(several.values(), split(marks), strict=True):
            for part in read_table(selectable(select(some))[0], run.reading):
                yield decider.recipe.shingles_many(part().texts)

    with run.opened(given) as database, run.room() as room:
        if database is not None:
            require_next(database)
        with Decider(run, database, room) as decider:
            codes = np.concatenate([np.empty(0, np.uint8), *(x for _, x in decider.each(blocks))])
            decider.settle(codes, shingles)
            marks = run.kept(codes)
            decider.require_fit(marks)
            decider.finish(marks)
    if not is_split(table):
        return several[""][1](marks)
    chosen = zip(several.items(), split(marks), strict=True)
    return type(table)({name: select(part) for (name, (_, select)), part in chosen})


def kept_records(run: Deduplication, records: Iterable[Any], given: Where | None) -> Iterator[Any]:
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
    marks = [np.empty(0, np.bool_)]
    with run.opened(given) as database, run.room() as room:
        if database is not None:
            require_next(database)
        with Decider(run, database, room, read_once=True) as decider:
            for blocks, codes in decider.each(_record_blocks(run.reading, records)):
                marks.append(run.kept(codes))
                records_of = chain.from_iterable(block.records for block in blocks)
                yield from compress(records_of, marks[-1].tolist())
            every = np.concatenate(marks)
            decider.require_fit(every)
            decider.finish(every)


def _record_blocks(reading: Reading, records: Iterable[Any]) -> Iterator[RecordBlock]:
    source, first = iter(records), 1
    while some := list(islice(source, _TOGETHER)):
        for each in some:
            if not isinstance(each, Document | Mapping):
                raise InputError(
                    f"found {each!r:.40}, expected a record",
                    hint="pass the whole table, or dictionaries such as {'text': …}",
                )
        yield RecordBlock(
            partial(batch_of, some, first, reading), "record ", "the records", records=some
        )
        first += len(some)
