"""The command line: each command opens a database, calls the library, and prints."""

import errno
import sys
import warnings
from typing import Annotated, Any

import typer

import fpdb
from fpdb import interrupts
from fpdb.cli import recipes, render, spark
from fpdb.cli.compare import compare
from fpdb.cli.create import create
from fpdb.cli.evaluate import evaluate
from fpdb.cli.export import export
from fpdb.cli.fingerprint import distance, fingerprint
from fpdb.cli.follow import follow
from fpdb.cli.get import delete, get
from fpdb.cli.ingest import ingest
from fpdb.cli.load import load
from fpdb.cli.maintain import backup, check, compact, hold, merge, repair, stats, swap
from fpdb.cli.pairs import clusters, pairs
from fpdb.cli.plan import plan
from fpdb.cli.query import query
from fpdb.errors import FpdbError, IncompleteWarning
from fpdb.storage.lock import announce_waits

app = typer.Typer(
    name="fpdb",
    help="Find near-duplicate documents by their fingerprints.\n\n"
    "Example:\n  fpdb ingest crawl.fpdb pages.jsonl --skip-duplicates\n"
    "  fpdb query crawl.fpdb page.txt",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The base of all usage errors, which typer doesn't export.
_UsageError: type[Any] = typer.BadParameter.mro()[1]
_SHORT_MEMORY = "there isn't enough memory for this"
_MORE_MEMORY = (
    "raise the limit (ulimit -v, or that of the container), or use fewer jobs; what was "
    "acknowledged is stored"
)
_GROUPS = {
    "Find": (ingest, query, pairs, clusters),
    "Look": (compare, evaluate),
    "Connect": (follow, load, export),
    "Maintain": (create, get, delete, stats, check, backup, hold, compact, swap, merge, repair),
    "Recipes": (fingerprint, distance, plan),
}


def _print_version(wanted: bool) -> None:
    if wanted:
        kernels = "with" if fpdb.kernels_available else "without"
        render.row(f"fpdb {fpdb.__version__}, {kernels} kernels")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Take the options before the command."""


for _group, _commands in _GROUPS.items():
    for _command in _commands:
        _name = "eval" if _command is evaluate else None
        # A fingerprint may be a negative number, which is no option.
        _settings = {"ignore_unknown_options": _command is distance}
        app.command(_name, rich_help_panel=_group, context_settings=_settings)(_command)
app.add_typer(spark.app, name="spark", rich_help_panel="Connect")
app.add_typer(recipes.app, name="recipes", rich_help_panel="Recipes")


def main() -> None:
    """Run the command line: exit 0 fine, 2 usage, 3 an error of fpdb, 130 interrupted."""
    try:
        interrupts.begin()
        code = _run()
        interrupts.finish()
    except KeyboardInterrupt:
        code = interrupts.EXIT_CODE
    if code == interrupts.EXIT_CODE:
        render.note_interrupt()
        sys.stderr.flush()
        interrupts.exit_at_once()
    sys.exit(code)


def _run() -> int:
    """Run a command and return its exit code; print an error and its hint."""
    render.prepare_streams()
    announce_waits(render.note)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = render.warn
            warnings.simplefilter("always", IncompleteWarning)
            # Only help is drawn in panels; a usage error is a line that no panel wraps.
            code: int = app(standalone_mode=False)
        render.flush()
    except FpdbError as error:
        render.fail(error)
        code = 3
    except _UsageError as error:
        error.show()
        code = error.exit_code
    except Exception as error:
        if _lacks_memory(error):
            render.fail(FpdbError(_SHORT_MEMORY, hint=_MORE_MEMORY))
        elif isinstance(error, OSError):
            render.discard_output()
            what = f"standard output can't be written: {error.strerror}"
            render.fail(FpdbError(what, hint="is the disk full?"))
        else:
            raise
        code = 3
    return code


def _lacks_memory(error: Exception) -> bool:
    """Return whether an error is one of those by which Python reports a failed allocation."""
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
    )
