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
    as_json: JsonOption = False,
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

    Short texts have no pairs. What is added meanwhile isn't looked at.

    \b
    Example:
      fpdb pairs crawl.fpdb
      fpdb pairs crawl.fpdb -k 5 --groups
      fpdb pairs crawl.fpdb --min-jaccard 0.8
      fpdb pairs crawl.fpdb --min-jaccard 0.8 --exact pages.jsonl
    """
    started = time.monotonic()
    found = grouped = copies = 0
    require(not (groups and min_jaccard is not None), "a group isn't verified: leave --groups out")
    source = Exact(exact, form, key, text)
    with databases.open_readonly(path) as database:
        width = database.plan.bits // 4
        texts = source.texts(database, k, min_jaccard)
        items: Iterator[fpdb.Pair | fpdb.Group] = (
            database.pairs(k, groups=True)
            if groups
            else database.pairs(k, min_jaccard=min_jaccard, exact=texts)
        )
        for item in items:
            if isinstance(item, fpdb.Group):
                grouped += 1
                copies += item.size
                if as_json:
                    plain = item._asdict()
                    render.record(plain | {"fingerprint": f"{item.fingerprint:0{width}x}"})
                else:
                    render.row("group", item.key, item.size)
                continue
            found += 1
            if as_json:
                render.record(near_dict(item))
            else:
                shown = (item.key, item.other, item.distance, *jaccard_cells(item))
                render.row(*(("pair",) if groups else ()), *shown)
    seconds = time.monotonic() - started
    also = f"groups {grouped:,} of {copies:,} documents, " if groups else ""
    render.note(f"{also}pairs {found:,}; {seconds:.2f} s")
