"""Find near-duplicates among stored documents: pairs, and clusters of which one is kept."""

from functools import partial
from pathlib import Path

import fpdb
from fpdb.cli import render
from fpdb.cli.options import option, require, takes
from fpdb.cli.output import Output, key_column, likeness, title_of
from fpdb.results import PART_PAIRS


@takes(
    target=Output,
    passages=option("--passages", "List pairs that share a part."),
)
def pairs(
    path: Path,
    target: Output,
    k: int | None = None,
    similarity: float | None = None,
    passages: bool = False,
    least: float | None = None,
    jobs: int = 1,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb --similarity 0.9 --output pairs.parquet

    Prints two keys, the older document first, and their similarity, or their
    distance in bits. With --passages, the words that both have, about,
    and their shares of the two.
    """
    require(passages or least is None, "--least is one of --passages")
    count = 0
    if passages:
        require(k is None and similarity is None, "--passages compares no whole texts")
        with fpdb.open(path, readonly=True) as database:
            key = key_column(database)
            with target.opened(PART_PAIRS.types | {"key": key, "other": key}, title=True):
                for part in database.passage_pairs(**({} if least is None else {"least": least})):
                    count += 1
                    shares = f"{part.share:.2f}", f"{part.other_share:.2f}"
                    title = partial(title_of, database, part.key)
                    target.write(part, (*part[:3], *shares), title)
        render.summarise(None, f"pairs {count:,}; {render.elapsed()}")
        return
    with fpdb.open(path, readonly=True) as database:
        key, bits = key_column(database), k is not None
        columns = {"key": key, "other": key, "distance": "int32", "similarity": "double"}
        of_bits = bits or (similarity or database.similarity) is None
        names = ("key", "other", "distance" if of_bits else "similarity")
        with target.opened(columns, names, title=True):
            for pair in database.pairs(k=k, similarity=similarity, jobs=jobs):
                count += 1
                shown = (pair.key, pair.other, likeness(pair, bits=bits))
                target.write(pair, shown, partial(title_of, database, pair.key))
    render.summarise(None, f"pairs {count:,}; {render.elapsed()}")


@takes(
    target=Output,
    delete_duplicates=option("--delete-duplicates", "Delete all documents but those to keep."),
)
def clusters(
    path: Path,
    target: Output,
    k: int | None = None,
    similarity: float | None = None,
    keep: str = "first",
    delete_duplicates: bool = False,
    jobs: int = 1,
) -> None:
    """Group near-duplicates, and delete copies.

    Example:
      fpdb clusters crawl.fpdb --keep longest --delete-duplicates

    Prints the number of a cluster, the word keep or duplicate, and a key.
    """
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
    render.summarise(None, f"{render.listed(counts)}; {render.elapsed()}")
