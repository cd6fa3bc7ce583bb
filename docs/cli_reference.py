"""Write docs/reference/cli.md from the help texts of the command line.

The page is checked in, so that it can be read without a build; a test says when it has gone stale.
"""

import contextlib
import inspect
import io
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from typer import rich_utils

from fpdb.cli.app import program

PAGE = Path(__file__).with_name("reference") / "cli.md"
WIDTH = 100
# Options of more commands than this are described once for all.
FEW = 1
# Of those that a larger share of the commands have, only the other commands are listed.
MOST = 0.8
INTRODUCTION = """\
<!-- Written by `tools/docs --write` from the help texts; change those. -->

# Command line

`fpdb COMMAND --help`, or `-h`, prints what this page says of a command, but for what few need,
which it only names: `--help-all` prints all. Options follow the command.

A file that a command writes appears whole, or not at all. One that is an input of the command, by
whatever name, or that would lie in a database, is an error before anything is replaced.

`fpdb --install-completion`, run once in bash, zsh, fish or PowerShell, lets this shell complete
commands and options from its next start on; `fpdb --show-completion` prints what it would install.

## Shared options

They mean the same in each command that names them, perhaps with its own default in parentheses.
"""


class Parameter(NamedTuple):
    """An option or argument: its name, how it is written, what it does, its default and limits."""

    name: str
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


def page(program: Any) -> str:
    commands = list(_commands(program))
    shared = _shared(commands)
    lines = [_line(written, text, *details) for (written, text), details in shared.items()]
    sections = [_section(each, shared) for each in commands]
    return "\n".join([INTRODUCTION, *lines, "", *sections])


def _shared(commands: list[Command]) -> dict[tuple[str, str], list[str]]:
    """Return the options of many commands: what all have in common, and which don't have them."""
    paths = [each.path for each in commands if not hasattr(each.command, "commands")]
    uses: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    names = {}
    for each in commands:
        for parameter in each.parameters:
            uses[parameter.written, parameter.help][each.path] = parameter.limits
            names[parameter.written, parameter.help] = parameter.name or parameter.written
    shared = {}
    # Of options that have the same name but another meaning, the one of most commands is shared.
    most = {names[key]: key for key in sorted(uses, key=lambda key: len(uses[key]))}
    for key, limits in uses.items():
        if len(limits) > FEW and most[names[key]] == key:
            shared[key] = [*limits.values()][:1] if len({*limits.values()}) == 1 else []
            if len(limits) >= MOST * len(paths):
                without = [f"`{path}`" for path in paths if path not in limits]
                but = f", but not {', '.join(without)}" if without else ""
                shared[key].append(f"In every command{but}.")
    return shared


def _section(described: Command, shared: dict[tuple[str, str], list[str]]) -> str:
    path, usage, parameters, command, _ = described
    summary, *further = inspect.cleandoc(command.help).split("\n\n")
    examples = [part for part in further if part.startswith("Example:")]
    examples_of = (line.strip() for part in examples for line in part.splitlines()[1:])
    lines = dict.fromkeys([usage, *examples_of])
    parts = [f"## {path}", summary, "\n".join(["```text", *lines, "```"])]
    parts += [" ".join(part.split()) for part in further if part not in examples]
    own, names = [], []
    for each in parameters:
        details = shared.get((each.written, each.help))
        if details is None:
            own.append(_line(*each[1:]))
        elif each.name and not any(text.startswith("In every") for text in details):
            default = re.search(r"default: ([^];]+)", each.limits)
            names.append(f"`{each.name}`{f' ({default[1]})' if default and not details else ''}")
    if own:
        parts.append("\n".join(own))
    if names:
        parts.append(f"Shared: {', '.join(names)}.")
    return "\n\n".join(parts) + "\n"


def _line(written: str, *texts: str) -> str:
    return f"- `{written}`: {' '.join(filter(None, texts))}"


def _parameters(command: Any, context: Any) -> Iterator[Parameter]:
    for parameter in command.params:
        hidden, parameter.hidden = parameter.hidden, False  # hidden ones have no record
        written, text = parameter.get_help_record(context)
        parameter.hidden = hidden
        if parameter.name not in ("install_completion", "show_completion"):
            is_option = parameter.param_type_name == "option"
            yield Parameter(
                max(parameter.opts, key=len) if is_option else "",
                written if is_option else parameter.display_name_raw,
                parameter.help,
                text.removeprefix(parameter.help).replace("[required]", "").strip(),
            )


def commands(program: Any) -> list[tuple[str, Any, str]]:
    """Return each command: its path (`fpdb create`), itself, its help text."""
    return [(each.path, each.command, each.help) for each in _commands(program)]


@cache  # laying out all help texts takes a second
def _commands(program: Any) -> list[Command]:
    return list(_walk(program, "fpdb", None))


# typer carries its own copy of click, so the commands are known here by what they can do.
def _walk(command: Any, name: str, parent: Any) -> Iterator[Command]:
    context = command.context_class(
        command, info_name=name, parent=parent, **command.context_settings
    )
    path = context.command_path
    pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
    usage = " ".join([path, *pieces])
    parameters = list(_parameters(command, context))
    yield Command(path, usage, parameters, command, help_text(command, context))
    if hasattr(command, "list_commands"):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
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
