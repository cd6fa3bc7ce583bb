"""Load ready fingerprints, or an exported database."""

from pathlib import Path
from typing import Any, Literal

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, ProgressLine
from fpdb.cli.options import argument, option, takes


@takes(
    "format key_field fingerprint_field base",
    reading=fpdb.Reading,
    source=argument("FILE|-", "What to load; - is standard input."),
    k=options.NEW_K,
    fingerprint_field=option("--fingerprint-field F", "Field of a ready fingerprint."),
    format=option(
        "--format FORMAT", "portable, jsonl, tsv, csv, parquet or arrow; else by suffix."
    ),
)
def load(
    path: Path,
    source: str,
    reading: fpdb.Reading,
    recipe: fpdb.Recipe | None = None,
    k: int | None = None,
    key_type: options.KeyType | None = None,
    bad: Literal["drop", "fail"] = "drop",
) -> None:
    """Load fingerprints or an exported database.

    Example:
      fpdb load crawl.fpdb prints.tsv --key-field 1 --fingerprint-field 4 --base decimal

    A new database appears once everything is in it. Without --recipe, its
    fingerprints count as made by another program, and texts are refused.
    """
    new: dict[str, Any] = {"recipe": recipe, "k": k, "keys": key_type}
    progress, bad_records = ProgressLine("fingerprint"), BadRecords()
    render.now.left = "a new database isn't there, an old one is intact; run it again"
    counts = fpdb.load(
        path,
        source,
        reading,
        bad=bad,
        on_bad=bad_records,
        on_progress=progress,
        **{name: value for name, value in new.items() if value is not None},
    )
    progress.summarise()
    bad_records.settle(counts.read - counts.bad)
