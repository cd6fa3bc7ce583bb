"""Write docs/reference/cli.md from the `--help` texts of the command line.

The page is checked in, so that it can be read without a build; a test says when it has gone stale.
"""

import contextlib
import io
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from typer import rich_utils

from fpdb.cli import program

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 100
INTRODUCTION = """\
<!-- Written by `tools/docs --write` from the help texts; change those. -->

# Command line

Every command and option of `fpdb`, as `fpdb COMMAND --help` prints them.
"""


def main() -> None:
    PAGE.write_text(page(program()), encoding="utf-8")


def page(program: typer.Typer) -> str:
    """Return the whole page as Markdown."""
    sections = [f"## {path}\n\n```text\n{text}\n```\n" for path, _, text in commands(program)]
    return "\n".join([INTRODUCTION, *sections])


@cache  # laying out all help texts takes a second
def commands(program: typer.Typer) -> list[tuple[str, Any, str]]:
    """Return each command that is not hidden: its path (`fpdb create`), itself, its help text."""
    return list(walk(typer.main.get_command(program), "fpdb", None))


# typer carries its own copy of click, so the commands are known here by what they can do.
def walk(command: Any, name: str, parent: Any) -> Iterator[tuple[str, Any, str]]:
    context = command.context_class(
        command, info_name=name, parent=parent, **command.context_settings
    )
    yield context.command_path, command, help_text(command, context)
    if hasattr(command, "list_commands"):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if not child.hidden:
                yield from walk(child, child_name, context)


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
