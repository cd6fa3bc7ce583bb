"""The command that finds all near-duplicate pairs of a database."""

import time
from collections.abc import Iterator
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
from fpdb.cli.values import jaccard_cells, near_dict


def pairs(
    path: DatabaseArgument,
    k: JoinOption = None,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="Print documents with the very same fingerprint as one."),
    ] = False,
    min_jaccard: MinJaccardOption = None,
    exact: ExactOption = None,
    form: RecordFormatOption = None,
    key: ExactKeyOption = None,
    text: ExactTextOption = None,
    output: OutputOption = "-",
    output_form: OutputFormatOption = None,
    as_json: JsonOption = False,
    no_csv_guard: NoCsvGuardOption = False,
) -> None:
    """Find all pairs of stored documents within k of each other, each pair once.

    Each line holds two keys and their distance; the first key is that of the older document, or
    the smaller number. Lines come as they are found.

    A million copies of one page are half a million million pairs. With --groups they are one line:
    the word group, the key of the first, and how many there are. All other lines then begin with
    the word pair, and name the first documents of two such groups, or documents that are in none.

    With --min-jaccard, the search looks wider, unless -k says how wide, and keeps the pairs whose
    texts have that Jaccard similarity, by their sketches; a further column holds it. With --exact
    too, the texts themselves are compared: the file is read again that was ingested. Of it, only
    texts that the first look pairs are kept in memory. The database needs no sketches for that.

    CSV and Parquet have named columns. With --groups the first, kind, says what a row is.

    Short texts have no pairs. What is added meanwhile isn't looked at.

    \b
    Example:
      fpdb pairs crawl.fpdb
      fpdb pairs crawl.fpdb -k 5 --groups
      fpdb pairs crawl.fpdb --output pairs.parquet
      fpdb pairs crawl.fpdb --min-jaccard 0.8
      fpdb pairs crawl.fpdb --min-jaccard 0.8 --exact pages.jsonl
    """
    started = time.monotonic()
    found = grouped = copies = 0
    require(not (groups and min_jaccard is not None), "a group isn't verified: leave --groups out")
    source = Exact(exact, form, key, text)
    target = Output(output, output_form, Form.TSV, as_json=as_json, guard=not no_csv_guard)
    with databases.open_readonly(path) as database:
        width = database.plan.bits // 4
        texts = source.texts(database, k, min_jaccard)
        items: Iterator[fpdb.Pair | fpdb.Group] = (
            database.pairs(k, groups=True)
            if groups
            else database.pairs(k, min_jaccard=min_jaccard, exact=texts)
        )
        with target.opened(_columns(key_type(database.keys), width, groups=groups)):
            for item in items:
                if isinstance(item, fpdb.Group):
                    grouped += 1
                    copies += item.size
                    _write_group(item, target, width)
                else:
                    found += 1
                    _write_pair(item, target, groups=groups)
    seconds = time.monotonic() - started
    also = f"groups {grouped:,} of {copies:,} documents, " if groups else ""
    render.note(f"{also}pairs {found:,}; {seconds:.2f} s")


def _columns(key: str, width: int, *, groups: bool) -> dict[str, str]:
    number = "string" if width > 16 else "uint64"
    pair = {"key": key, "other": key, "distance": "int32", "similarity": "double"}
    further = {"size": "int64", "fingerprint": number} if groups else {"jaccard": "double"}
    return ({"kind": "string"} if groups else {}) | pair | further


def _write_group(group: fpdb.Group, target: Output, width: int) -> None:
    written = f"{group.fingerprint:0{width}x}"
    if target.form is Form.JSONL:
        render.record(group._asdict() | {"fingerprint": written})
    elif target.cells:
        number = group.fingerprint if target.form is Form.PARQUET and width <= 16 else written
        target.add("group", group.key, None, None, None, group.size, number)
    else:
        render.row("group", group.key, group.size)


def _write_pair(pair: fpdb.Pair, target: Output, *, groups: bool) -> None:
    if target.form is Form.JSONL:
        render.record(near_dict(pair))
    elif target.cells:
        cells = (pair.key, pair.other, pair.distance, pair.similarity)
        if groups:
            target.add("pair", *cells, None, None)
        else:
            target.add(*cells, pair.jaccard)
    else:
        shown = (pair.key, pair.other, pair.distance, *jaccard_cells(pair))
        render.row(*(("pair",) if groups else ()), *shown)
