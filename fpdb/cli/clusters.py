"""The command that finds clusters of near-duplicates, and deletes all but one of each."""

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

import fpdb
from fpdb.cli import databases, render
from fpdb.cli.databases import require
from fpdb.cli.exact import Exact, ExactKeyOption, ExactOption, ExactTextOption
from fpdb.cli.options import DatabaseArgument, JoinOption, JsonOption, MinJaccardOption
from fpdb.cli.output import (
    Form,
    NoCsvGuardOption,
    Output,
    OutputFormatOption,
    OutputOption,
    key_type,
)
from fpdb.cli.sources import RecordFormatOption

_COLUMNS = {"cluster": "int64", "role": "string", "key": "string"}
_DELETED = ("key", "representative")


class Keep(StrEnum):
    """Which document represents its cluster."""

    FIRST = "first"
    LONGEST = "longest"


def clusters(
    path: DatabaseArgument,
    k: JoinOption = None,
    keep: Annotated[
        Keep,
        typer.Option("--keep", help="What represents a cluster: its first document, or longest."),
    ] = Keep.FIRST,
    min_jaccard: MinJaccardOption = None,
    exact: ExactOption = None,
    form: RecordFormatOption = None,
    key: ExactKeyOption = None,
    text: ExactTextOption = None,
    output: OutputOption = "-",
    output_form: OutputFormatOption = None,
    as_json: JsonOption = False,
    no_csv_guard: NoCsvGuardOption = False,
    delete_duplicates: Annotated[
        bool,
        typer.Option(
            "--delete-duplicates", help="Delete all documents of a cluster but the one to keep."
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what --delete-duplicates would delete; delete nothing."
        ),
    ] = False,
) -> None:
    """Find the clusters of stored documents that pairs within k connect.

    Each line holds the number of a cluster, the word keep or duplicate, and a key. The document
    to keep comes first: the one that was added first (with integer keys, the smallest), or with
    --keep longest the one with the longest text. With --json, a cluster is one object.

    A chain of near documents is one cluster, so a duplicate may be farther than k from what is
    kept. Short texts are in no cluster.

    With --min-jaccard, only pairs connect whose texts are so similar, as `fpdb pairs` says, which
    explains --exact too.

    With --delete-duplicates, each line holds the key of a document that was deleted, and the key
    of the one that was kept for it. What has changed since the clusters were found stays. An
    interrupted run has deleted what it has printed, and at most a thousand more.

    CSV and Parquet have the same columns, with names.

    \b
    Example:
      fpdb clusters crawl.fpdb
      fpdb clusters crawl.fpdb --output clusters.csv
      fpdb clusters crawl.fpdb --keep longest --delete-duplicates --dry-run
      fpdb clusters crawl.fpdb --min-jaccard 0.8
    """
    require(delete_duplicates or not dry_run, "--dry-run says what --delete-duplicates would do")
    writes = delete_duplicates and not dry_run
    # The file would appear at the end only, and be lost if that never comes.
    require(not writes or output == "-", "what is deleted is printed at once: use > FILE")
    source = Exact(exact, form, key, text)
    target = Output(output, output_form, Form.TSV, as_json=as_json, guard=not no_csv_guard)
    started = time.monotonic()
    with databases.open_writable(path) if writes else databases.open_readonly(path) as database:
        texts = source.texts(database, k, min_jaccard)
        if writes:
            found = database.delete_duplicates(
                k, keep=keep.value, min_jaccard=min_jaccard, exact=texts
            )
        else:
            found = database.clusters(k, keep=keep.value, min_jaccard=min_jaccard, exact=texts)
        if not delete_duplicates:
            with target.opened(_COLUMNS | {"key": key_type(database.keys)}):
                count, duplicates = _write_clusters(found, target)
            seconds = time.monotonic() - started
            render.note(f"clusters {count:,}, duplicates {duplicates:,}; {seconds:.2f} s")
            return
        try:
            with target.opened(dict.fromkeys(_DELETED, key_type(database.keys))):
                deleted = _write_deleted(found, target)
        except KeyboardInterrupt:
            if writes:
                render.note("interrupted: what was printed is deleted; run it again for the rest")
            raise typer.Exit(130) from None
    render.note(f"{'would be deleted' if dry_run else 'deleted'}: {deleted:,}")


def _write_clusters(found: Iterable[fpdb.Cluster], target: Output) -> tuple[int, int]:
    number = duplicates = 0
    write = target.add if target.cells else render.row
    for number, cluster in enumerate(found, 1):
        duplicates += len(cluster.duplicates)
        if target.form is Form.JSONL:
            plain = {"cluster": number, "representative": cluster.representative}
            render.record(plain | {"duplicates": cluster.duplicates})
            continue
        write(number, "keep", cluster.representative)
        for key in cluster.duplicates:
            write(number, "duplicate", key)
    return number, duplicates


def _write_deleted(found: Iterable[fpdb.Cluster], target: Output) -> int:
    deleted = 0
    write = target.add if target.cells else render.row
    for cluster in found:
        for key in cluster.duplicates:
            deleted += 1
            if target.form is Form.JSONL:
                render.record({"key": key, "representative": cluster.representative})
            else:
                write(key, cluster.representative)
    return deleted
