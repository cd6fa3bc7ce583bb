"""Find near-duplicates among stored documents: pairs, and clusters of which one is kept."""

import time
from typing import Annotated, Literal

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import DatabaseArgument, KOption, QuietOption, SimilarityOption, bundled
from fpdb.cli.output import Output, key_column, likeness


@bundled(target=Output)
def pairs(
    path: DatabaseArgument,
    target: Output,
    k: KOption = None,
    similarity: SimilarityOption = None,
    quiet: QuietOption = False,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb
      fpdb pairs crawl.fpdb -k 5
      fpdb pairs crawl.fpdb --output pairs.parquet
      fpdb pairs crawl.fpdb --similarity 0.9

    Each line holds two keys, the older document first, and their similarity, or the distance of
    their fingerprints where bits are asked for.
    """
    started = time.monotonic()
    count = 0
    with fpdb.open(path, readonly=True) as database:
        key = key_column(database)
        columns = {"key": key, "other": key, "distance": "int32"}
        with target.opened(columns | {"similarity": "double"}):
            for pair in database.pairs(k=k, similarity=similarity):
                count += 1
                target.write(pair, (pair.key, pair.other, likeness(pair)))
    if not quiet:
        render.note(f"pairs {count:,}; {time.monotonic() - started:.2f} s")


@bundled(target=Output)
def clusters(
    path: DatabaseArgument,
    target: Output,
    k: KOption = None,
    similarity: SimilarityOption = None,
    keep: Annotated[
        Literal["first", "longest"],
        typer.Option("--keep", help="Which document to keep: the oldest, or the longest."),
    ] = "first",
    delete_duplicates: Annotated[
        bool, typer.Option("--delete-duplicates", help="Delete all documents but those to keep.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Group near-duplicates, and delete copies.

    Example:
      fpdb clusters crawl.fpdb
      fpdb clusters crawl.fpdb --output clusters.csv
      fpdb clusters crawl.fpdb --similarity 0.9
      fpdb clusters crawl.fpdb --keep longest --delete-duplicates

    Each line holds the number of a cluster, the word keep or duplicate, and a key.
    """
    started = time.monotonic()
    number = duplicates = 0
    with fpdb.open(path, readonly=not delete_duplicates) as database:
        columns = {"cluster": "int64", "role": "string", "key": key_column(database)}
        search = database.delete_duplicates if delete_duplicates else database.clusters
        with target.opened(columns):
            for number, cluster in enumerate(search(k=k, keep=keep, similarity=similarity), 1):
                target.write((number, "keep", cluster.representative))
                for key in cluster.duplicates:
                    duplicates += 1
                    target.write((number, "duplicate", key))
    if not quiet:
        outcome = "deleted" if delete_duplicates else "duplicates"
        seconds = time.monotonic() - started
        render.note(f"clusters {number:,}, {outcome} {duplicates:,}; {seconds:.2f} s")
