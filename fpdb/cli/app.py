"""The program of all commands, and the errors and interrupts that end one."""

import difflib
import errno
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Annotated, Any, cast

import typer

import fpdb
from fpdb import progress
from fpdb.cli import render, values
from fpdb.errors import FpdbError, IncompleteWarning, LossError

if not hasattr(fpdb, "kernels_available"):
    sys.exit(
        f"error: another package has replaced the module fpdb of fpdb-store in {fpdb.__path__[0]}\n"
        "hint: pip uninstall fpdb && pip install --force-reinstall fpdb-store"
    )

# Commands that go on until they are ended.
_WITHOUT_JSON = {"serve", "explore", "follow", "mcp"}
# The panels of the help, with their commands, and the module of one that hasn't its name.
_PANELS = {
    "Find": "ingest query dedupe pairs pairs.clusters pairs.copies",
    "Look": "report report.explore compare evaluate.eval",
    "Connect": "serve ingest.follow mcp ingest.load documents.export",
    "Maintain": "maintain.create documents.get documents.delete maintain.stats maintain.check "
    "maintain.backup maintain.compact maintain.repair",
    "Recipes": "recipes.fingerprint maintain.plan recipes",
}
# Commands that speak the language of the environment, as their pages speak that of the browser.
_TRANSLATED = {"report", "explore", "copies"}
_SLIP = 0.8  # the least likeness of a name and a slip of it
# Only named at the end of the help; --help-all shows them.
_RARE = {"mcp", "load", "compact", "repair", "fingerprint", "plan", "recipes"}
_COMMANDS = {
    place.rpartition(".")[2]: (panel, place.partition(".")[0])
    for panel, places in _PANELS.items()
    for place in places.split()
}


def _print_version(wanted: bool) -> None:
    if wanted:
        kernels = "with" if fpdb.kernels_available else "without"
        render.row(f"fpdb {fpdb.__version__}, {kernels} kernels")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    _all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            help="Show all commands and options.",
            hidden=True,
            callback=render.show_all_help,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Take the options before the command."""


def _close_names(name: str, names: Iterable[str]) -> list[str]:
    """Return names that one may be a slip of; less similar ones mean another thing."""
    return difflib.get_close_matches(name, list(names), cutoff=_SLIP)


def _for_this_shell(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callback of typer's that doesn't take the shell that runs it for a named one."""

    def call(context: typer.Context, parameter: Any, value: Any) -> Any:
        if value and sys.argv[2:]:
            said = f"found {sys.argv[2]!r}, expected nothing: it is for the shell that runs it"
            raise typer.BadParameter(said)
        return callback(context, parameter, value)

    return call


def _import_numpy() -> None:
    """Import numpy without the threads that it starts for products of matrices; none is needed."""
    name = "OPENBLAS_NUM_THREADS"
    if name not in os.environ:
        os.environ[name] = "1"
        importlib.import_module("numpy")
        # Programs that a command starts don't inherit it.
        del os.environ[name]


@functools.cache
def program(only: str | None = None) -> Any:
    """Return the command line, with all commands unless `only` names one, or needs none.

    What a command doesn't need isn't imported then.
    """
    app = typer.Typer(
        name="fpdb",
        help="Find near-duplicate documents.\n\n"
        "Example:\n  fpdb dedupe pages.jsonl -o clean.jsonl\n"
        "  fpdb ingest crawl.fpdb pages.jsonl --skip-duplicates\n"
        "  fpdb query crawl.fpdb page.txt",
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        suggest_commands=bool(_close_names(only or "", _COMMANDS)),
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    names = [only] if only in _COMMANDS else [] if only in ("--version", "-V") else list(_COMMANDS)
    functions: dict[str, Callable[..., None]] = {}
    if names:
        _import_numpy()
    for name in names:
        from fpdb.cli.options import with_common  # not for --version

        panel, place = _COMMANDS[name]
        module = importlib.import_module(f"fpdb.cli.{place}")
        function = getattr(module, "evaluate" if name == "eval" else name)
        functions[name] = with_common(function, json=name not in _WITHOUT_JSON)
        app.command(name, rich_help_panel=panel, hidden=name in _RARE)(functions[name])
    command_line: Any = typer.main.get_command(app)
    for parameter in command_line.params:
        if parameter.name in ("install_completion", "show_completion"):
            parameter.hidden, parameter.callback = True, _for_this_shell(parameter.callback)
    for command in (command_line, *command_line.commands.values()):
        context = typer.Context(command, **command_line.context_settings)
        values.convert(command, context, functions.get(command.name, _options))
        render.hide_types(command, context)
        command.epilog = render.rare_ones(command)
        if "_FPDB_COMPLETE" in os.environ:  # a shell asks what may follow
            render.unfold(command)
    return command_line


def run(begin: Callable[[], None] | None = None) -> int:
    """Run a command as `sys.argv` says, and return one of `render.ExitCode`.

    Args:
        begin: Called before the command, where an interrupt is reported already.
    """
    try:
        if begin:
            begin()
        code = _run()
    except KeyboardInterrupt:
        code = render.ExitCode.INTERRUPTED  # as typer makes of an interrupt of a command
    except RuntimeError as error:  # which Python 3.11 makes of one while it creates a class
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        code = render.ExitCode.INTERRUPTED
    if code == render.ExitCode.INTERRUPTED:
        render.note(f"interrupted: {render.now.left}" if render.now.left else "interrupted")
    return code


def _run() -> int:
    render.prepare_streams()
    if {*sys.argv[1:2]} & _TRANSLATED:
        render.choose_language()
    # What is announced of files that are read twice is printed once.
    announced = functools.cache(lambda line: render.note(render.with_options(line)))
    progress.listen(render.StepLine().show, announced)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = render.warn
            warnings.simplefilter("default", IncompleteWarning)
            if sys.argv[1:2] == ["help"]:
                sys.argv[1:] = [*sys.argv[2:3], "--help"]
            # Only help is drawn in panels; a usage error is a line that no panel wraps.
            command = program(*sys.argv[1:2])
            code: int = command(standalone_mode=False) or render.ExitCode.FINE
        render.flush()
    except typer.TyperException as error:  # all of them are usage errors, which can show themselves
        usage = cast("Any", error)
        if name := getattr(error, "option_name", ""):
            usage.possibilities = _close_names(name, usage.possibilities or ())
        usage.message = render.now.said(usage.message)
        usage.show()
        code = render.ExitCode.USAGE
    except Exception as error:
        said = _said(error)
        if said is None:
            raise
        render.fail(said)
        refused = isinstance(error, LossError)
        code = render.ExitCode.NOT_FINE if refused else render.ExitCode.ERROR
    return code


def _said(error: Exception) -> FpdbError | None:
    """Return an error as it is printed, or None if it is a defect."""
    if isinstance(error, FpdbError):
        return error
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
    ):
        return FpdbError(
            "there isn't enough memory for this",
            hint="raise the limit (ulimit -v, or that of the container), or use fewer jobs; what "
            "was acknowledged is stored",
        )
    if not isinstance(error, OSError):
        return None
    try:
        render.flush()
    except FpdbError as unwritten:
        return unwritten
    act = " ".join(["fpdb", *(_COMMANDS.keys() & sys.argv[1:2])])
    files = [str(file) for file in (error.filename, error.filename2) if file is not None]
    said = ": ".join([f"{act} can't go on", *files, error.strerror or str(error)])
    return FpdbError(said, hint="look at the rights of these files, and at the room on their disks")
