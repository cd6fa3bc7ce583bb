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


@bundled(
    "key_field text_field input_format html output output_format",
    reading=choose_reading,
    target=Output,
)
def pairs(
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
    exact: Annotated[
        list[str] | None,
        option(
            "--exact FILE|DIR|-", "Compare the texts in FILE exactly; none is missed.", panel=_EXACT
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
        bool, option("--containment", "Compare by the share of the smaller set.", panel=_EXACT)
    ] = False,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb --similarity 0.9 --output pairs.parquet

    Prints two keys, the older document first, and their similarity, or their
    distance in bits.
    """
    started = time.monotonic()
    if not exact:
        require(path, "give a database, or --exact FILE")
        plain = of == "shingles" and not above and not containment
        require(plain, "--of, --above and --containment need --exact FILE")
        near = {"k": k, "similarity": similarity, "jobs": jobs}
        count = _write_near(target, Path(path or ""), recipe, near)
        render.summarise(None, f"pairs {count:,}; {time.monotonic() - started:.2f} s")
        return
    require(k is None, "-k is a distance of fingerprints, and --exact compares texts")
    require(jobs == 1, "--jobs is for the pairs of a database")
    settings: dict[str, Any] = {"of": of, "above": above, "containment": containment}
    settings["similarity"] = 0.8 if similarity is None else similarity
    bad = BadRecords()
    count, not_stored = _write_exact(target, reading, exact, bad, path, recipe, settings)
    render.summarise(
        None,
        f"pairs {count:,}; {time.monotonic() - started:.2f} s",
        render.counted("not in the database, and not compared", not_stored),
        render.counted("bad records", bad.count),
    )
    bad.settle()


def _write_exact(
    target: Output,
    reading: fpdb.Reading,
    files: list[str],
    bad: BadRecords,
    path: Path | None,
    recipe: fpdb.Recipe | None,
    settings: dict[str, Any],
) -> tuple[int, int]:
    """Write the pairs of the texts of files, or of those that a database has.

    Return their number, and that of the documents that aren't stored.
    """
    count = not_stored = 0
    with contextlib.ExitStack() as stack:
        database = None
        if path is not None:
            database = stack.enter_context(fpdb.open(path, readonly=True, recipe=recipe))

        def documents() -> Iterator[fpdb.Document]:
            nonlocal not_stored
            kind = database.keys if database else "text"
            meter = meter_of("read", files)
            records = chain.from_iterable(
                read_records(name, reading, progress=meter.add) for name in files
            )
            for document in bad.among(map(partial(_document, kind), records)):
                if database is None or document.key in database:
                    yield document
                else:
                    not_stored += 1

        own = database.recipe if database else recipe or "web"
        found = fpdb.exact_pairs(documents(), recipe=own, **settings)
        key = key_column(database) if database else "string"
        names = {"key": key, "other": key, "similarity": "double"}
        sizes = dict.fromkeys(("common", "size", "other_size"), "int64")
        stack.enter_context(target.opened(names | sizes, tuple(names)))
        for pair in found:
            count += 1
            target.write(pair, (pair.key, pair.other, f"{pair.similarity:.4f}"))
        if not bad.good:
            bad.settle()  # an error, before the file takes the place of an older one
    return count, not_stored


def _document(kind: str, record: Record | BadRecord) -> fpdb.Document | BadRecord:
    """Return a record as a document, if it can have a key of the kind of a database."""
    if isinstance(record, BadRecord):
        return record
    try:
        return fpdb.Document(parse_key(str(record.key), kind), record.text)
    except InputError as error:
        return BadRecord(record.source, str(error))


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
