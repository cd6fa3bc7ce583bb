"""Find pairs of similar texts in files, exactly, without a database."""

import fpdb
from fpdb.cli import options, render
from fpdb.cli.inputs import BadRecords, documents_of_files
from fpdb.cli.options import argument, option, takes
from fpdb.cli.output import Output, chosen, enough


@takes(
    "key_field text_field format encoding delimiter html output output_format",
    reading=fpdb.Reading,
    target=Output,
    files=argument("FILE|DIR|-", "The texts; - is standard input."),
    containment=option("--containment", "Compare by the share of the smaller text."),
    sort=options.SORT,
)
def copies(
    reading: fpdb.Reading,
    target: Output,
    files: list[str],
    similarity: float | None = None,
    containment: bool = False,
    limit: int | None = None,
    sort: bool = False,
    recipe: fpdb.Recipe = options.WEB,
) -> None:
    """Find copies in files, exactly.

    Example:
      fpdb copies submissions --recipe submissions --similarity 0.7

    Compares shingles, or the features of a recipe such as submissions. None is
    missed, and nothing is estimated. Prints two keys and their similarity.
    """
    bad, count = BadRecords(), 0
    found = fpdb.exact_pairs(
        documents_of_files(files, reading, bad), similarity, recipe=recipe, containment=containment
    )
    names = {"key": "string", "other": "string", "similarity": "double"}
    sizes = dict.fromkeys(("common", "size", "other_size"), "int64")
    with target.opened(names | sizes, tuple(names)):
        for pair in chosen(found, limit, (lambda pair: pair.similarity) if sort else None):
            count += 1
            target.write(pair, (pair.key, pair.other, f"{pair.similarity:.4f}"))
        if not bad.good:
            bad.settle()  # an error, before the file takes the place of an older one
    render.summarise(
        None,
        f"pairs {count:,}{enough(count, limit)}; {render.elapsed()}",
        render.counted("bad records", bad.count),
    )
    bad.settle()
