"""Find all near-duplicate pairs of a database."""

import time
from collections.abc import Iterator
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
    require,
)
from fpdb.cli.output import (
    Output,
    OutputFormat,
    format_fingerprint,
    jaccard_cells,
    key_column,
    near_dict,
)


@bundled("output output_format as_json no_csv_guard", target=Output)
def pairs(
    path: DatabaseArgument,
    target: Output,
    k: KOption = None,
    similarity: SimilarityOption = None,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="Print documents with the same fingerprint as one line."),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb
      fpdb pairs crawl.fpdb -k 5 --groups
      fpdb pairs crawl.fpdb --output pairs.parquet
      fpdb pairs crawl.fpdb --similarity 0.8

    Each line holds two keys, the older document first, and their distance.
    """
    started = time.monotonic()
    found = grouped = copies = 0
    require(not groups or similarity is None, "--groups doesn't go with --similarity")
    with open_readonly(path) as database:
        bits = database.plan.bits
        items: Iterator[fpdb.Pair | fpdb.models.Group] = (
            database.groups(k) if groups else database.pairs(k, min_jaccard=similarity)
        )
        with target.opened(_columns(key_column(database), bits, groups=groups)):
            for item in items:
                if isinstance(item, fpdb.models.Group):
                    grouped += 1
                    copies += item.size
                    _write_group(item, target, bits)
                else:
                    found += 1
                    _write_pair(item, target, groups=groups)
    if not quiet:
        seconds = time.monotonic() - started
        also = f"groups {grouped:,} of {copies:,} documents, " if groups else ""
        render.note(f"{also}pairs {found:,}; {seconds:.2f} s")


def _columns(key: str, bits: int, *, groups: bool) -> dict[str, str]:
    number = "string" if bits > 64 else "uint64"
    pair = {"key": key, "other": key, "distance": "int32", "similarity": "double"}
    further = {"size": "int64", "fingerprint": number} if groups else {"jaccard": "double"}
    return ({"kind": "string"} if groups else {}) | pair | further


def _write_group(group: fpdb.models.Group, target: Output, bits: int) -> None:
    written = format_fingerprint(group.fingerprint, bits)
    as_number = target.form is OutputFormat.PARQUET and bits <= 64
    number = group.fingerprint if as_number else written
    target.write(
        group._asdict() | {"fingerprint": written},
        ("group", group.key, None, None, None, group.size, number),
        ("group", group.key, group.size),
    )


def _write_pair(pair: fpdb.Pair, target: Output, *, groups: bool) -> None:
    cells = (pair.key, pair.other, pair.distance, pair.similarity)
    shown = (pair.key, pair.other, pair.distance, *jaccard_cells(pair))
    if groups:
        target.write(near_dict(pair), ("pair", *cells, None, None), ("pair", *shown))
    else:
        target.write(near_dict(pair), (*cells, pair.jaccard), shown)
