"""The commands that run on Apache Spark; none of it is loaded before one of them is called."""

from typing import TYPE_CHECKING, Annotated

import typer

from fpdb.cli.databases import DEFAULT_RECIPE
from fpdb.cli.options import (
    AnyRecipeOption,
    BitsOption,
    CapacityOption,
    JsonOption,
    MinJaccardOption,
    RecipeOption,
    SketchOption,
)
from fpdb.cli.output import NoCsvGuardOption
from fpdb.cli.spark.options import (
    ConfOption,
    DirectoryFormOption,
    DirectoryOption,
    DocumentsArgument,
    Engine,
    FormOption,
    HeapOption,
    KeyOption,
    KOption,
    Making,
    MasterOption,
    Source,
    SparkBitsOption,
    Target,
    TextOption,
    WorkOption,
)

if TYPE_CHECKING:
    from types import ModuleType

app = typer.Typer(
    help="Work on Apache Spark, for what outgrows one machine.\n\n"
    "\b\nExample:\n  fpdb spark fingerprint pages.parquet -o prints.parquet\n"
    "  fpdb spark pairs prints.parquet -o pairs.parquet",
    rich_markup_mode=None,
    no_args_is_help=True,
)


@app.command()
def fingerprint(
    inputs: DocumentsArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="A new directory, for Parquet.")
    ],
    form: FormOption = None,
    key: KeyOption = None,
    text: TextOption = None,
    recipe: RecipeOption = DEFAULT_RECIPE,
    bits: BitsOption = None,
    sketch: SketchOption = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="F", help="A further column to keep; may be repeated."),
    ] = None,
    master: MasterOption = None,
    memory: HeapOption = None,
    conf: ConfOption = None,
) -> None:
    """Fingerprint the texts of Parquet, JSON lines or CSV.

    The new directory holds Parquet with the columns key, fingerprint, digest, characters, problem,
    and those kept; the other commands read it. Texts that have no fingerprint are counted at the
    end, and the first of them are named.

    Under spark-submit, settings are those of spark-submit.

    \b
    Example:
      fpdb spark fingerprint crawl/*.parquet -o prints.parquet --key-field url
      fpdb spark fingerprint pages.jsonl -o prints.parquet --recipe zh --sketch minhash
    """
    source = Source(tuple(inputs), form, key, text)
    making = Making(recipe, bits, sketch)
    _jobs().fingerprint(_engine(master, conf, memory), source, making, tuple(keep or ()), output)


@app.command()
def pairs(
    inputs: DocumentsArgument,
    k: KOption = None,
    min_jaccard: MinJaccardOption = None,
    spanning: Annotated[
        bool,
        typer.Option("--spanning", help="Fewer pairs, which connect the same documents."),
    ] = False,
    form: FormOption = None,
    key: KeyOption = None,
    text: TextOption = None,
    recipe: AnyRecipeOption = None,
    bits: SparkBitsOption = None,
    output: DirectoryOption = None,
    output_form: DirectoryFormOption = None,
    as_json: JsonOption = False,
    no_csv_guard: NoCsvGuardOption = False,
    master: MasterOption = None,
    memory: HeapOption = None,
    conf: ConfOption = None,
    work: WorkOption = None,
) -> None:
    """Find all pairs of documents within k of each other, each pair once.

    The input has fingerprints, as `fpdb spark fingerprint` writes them, or texts, which are
    fingerprinted first. The rows hold two keys, their distance and similarity, and with
    --min-jaccard the Jaccard similarity by sketches. They come in no order.

    The plan comes first, on standard error: how many fingerprints, by which tables they meet, and
    what that takes by estimate.

    \b
    Example:
      fpdb spark pairs prints.parquet -o pairs.parquet
      fpdb spark pairs prints.parquet --min-jaccard 0.8
      fpdb spark pairs pages.jsonl -k 5 --master 'local[8]' --memory 8G
    """
    target = Target(output, output_form, as_json, not no_csv_guard)
    source = Source(tuple(inputs), form, key, text)
    making = _making(recipe, bits, min_jaccard)
    engine = _engine(master, conf, memory, work)
    _jobs().pairs(engine, source, making, target, k, min_jaccard, spanning=spanning)


