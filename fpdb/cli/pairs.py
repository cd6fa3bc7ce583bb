"""Find all near-duplicate pairs of a database."""

import time

from fpdb.cli import render
from fpdb.cli.options import (
    DatabaseArgument,
    KOption,
    QuietOption,
    SimilarityOption,
    bundled,
    open_readonly,
)
from fpdb.cli.output import (
    Output,
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
    quiet: QuietOption = False,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb
      fpdb pairs crawl.fpdb -k 5
      fpdb pairs crawl.fpdb --output pairs.parquet
      fpdb pairs crawl.fpdb --similarity 0.8

    Each line holds two keys, the older document first, and their distance.
    """
    started = time.monotonic()
    found = 0
    with open_readonly(path) as database:
        key = key_column(database)
        columns = {"key": key, "other": key, "distance": "int32", "similarity": "double"}
        with target.opened(columns | {"jaccard": "double"}):
            for pair in database.pairs(k, min_jaccard=similarity):
                found += 1
                shown = (pair.key, pair.other, pair.distance, *jaccard_cells(pair))
                target.write(near_dict(pair), tuple(pair), shown)
    if not quiet:
        render.note(f"pairs {found:,}; {time.monotonic() - started:.2f} s")
