"""Find near-duplicates: pairs and clusters of stored documents, and exact pairs of files."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, common_texts, documents_of_files
from fpdb.cli.options import argument, option, require, takes
from fpdb.cli.output import Output, chosen, enough, likeness, title_of, typed_columns
from fpdb.documents.results import CLUSTERS, PAIRS, PART_PAIRS
from fpdb.look.page import writing_note, writing_of
from fpdb.models import PartPair


@takes(
    target=Output,
    passages=option("--passages", "List pairs with passages in common."),
    sort=options.SORT,
)
def pairs(
    path: Path,
    target: Output,
    k: int | None = None,
    similarity: float | None = None,
    passages: bool = False,
    least: float | None = None,
    limit: int | None = None,
    sort: bool = False,
    jobs: int = 0,
) -> None:
    """List pairs of near-duplicates.

    Example:
      fpdb pairs crawl.fpdb --similarity 0.9 --output pairs.parquet

    Prints two keys, the older document first, and their similarity, or their
    distance in bits. With --passages, about how many words they have in common,
    and the share of each document.
    """
    require(passages or least is None, "--least needs --passages")
    require(not passages or (k, similarity) == (None, None), "--passages compares no whole texts")
    count, unsketched = 0, ""
    with fpdb.open(path, readonly=True) as database:
        bits = k is not None
        results: Any
        if passages:
            columns, names = PART_PAIRS.types, tuple(PART_PAIRS.types)
            results = database.passage_pairs(**({} if least is None else {"least": least}))
        else:
            columns = PAIRS.types
            of_bits = bits or (similarity or database.similarity) is None
            names = ("key", "other", "distance" if of_bits else "similarity")
            unsketched = "" if of_bits else _without_sketch(database)
            results = database.pairs(k=k, similarity=similarity, jobs=jobs)
        with target.opened(typed_columns(columns, database), names, title=True):
            for pair in chosen(results, limit, _nearness if sort else None):
                count += 1
                shown = (pair.key, pair.other, *_near(pair, bits=bits))
                target.write(pair, shown, partial(title_of, database, pair.key))
    done = f"pairs {count:,}{enough(count, limit)}; {render.elapsed()}"
    render.summarise(None, done, unsketched)


def _without_sketch(database: fpdb.Database) -> str:
    """Return a line about documents that have fingerprints but no sketch, if there are any."""
    stats = database.stats()
    # Some short texts have a sketch; beside these, as many others aren't counted.
    count = max(stats.documents - stats.short - (stats.sketches or 0), 0)
    return render.counted("documents without a sketch, which only -k compares", count)


def _nearness(pair: fpdb.Pair | PartPair) -> float:
    if isinstance(pair, PartPair):
        return pair.words
    return -pair.distance if pair.similarity is None else pair.similarity


def _near(pair: fpdb.Pair | PartPair, *, bits: bool) -> tuple[object, ...]:
    if isinstance(pair, PartPair):
        return pair.words, f"{pair.share:.2f}", f"{pair.other_share:.2f}"
    return (likeness(pair, bits=bits),)


@takes(
    target=Output,
    sort=option("--sort", "Print the largest clusters first."),
    chains=option("--chains", "List all that pairs connect as one cluster."),
    delete_duplicates=option("--delete-duplicates", "Delete all documents but those to keep."),
)
def clusters(
    path: Path,
    target: Output,
    k: int | None = None,
    similarity: float | None = None,
    keep: str = "first",
    chains: bool = False,
    limit: int | None = None,
    sort: bool = False,
    delete_duplicates: bool = False,
    jobs: int = 0,
) -> None:
    """Group near-duplicates, and delete copies.

    Example:
      fpdb clusters crawl.fpdb --keep longest --delete-duplicates

    Prints the number of a cluster, the word keep or duplicate, and a key. Each
    duplicate matches the document to keep.
    """
    require(not (delete_duplicates and limit), "--delete-duplicates has no --limit")
    require(not (delete_duplicates and chains), "--delete-duplicates follows no --chains")
    number = duplicates = 0
    with fpdb.open(path, readonly=not delete_duplicates) as database:
        of_bits = k is not None or (similarity or database.similarity) is None
        unsketched = "" if of_bits else _without_sketch(database)
        listed = partial(database.clusters, chains=chains)
        search = database.delete_duplicates if delete_duplicates else listed
        with target.opened(typed_columns(CLUSTERS.types, database), title=True):
            results = search(k=k, keep=keep, similarity=similarity, jobs=jobs)
            size = (lambda cluster: len(cluster.duplicates)) if sort else None
            for number, cluster in enumerate(chosen(results, limit, size), 1):
                duplicates += len(cluster.duplicates)
                for cells in CLUSTERS.rows(number - 1, cluster):
                    target.write(cells, title=partial(title_of, database, cells[-1]))
    counts = {"clusters": number, "deleted" if delete_duplicates else "duplicates": duplicates}
    done = f"{render.listed(counts)}{enough(number, limit)}; {render.elapsed()}"
    render.summarise(None, done, unsketched)


@takes(
    "key_field text_field format encoding html output",
    reading=fpdb.Reading,
    target=Output,
    files=argument("FILE|DIR|-", "The texts; - is standard input."),
    containment=option("--containment", "Compare how much of the smaller text the other has."),
    sort=options.SORT,
)
def copies(
    reading: fpdb.Reading,
    target: Output,
    files: list[str],
    similarity: float | None = None,
    containment: bool = False,
    common: list[str] | None = None,
    limit: int | None = None,
    sort: bool = False,
    recipe: fpdb.Recipe = options.WEB,
) -> None:
    """Compare all texts of files with each other.

    Example:
      fpdb copies submissions --recipe submissions --similarity 0.7

    Compares shingles, or the features of a recipe such as submissions. No
    pair is missed, and nothing is estimated. Prints two keys and their similarity.
    """
    bad, count = BadRecords(), 0
    if common:
        recipe = recipe.replace(common=common_texts(common))
    writings = Counter[str]()

    def documents() -> Iterator[fpdb.Document]:
        for document in documents_of_files(files, reading, bad):
            writings[writing_of(document.text or "")] += 1
            yield document

    results = fpdb.exact_pairs(documents(), similarity, recipe=recipe, containment=containment)
    names = {"key": "string", "other": "string", "similarity": "double"}
    sizes = dict.fromkeys(("common", "size", "other_size"), "int64")
    with target.opened(names | sizes, tuple(names), inputs=files):
        for pair in chosen(results, limit, (lambda pair: pair.similarity) if sort else None):
            count += 1
            target.write(pair, (pair.key, pair.other, f"{pair.similarity:.4f}"))
        if not bad.good:
            bad.settle()  # an error, before the file takes the place of an older one
    render.summarise(
        None,
        f"pairs {count:,}{enough(count, limit)}; {render.elapsed()}",
        render.counted("bad records", bad.count),
        writing_note(writings, recipe.clean),
    )
    bad.settle()
