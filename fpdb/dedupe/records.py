"""Records and tables in memory, without their near-duplicates."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from fpdb.dedupe.decide import Decider, require_next
from fpdb.dedupe.prepare import RecordBlock
from fpdb.dedupe.run import Codes, Deduplication, Where
from fpdb.errors import InputError
from fpdb.io.arrow import selectable, table_columns
from fpdb.io.records import BadRecord, Reading, Record, UnfitError, picker
from fpdb.io.tables import Named
from fpdb.models import Document
from fpdb.scratch import scratch_folder

_TOGETHER = 1000


def kept_rows(run: Deduplication, table: Any, given: Where | None) -> Any:
    """Return a table of the same kind, with the rows that stay."""
    table, select = selectable(table)
    rows = _groups(chain.from_iterable(each.rows() for each in table_columns(table, run.reading)))
    blocks = (
        RecordBlock(partial(_records_of_rows, run.reading, some), "row ", "row ") for some in rows
    )
    found = [codes for _, codes in _decided(run, blocks, given)]
    marks = run.kept(np.concatenate([np.empty(0, np.uint8), *found]))
    run.finish(marks)
    return select(marks)


def kept_records(run: Deduplication, records: Iterable[Any], given: Where | None) -> Iterator[Any]:
    """Yield the records that stay; those of some thousand once they are decided."""
    found = [np.empty(0, np.bool_)]
    for blocks, codes in _decided(run, _record_blocks(run.reading, records), given):
        found.append(run.kept(codes))
        every = chain.from_iterable(block.records for block in blocks)
        yield from compress(every, found[-1].tolist())
    run.finish(np.concatenate(found))


def _decided(
    run: Deduplication, blocks: Iterable[RecordBlock], given: Where | None
) -> Iterator[tuple[list[RecordBlock], Codes]]:
    """Yield what became of blocks, and add to the database when all of them were taken."""
    with run.opened(given) as database, scratch_folder() as scratch:
        if database is not None:
            require_next(database)
        with Decider(run, database, scratch) as decider:
            yield from decider.each(blocks)
            decider.require_next()
            decider.finish()


def _groups(items: Iterable[Any]) -> Iterator[list[Any]]:
    source = iter(items)
    return iter(lambda: list(islice(source, _TOGETHER)), [])


def _record_blocks(reading: Reading, records: Iterable[Any]) -> Iterator[RecordBlock]:
    first = 1
    for some in _groups(records):
        for each in some:
            if not isinstance(each, Document | Mapping):
                raise InputError(
                    f"found {each!r:.40}, expected a record",
                    hint="pass the whole table, or dictionaries such as {'text': …}",
                )
        part = partial(_records_of, reading, first, some)
        yield RecordBlock(part, "record ", "record ", records=some)
        first += len(some)


def _records_of_rows(reading: Reading, rows: Sequence[Named]) -> Iterator[Record | BadRecord]:
    """Make records of rows."""
    pick = picker(reading)
    for number, fields, replaced in rows:
        yield _picked(pick, f"row {number}", fields, replaced=replaced)


def _records_of(
    reading: Reading, first: int, records: Sequence[Document | Mapping[str, Any]]
) -> Iterator[Record | BadRecord]:
    pick = picker(reading)
    for number, each in enumerate(records, first):
        place = f"record {number}"
        if isinstance(each, Document):
            yield Record(place, each.key, each.text, each.fingerprint, each.meta)
        else:
            yield _picked(pick, place, each, replaced=False)


def _picked(
    pick: Callable[[str, Mapping[str, Any], bool], Record],
    place: str,
    fields: Mapping[str, Any] | str,
    *,
    replaced: bool,
) -> Record | BadRecord:
    if isinstance(fields, str):
        return BadRecord(place, fields)
    try:
        return pick(place, fields, replaced)
    except UnfitError as error:
        return BadRecord(place, str(error))
