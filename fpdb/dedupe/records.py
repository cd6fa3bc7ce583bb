"""Records and tables in memory, without their near-duplicates."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from fpdb.arrays import Marks
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
        RecordBlock(part, f"{name} row ".lstrip())
        for name, (each, _) in several.items()
        for part in read_table(each, run.reading)
    )
    found = [stays for _, stays in _decided(run, blocks, given)]
    marks = np.concatenate([np.empty(0, np.bool_), *found])
    if not is_split(table):
        return several[""][1](marks)
    parts = np.split(marks, np.cumsum([len(each) for each in splits.values()])[:-1])
    chosen = zip(several.items(), parts, strict=True)
    return type(table)({name: select(part) for (name, (_, select)), part in chosen})


def kept_records(run: Deduplication, records: Iterable[Any], given: Where | None) -> Iterator[Any]:
    """Yield the records that stay; those of some thousand once they are decided."""
    for blocks, stays in _decided(run, _record_blocks(run.reading, records), given):
        every = chain.from_iterable(block.records for block in blocks)
        yield from compress(every, stays.tolist())


def _decided(
    run: Deduplication, blocks: Iterable[RecordBlock], given: Where | None
) -> Iterator[tuple[list[RecordBlock], Marks]]:
    """Yield blocks with marks of what stays; when all were taken, add that to the database."""
    marks = [np.empty(0, np.bool_)]
    with run.opened(given) as database, run.room() as room:
        if database is not None:
            require_next(database)
        with Decider(run, database, room) as decider:
            for read, codes in decider.each(blocks):
                marks.append(run.kept(codes))
                yield read, marks[-1]
            decider.require_next()
            decider.finish(np.concatenate(marks))


def _record_blocks(reading: Reading, records: Iterable[Any]) -> Iterator[RecordBlock]:
    source, first = iter(records), 1
    while some := list(islice(source, _TOGETHER)):
        for each in some:
            if not isinstance(each, Document | Mapping):
                raise InputError(
                    f"found {each!r:.40}, expected a record",
                    hint="pass the whole table, or dictionaries such as {'text': …}",
                )
        yield RecordBlock(partial(batch_of, some, first, reading), "record ", records=some)
        first += len(some)
