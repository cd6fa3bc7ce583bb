"""The command line: a thin face of the library, one file for each group of commands."""

import sys
from typing import Annotated

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.backup import backup, hold
from fpdb.cli.check import check
from fpdb.cli.clusters import clusters
from fpdb.cli.compact import compact
from fpdb.cli.compare import compare
from fpdb.cli.create import create
from fpdb.cli.documents import delete, get
from fpdb.cli.evaluate import evaluate
from fpdb.cli.export import export
from fpdb.cli.fingerprint import fingerprint
from fpdb.cli.ingest import ingest
from fpdb.cli.merge import merge
from fpdb.cli.pairs import pairs
from fpdb.cli.plan import plan
from fpdb.cli.query import query
from fpdb.cli.recipes import app as recipes
from fpdb.cli.repair import repair
from fpdb.cli.spark import app as spark
from fpdb.cli.stats import stats
from fpdb.errors import FpdbError

app = typer.Typer(
    name="fpdb",
    help="Find near-duplicate documents by their fingerprints.\n\n"
    "\b\nExample:\n  fpdb ingest crawl.fpdb pages.jsonl --skip-duplicates\n"
    "  fpdb query crawl.fpdb --file page.txt",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        render.row(f"fpdb {fpdb.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Take the options that stand before the command."""


for command in (
    create,
    ingest,
    query,
    get,
    delete,
    export,
    pairs,
    clusters,
    stats,
    check,
    repair,
    compact,
    merge,
    backup,
    hold,
    plan,
    fingerprint,
    compare,
):
    app.command()(command)
app.command("eval")(evaluate)
app.add_typer(recipes, name="recipes")
app.add_typer(spark, name="spark")


def main() -> None:
    """Run the command line: exit 0 fine, 2 usage, 3 an error of fpdb, 130 interrupted."""
    render.prepare_streams()
    try:
        try:
            app()
        finally:
            render.flush()
    except FpdbError as error:
        render.fail(error)
        sys.exit(3)
