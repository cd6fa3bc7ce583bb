"""A corpus in, a clean corpus out: near-duplicates in files, tables and records are left out."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fpdb.dedupe.files import Corpus, record_files
from fpdb.dedupe.records import kept_records, kept_rows
from fpdb.dedupe.run import Deduplicated, Deduplication, Removed, SourceLoss, Where
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.io.arrow import is_split, is_table
from fpdb.io.records import BadRecord, Reading
from fpdb.models import TextsByKey

__all__ = ["Deduplicated", "Removed", "SourceLoss", "dedupe"]


def dedupe(
    source: Any,
    output: str | os.PathLike[str] | None = None,
    reading: Reading | None = None,
    *,
    text_field: str | Sequence[str] | None = None,
    output_dir: str | os.PathLike[str] | None = None,
    database: Where | None = None,
    similarity: float | None = None,
    k: int | None = None,
    recipe: str | Recipe | None = None,
    keep: str = "first",
    same_key: str | None = None,
    texts: TextsByKey | None = None,
    lose: float | None = None,
    within: str | None = None,
    source_field: str | None = None,
    most: float | None = None,
    annotate: bool = False,
    cut: int | None = None,
    bad: str = "keep",
    removed: str | os.PathLike[str] | None = None,
    jobs: int = 0,
    memory: int | None = None,
    tmp: str | os.PathLike[str] | None = None,
    abandon: bool = False,
    command: str = "",
    on_removed: Callable[[Removed], object] | None = None,
    on_bad: Callable[[BadRecord], object] | None = None,
    on_progress: Callable[[Deduplicated], object] | None = None,
) -> Any:
    """Leave near-duplicates out of files, of a table, or of records; what stays is unchanged.

    Of files, an output gets what stays, and the counts are returned. Of a table a table of the same
    kind is returned: of pandas, polars, pyarrow, a relation of DuckDB, or a `Dataset` or
    `DatasetDict` of Hugging Face, whose splits are compared in their order; any other with the
    Arrow interface becomes one of pyarrow. Of records those that stay are yielded, some thousand at
    a time; "longest" and "newest" hold all of them in memory. The order is always that of the
    source.

    Args:
        source: Files of JSON lines, CSV, TSV or Parquet, "-" for standard input; a table; or
            records, each a `Document` or a dictionary of fields.
        output: One file for what stays, in the format of the inputs; its suffix says how it is
            compressed. It appears whole or not at all.
        reading: How files become records; records need no key.
        text_field: The field of the text; several are joined. It is short for `reading`.
        output_dir: A folder for one file for each input, in place of `output`.
        database: A database, or the path of one, which is created if it isn't there. Records that
            resemble its documents are removed, and the kept ones are added, all in one step: when
            the outputs are in their places, before the table is returned, or once all records were
            taken of the iterator. One that is closed before adds nothing. A run that was
            interrupted is begun again: call it with the same records and options.
        similarity: The least similarity at which a record is removed; 0.8 by default, or that of
            the database. It is exact, as texts are compared where an estimate is near it; beside
            the documents of a database, which has no texts, the estimate decides, unless `texts`
            has them.
        k: Remove records whose fingerprints are within k, whatever their similarity.
        recipe: The recipe, "web" by default, or that of the database.
        keep: "first", "longest", "newest:FIELD" or "source:FIELD=a,b,*". Records are considered in
            this order, and one is removed if it resembles one that was kept. Of equal ones the
            first comes first. Sources are values of a field, such as "a" and "b", and "*" is any
            other one, and last if it isn't named; of these, records without a value come last.
        same_key: What becomes of a stored document if a record comes with its key and another text:
            with "keep" it stays, and a record that resembles nothing gets another key; with
            "replace" the record stays, and takes its place. The default is "keep", but with
            "newest:FIELD" it is "replace", which then is for a newer record only.
        texts: The texts of the documents in the database, if you have them elsewhere: a function or
            a mapping that has the text of a key, or None. The key is that in the database: a text,
            or the place of a record that had none. They decide where an estimate is near the limit,
            but for documents whose text it doesn't have, or has in another version.
        lose: The largest share of its own shingles that a record may lose: it is removed only if
            the one that stays lacks no more. Texts then decide about every pair, so a record that
            resembles a document of a database stays unless `texts` has the document's, or both
            texts are equal.
        within: A field; only records with an equal value in it are compared. Values are equal as in
            JSON: 1 is 1.0, and differs from "1". A missing value, or an empty one, is a value of
            its own. It isn't for a database, which keeps no such field.
        source_field: The field that names the source of a record, in place of its file or split.
            The counts name the sources of which more than half goes.
        most: The largest share of a source that may go. If more of any would go, this raises
            LossError, and nothing is written. Records are yielded before all are decided, so it is
            for files and tables.
        annotate: Leave nothing out, but add three fields to each record, or to the metadata of a
            document: `kept_key`, the key of the record that stays in its place, which is its own
            unless it resembles another one, or the place of a record without a key; and the
            `similarity` and `own_share` of `Removed`, which are None for a record that stays. The
            counts are those of a run that leaves records out.
        cut: Before records are compared, paragraphs are cut that at least so many different texts
            have, from all of them but the first one; with `within`, of records with an equal value.
            A paragraph is a line of ten words or 20 characters of a script without spaces, or more;
            lines of up to 100 bytes, which may be broken within sentences, are one together up to
            a blank line. Records that lose none are unchanged, and the others are otherwise the
            same. It isn't for HTML, for texts of several fields, or for records, which are read
            once. Documents of a database don't count.
        bad: Whether records that can't be compared stay ("keep"), are left out ("drop"), or are an
            InputError ("fail").
        removed: A file for a line of JSON about each record that was removed, and each paragraph
            that was cut.
        jobs: The number of threads that read and fingerprint; 0 for one a processor. The result
            doesn't depend on it.
        memory: The bytes of memory that columns of all records may take, some 250 for each, and for
            each word of an iterator's records 8 more; half of the free memory by default. Beyond
            that they lie in files. It doesn't count some 150 MB that a run works with, and 50 bytes
            for each record.
        tmp: The folder of these files; that of the output by default.
        abandon: Forget a run that moved some of its outputs to their places, but didn't come to add
            what it kept to the database. Its outputs stay as they are, and what is deduplicated
            later isn't compared with them.
        command: The command that runs this again. If it doesn't finish, errors of other runs on the
            database, and `stats`, give it.
        on_removed: Called for each record that is removed; last for those that texts decide about.
        on_bad: Called for each record that can't be compared.
        on_progress: Called with the counts so far; for the last time before the database is
            changed, so that it can't lose the result of a run that has added what it kept.

    Returns:
        The counts, a table, or an iterator of records, by the source.

    Raises:
        LossError: More of a source would go than `most`.
        InputError: The source, the output or the options don't fit, or with `bad="fail"` a record.
        MissingExtraError: A format needs a package that isn't installed.
    """
    reading = reading or Reading()
    if text_field is not None:
        reading = dataclasses.replace(reading, text_field=text_field)
    run = Deduplication(
        *(reading, similarity, k, recipe, keep, bad, jobs, memory, tmp),
        *(abandon, same_key, texts, lose, within, source_field, most, annotate, cut),
        *(command, on_removed, on_bad, on_progress),
    )
    if output is not None or output_dir is not None or isinstance(source, str | os.PathLike):
        _require_no_table(source)
        if (output is None) == (output_dir is None):
            raise InputError(
                "found no place for the output, or two", hint="give output= or output_dir="
            )
        corpus = Corpus(
            run,
            record_files(source, run.reading),
            Path(output or output_dir or ""),
            output is None,
            None if removed is None else os.fspath(removed),
        )
        corpus.deduplicate(database)
        return run.counts
    if removed is not None:
        raise InputError(
            "found a file for what is removed, but no output that is a file",
            hint="on_removed is called for each removed record",
        )
    return _in_memory(run, source, database)


def _in_memory(run: Deduplication, source: Any, database: Where | None) -> Any:
    if is_table(source) or is_split(source):
        return kept_rows(run, source, database)
    if not isinstance(source, Iterable):
        raise InputError(
            f"found {source!r:.40}, expected files, records or a table",
            hint="paths need an output; records are documents or dictionaries",
        )
    return kept_records(run, source, database)


def _require_no_table(source: Any) -> None:
    if is_table(source) or is_split(source):
        raise InputError(
            f"found {type(source).__name__}, and an output, which is for files",
            hint="leave it out, and write the table that is returned",
        )