@app.command()
def clusters(
    inputs: DocumentsArgument,
    k: KOption = None,
    min_jaccard: MinJaccardOption = None,
    form: FormOption = None,
    key: KeyOption = None,
    text: TextOption = None,
    recipe: AnyRecipeOption = None,
    bits: SparkBitsOption = None,
    output: DirectoryOption = None,
    output_form: DirectoryFormOption = None,
    as_json: JsonOption = False,
    no_csv_guard: NoCsvGuardOption = False,
    master: MasterOption = None,
    memory: HeapOption = None,
    conf: ConfOption = None,
    work: WorkOption = None,
) -> None:
    """Find the clusters of documents that pairs within k connect.

    The input has fingerprints, texts, or the pairs that `fpdb spark pairs` wrote. The rows hold the
    smallest key of a cluster, and the key of one of its documents; the smallest has a row as well.

    \b
    Example:
      fpdb spark clusters prints.parquet -o clusters.parquet
      fpdb spark clusters pairs.parquet -o clusters.parquet
    """
    target = Target(output, output_form, as_json, not no_csv_guard)
    source = Source(tuple(inputs), form, key, text)
    making = _making(recipe, bits, min_jaccard)
    _jobs().clusters(_engine(master, conf, memory, work), source, making, target, k, min_jaccard)


@app.command()
def query(
    questions: Annotated[
        str, typer.Argument(metavar="QUESTIONS", help="The documents to ask for.")
    ],
    inputs: Annotated[
        list[str], typer.Argument(metavar="CORPUS...", help="The documents to look among.")
    ],
    k: KOption = None,
    min_jaccard: MinJaccardOption = None,
    form: FormOption = None,
    key: KeyOption = None,
    text: TextOption = None,
    recipe: AnyRecipeOption = None,
    bits: SparkBitsOption = None,
    output: DirectoryOption = None,
    output_form: DirectoryFormOption = None,
    as_json: JsonOption = False,
    no_csv_guard: NoCsvGuardOption = False,
    master: MasterOption = None,
    memory: HeapOption = None,
    conf: ConfOption = None,
    work: WorkOption = None,
) -> None:
    """Find the documents of a corpus within k of each question.

    Both have fingerprints, or texts, which are fingerprinted first; the options about fields hold
    for both. The rows hold the key of a question, the key of a match, the distance, the similarity,
    and with --min-jaccard the Jaccard similarity by sketches. They come in no order. A text with
    too few features finds equal texts only.

    \b
    Example:
      fpdb spark query new.parquet prints.parquet -o matches.parquet
    """
    target = Target(output, output_form, as_json, not no_csv_guard)
    sources = (Source((questions,), form, key, text), Source(tuple(inputs), form, key, text))
    making = _making(recipe, bits, min_jaccard)
    _jobs().query(_engine(master, conf, memory, work), *sources, making, target, k, min_jaccard)


@app.command("sorted")
def sorted_columns(
    inputs: DocumentsArgument,
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="A new directory.")],
    k: KOption = None,
    capacity: CapacityOption = None,
    form: FormOption = None,
    key: KeyOption = None,
    text: TextOption = None,
    recipe: RecipeOption = DEFAULT_RECIPE,
    bits: BitsOption = None,
    sketch: SketchOption = None,
    master: MasterOption = None,
    memory: HeapOption = None,
    conf: ConfOption = None,
    work: WorkOption = None,
) -> None:
    """Write documents as sorted columns, which `fpdb ingest --sorted` makes a database of.

    The input has fingerprints, and --recipe is the one that made them; or texts. Columns with the
    names added and meta are taken as well.

    \b
    Example:
      fpdb spark sorted prints.parquet -o columns --recipe web
      fpdb ingest crawl.fpdb columns --sorted
    """
    source = Source(tuple(inputs), form, key, text)
    making = Making(recipe, bits, sketch)
    engine = _engine(master, conf, memory, work)
    _jobs().sorted_columns(engine, source, making, output, k, capacity)


def _engine(
    master: str | None, conf: list[str] | None, memory: int | None, work: str | None = None
) -> Engine:
    return Engine(master, tuple(conf or ()), memory, work)


def _making(recipe: str | None, bits: int | None, min_jaccard: float | None) -> Making:
    return Making(recipe, bits, None if min_jaccard is None else "minhash")


def _jobs() -> "ModuleType":
    """Load Spark."""
    from fpdb.cli.spark import jobs

    return jobs
