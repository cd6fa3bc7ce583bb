"""Find near-duplicates among stored documents: pairs, and clusters of which one is kept."""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, choose_reading
from fpdb.cli.options import bundled, option, require, require_name
from fpdb.cli.output import Output, key_column, likeness, title_of
from fpdb.errors import InputError
from fpdb.flow import parse_key
from fpdb.io.files import meter_of, read_records
from fpdb.io.records import BadRecord, Record

_EXACT = "Exact"


class ExactJoin:
    """An exact join of the texts of files: what is compared, and how."""

    def __init__(
        self,
        files: Annotated[
            list[str] | None,
            option(
                "--exact FILE|DIR|-",
                "Compare the texts in FILE exactly; none is missed.",
                panel=_EXACT,
            ),
        ] = None,
        of: Annotated[
            Literal["shingles", "features"],
            option("--of shingles|features", "The sets to compare.", panel=_EXACT),
        ] = "shingles",
        above: Annotated[
            bool, option("--above", "Above --similarity, not equal to it.", panel=_EXACT)
        ] = False,
        containment: Annotated[
            bool,
            option(
                "--containment",
                "Compare by the share of the smaller set.",
                panel=_EXACT,
            ),
        ] = False,
    ) -> None:
        self.files = files or []
        self.needs_files = of != "shingles" or above or containment
        self._settings: dict[str, Any] = {"of": of, "above": above, "containment": containment}
        self.bad = BadRecords()
        self.not_stored = 0

    def write(
        self,
        target: Output,
        reading: fpdb.Reading,
        path: Path | None,
        recipe: fpdb.Recipe | None,
        similarity: float | None,
    ) -> int:
        """Write the pairs of the texts, or of those that the database has; return their number."""
        count = 0
        with contextlib.ExitStack() as stack:
            database = None
            if path is not None:
                database = stack.enter_context(fpdb.open(path, readonly=True, recipe=recipe))
            found = fpdb.exact_pairs(
                self._documents(reading, database),
                0.8 if similarity is None else similarity,
                recipe=database.recipe if database else recipe or "web",
                **self._settings,
            )
            key = key_column(database) if database else "string"
            columns = {"key": key, "other": key, "similarity": "double"}
            stack.enter_context(
                target.opened(
                    columns | dict.fromkeys(("common", "size", "other_size"), "int64"),
                    tuple(columns),
                )
            )
            for pair in found:
                count += 1
                target.write(pair, (pair.key, pair.other, f"{pair.similarity:.4f}"))
            if not self.bad.good:
                self.bad.settle()  # an error, before the file takes the place of an older one
        return count

    def _documents(
        self, reading: fpdb.Reading, database: fpdb.Database | None
    ) -> Iterator[fpdb.Document]:
        """Read the documents, and count those that can't be used or aren't stored."""
        kind = database.keys if database else "text"
        meter = meter_of("read", self.files)
        records = chain.from_iterable(
            read_records(path, reading, progress=meter.add) for path in self.files
        )
        for document in self.bad.among(map(partial(_document, kind), records)):
            if database is None or document.key in database:
                yield document
            else:
                self.not_stored += 1


def _document(kind: str, record: Record | BadRecord) -> fpdb.Document | BadRecord:
    """Return a record as a document, if it can have a key of the kind of a database."""
    if isinstance(record, BadRecord):
        return record
    try:
        return fpdb.Document(parse_key(str(record.key), kind), record.text)
    except InputError as error:
        return BadRecord(record.source, str(error))


@bundled(
    "files of above containment key_field text_field input_format html output output_format",
    join=ExactJoin,
    reading=choose_reading,
    target=Output,
)
def pairs(
    join: ExactJoin,
    reading: fpdb.Reading,
    target: Output,
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="DB",
            callback=require_name,
            help="The directory of the database; not needed with --exact.",
        ),
    ] = None,
    k: options.KOption = None,
    similarity: options.SimilarityOption = None,
    recipe: options.AnyRecipeOption = None,
    jobs: options.JobsOption = 1,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb --similarity 0.9 --output pairs.parquet

    Prints two keys, the older document first, and their similarity, or their
    distance in bits.
    """
    started = time.monotonic()
    if join.files:
        require(k is None, "-k is a distance of fingerprints, and --exact compares texts")
        require(jobs == 1, "--jobs is for the pairs of a database")
        count = join.write(target, reading, path, recipe, similarity)
    else:
        require(path, "give a database, or --exact FILE")
        require(not join.needs_files, "--of, --above and --containment need --exact FILE")
        near = {"k": k, "similarity": similarity, "jobs": jobs}
        count = _write_near(target, Path(path or ""), recipe, near)
    render.summarise(
        None,
        f"pairs {count:,}; {time.monotonic() - started:.2f} s",
        render.counted("not in the database, and not compared", join.not_stored),
        render.counted("bad records", join.bad.count),
    )
    join.bad.settle()


def _write_near(
    target: Output, path: Path, recipe: fpdb.Recipe | None, near: dict[str, Any]
) -> int:
    """Write the pairs of a database that are near by some settings; return their number."""
    count = 0
    with fpdb.open(path, readonly=True, recipe=recipe) as database:
        key = key_column(database)
        columns = {"key": key, "other": key, "distance": "int32"}
        bits = near["k"] is not None
        of_bits = bits or (near["similarity"] or database.similarity) is None
        names = ("key", "other", "distance" if of_bits else "similarity")
        with target.opened(columns | {"similarity": "double"}, names, title=True):
            for pair in database.pairs(**near):
                count += 1
                shown = (pair.key, pair.other, likeness(pair, bits=bits))
                target.write(pair, shown, partial(title_of, database, pair.key))
    return count


@bundled(target=Output)
def clusters(
    path: options.DatabaseArgument,
    target: Output,
    k: options.KOption = None,
    similarity: options.SimilarityOption = None,
    keep: Annotated[
        Literal["first", "longest"],
        option("--keep first|longest", "Keep the oldest or the longest."),
    ] = "first",
    delete_duplicates: Annotated[
        bool, option("--delete-duplicates", "Delete all documents but those to keep.")
    ] = False,
    jobs: options.JobsOption = 1,
) -> None:
    """Group near-duplicates, and delete copies.

    Example:
      fpdb clusters crawl.fpdb --keep longest --delete-duplicates

    Prints the number of a cluster, the word keep or duplicate, and a key.
    """
    started = time.monotonic()
    number = duplicates = 0
    with fpdb.open(path, readonly=not delete_duplicates) as database:
        columns = {"cluster": "int64", "role": "string", "key": key_column(database)}
        search = database.delete_duplicates if delete_duplicates else database.clusters
        with target.opened(columns, title=True):
            found = search(k=k, keep=keep, similarity=similarity, jobs=jobs)
            for number, cluster in enumerate(found, 1):
                keep_title = partial(title_of, database, cluster.representative)
                target.write((number, "keep", cluster.representative), title=keep_title)
                for key in cluster.duplicates:
                    duplicates += 1
                    title = partial(title_of, database, key)
                    target.write((number, "duplicate", key), title=title)
    counts = {"clusters": number, "deleted" if delete_duplicates else "duplicates": duplicates}
    seconds = time.monotonic() - started
    render.summarise(None, f"{render.listed(counts)}; {seconds:.2f} s")
