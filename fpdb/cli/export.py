"""Write all documents out, for another machine or for other programs."""

from pathlib import Path
from typing import Literal

import fpdb
from fpdb.cli import render
from fpdb.cli.options import option, require, takes
from fpdb.cli.output import Output, document_dict, typed_columns
from fpdb.io.streams import packed, unpacked_name
from fpdb.progress import tracked


@takes(form=option("--output-format FORMAT", "portable (.fpdb.jsonl), jsonl, tsv, csv or parquet."))
def export(
    path: Path,
    output: str = "-",
    form: Literal["portable", "jsonl", "tsv", "csv", "parquet"] | None = None,
) -> None:
    """Write documents out.

    Example:
      fpdb export crawl.fpdb --output crawl.fpdb.jsonl.gz
    """
    json = render.now.json
    require(form != "portable" or not json, "--json is a format of its own")
    named = unpacked_name(output.lower()).endswith(".fpdb.jsonl")
    with fpdb.open(path, readonly=True) as database:
        if form == "portable" or (named and not form and not json):
            with render.opened(output) as raw, packed(raw, output) as file:
                count = database.dump(file)
        else:
            chosen = form or ("jsonl" if output == "-" else None)
            count = _write_documents(database, Output(output, chosen))
    if output != "-":
        render.summarise(None, f"{output}: {render.plural(count, 'document')}")


def _write_documents(database: fpdb.Database, target: Output) -> int:
    """Write the documents of a database for other programs; return their number."""
    count, bits = 0, database.plan.bits
    # Arrow has no numbers of 128 bits.
    as_number = bits <= 64 and target.form == "parquet"
    columns = {"key": "key", "fingerprint": "uint64" if as_number else "string"}
    columns |= {"added": "time", "meta": "string"}
    with target.opened(typed_columns(columns, database)):
        if target.form == "tsv":
            render.row(*columns)
        for document in tracked(database.scan(), "", "document", len(database)):
            count += 1
            plain = document_dict(document, bits)
            key, digits, meta = plain["key"], plain["fingerprint"], render.as_json(plain["meta"])
            if target.form == "jsonl":
                del plain["id"]
                render.record(plain)
            elif target.form == "parquet":
                number = document.fingerprint if as_number else digits
                target.write(
                    (key, number, document.added, meta if document.meta is not None else None)
                )
            else:
                target.write((key, digits or "short", plain["added"], meta))
    return count
