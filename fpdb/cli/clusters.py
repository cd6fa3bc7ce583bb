"""Find clusters of near-duplicates, and delete all but one document of each."""

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.options import (
    DatabaseArgument,
    KOption,
    QuietOption,
    SimilarityOption,
    bundled,
    open_readonly,
    open_writable,
    require,
)
from fpdb.cli.output import (
    Output,
    OutputFormat,
    key_column,
)

_COLUMNS = {"cluster": "int64", "role": "string", "key": "string"}
_DELETED = ("key", "representative")


class Keep(StrEnum):
    """Which document represents its cluster."""

    FIRST = "first"
    LONGEST = "longest"


@bundled("output output_format as_json no_csv_guard", target=Output)
def clusters(
    path: DatabaseArgument,
    target: Output,
    k: KOption = None,
    similarity: SimilarityOption = None,
    keep: Annotated[
        Keep, typer.Option("--keep", help="Which document to keep: the oldest, or the longest.")
    ] = Keep.FIRST,
    delete_duplicates: Annotated[
        bool, typer.Option("--delete-duplicates", help="Delete all documents but those to keep.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what --delete-duplicates would delete.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Group near-duplicates, and delete copies.

    Example:
      fpdb clusters crawl.fpdb
      fpdb clusters crawl.fpdb --output clusters.csv
      fpdb clusters crawl.fpdb --similarity 0.8
      fpdb clusters crawl.fpdb --keep longest --delete-duplicates --dry-run

    Each line holds the number of a cluster, the word keep or duplicate, and a key.
    """
    require(delete_duplicates or not dry_run, "--dry-run needs --delete-duplicates")
    writes = delete_duplicates and not dry_run
    # A file appears at the end only, and would be lost if that never comes.
    require(not writes or target.path == "-", "deleted keys are printed at once: use > FILE")
    started = time.monotonic()
    with open_writable(path) if writes else open_readonly(path) as database:
        search = database.delete_duplicates if writes else database.clusters
        found = search(k, keep=keep.value, min_jaccard=similarity)
        key = key_column(database)
        if not delete_duplicates:
            with target.opened(_COLUMNS | {"key": key}):
                count, duplicates = _write_clusters(found, target)
            if not quiet:
                seconds = time.monotonic() - started
                render.note(f"clusters {count:,}, duplicates {duplicates:,}; {seconds:.2f} s")
            return
        with target.opened(dict.fromkeys(_DELETED, key)):
            deleted = _write_deleted(found, target)
    if not quiet:
        render.note(f"{'would be deleted' if dry_run else 'deleted'}: {deleted:,}")


def _write_clusters(found: Iterable[fpdb.Cluster], target: Output) -> tuple[int, int]:
    number = duplicates = 0
    for number, cluster in enumerate(found, 1):
        duplicates += len(cluster.duplicates)
        if target.form is OutputFormat.JSONL:
            plain = {"cluster": number, "representative": cluster.representative}
            render.record(plain | {"duplicates": cluster.duplicates})
            continue
        for key in cluster.keys:
            role = "keep" if key == cluster.representative else "duplicate"
            target.write({}, (number, role, key), (number, role, key))
    return number, duplicates


def _write_deleted(found: Iterable[fpdb.Cluster], target: Output) -> int:
    deleted = 0
    for cluster in found:
        for key in cluster.duplicates:
            deleted += 1
            row = (key, cluster.representative)
            target.write(dict(zip(_DELETED, row, strict=True)), row, row)
    return deleted
