"""Write docs/reference/cli.md from the help texts of the command line.

The page is checked in, so that it can be read without a build; a test says when it has gone stale.
"""

import contextlib
import inspect
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import typer
from typer import rich_utils

from fpdb.cli import program

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 100
# Options of more commands than this are described once for all.
FEW = 4
INTRODUCTION = """\
<!-- Written by `tools/docs --write` from the help texts; change those. -->

# Command line

`fpdb COMMAND --help`, or `-h`, prints what this page says of a command.

## Shared options

They mean the same in every command that has them.
"""


class Parameter(NamedTuple):
    """An option or argument: its names, how it is written, what it does, its default and limits."""

    names: str
    written: str
    help: str
    limits: str


class Command(NamedTuple):
    """A command: its path (`fpdb create`), its lines of usage, and what it takes."""

    path: str
    usage: str
    parameters: list[Parameter]
    command: Any
    help: str


def main() -> None:
    PAGE.write_text(page(program()), encoding="utf-8")


def page(program: typer.Typer) -> str:
    """Return the whole page as Markdown."""
    uses: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in _commands(program):
        for parameter in each.parameters:
            uses[parameter.written, parameter.help].append(parameter.limits)
    shared = {key: set(limits) for key, limits in uses.items() if len(limits) > FEW}
    rows = [
        (written, text, *(limits if len(limits) == 1 else ()))
        for (written, text), limits in shared.items()
    ]
    sections = [_section(each, shared) for each in _commands(program)]
    return "\n".join([INTRODUCTION, f"{_table(rows)}\n", *sections])


def _section(described: Command, shared: dict[tuple[str, str], set[str]]) -> str:
    """Return what the page says of a command."""
    path, usage, parameters, command, _ = described
    summary, *further = inspect.cleandoc(command.help).split("\n\n")
    examples = [part for part in further if part.startswith("Example:")]
    lines = [usage, *(line.strip() for part in examples for line in part.splitlines()[1:])]
    parts = [f"## {path}", summary, "\n".join(["```text", *lines, "```"])]
    parts += [" ".join(part.split()) for part in further if part not in examples]
    if hasattr(command, "commands"):
        start = path.replace(" ", "-")
        parts.append(" · ".join(f"[{name}](#{start}-{name})" for name in command.commands))
    own, names = [], []
    for each in parameters:
        limits = shared.get((each.written, each.help))
        if limits is None:
            own.append(each[1:])
        elif each.names:
            names.append(
                f"`{each.names}`" + (f" {each.limits}" if len(limits) > 1 else "").rstrip()
            )
    if own:
        parts.append(_table(own))
    if names:
        parts.append(f"Shared: {', '.join(names)}.")
    return "\n\n".join(parts) + "\n"


def _table(rows: Iterable[tuple[str, ...]]) -> str:
    cells = ((f"`{written}`", " ".join(filter(None, text))) for written, *text in rows)
    lines = (f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in cells)
    return "\n".join(["| option | meaning |", "|---|---|", *lines])


def _parameters(command: Any, context: Any) -> Iterator[Parameter]:
    for parameter in command.params:
        if not parameter.hidden:
            written, text = parameter.get_help_record(context)
            is_option = parameter.param_type_name == "option"
            yield Parameter(
                ", ".join(parameter.opts) if is_option else "",
                written if is_option else parameter.display_name_raw,
                parameter.help,
                text.removeprefix(parameter.help).strip(),
            )


def commands(program: typer.Typer) -> list[tuple[str, Any, str]]:
    """Return each command that is not hidden: its path (`fpdb create`), itself, its help text."""
    return [(each.path, each.command, each.help) for each in _commands(program)]


@cache  # laying out all help texts takes a second
def _commands(program: typer.Typer) -> list[Command]:
    return list(_walk(typer.main.get_command(program), "fpdb", None))


# typer carries its own copy of click, so the commands are known here by what they can do.
def _walk(command: Any, name: str, parent: Any) -> Iterator[Command]:
    context = command.context_class(
        command, info_name=name, parent=parent, **command.context_settings
    )
    path = context.command_path
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parameters = list(_parameters(command, context))
    yield Command(path, usage, parameters, command, help_text(command, context))
    if hasattr(command, "list_commands"):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if not child.hidden:
                yield from _walk(child, child_name, context)


def help_text(command: Any, context: Any) -> str:
    """Return what `--help` prints, in a fixed width and without colours."""
    printed = io.StringIO()
    with (
        mock.patch.multiple(rich_utils, MAX_WIDTH=WIDTH, COLOR_SYSTEM=None, FORCE_TERMINAL=False),
        contextlib.redirect_stdout(printed),
    ):
        command.get_help(context)
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines()).strip("\n")


if __name__ == "__main__":
    main()
