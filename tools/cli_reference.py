"""Write docs/reference/cli.md from the `--help` texts of the command line.

The page is checked in, so that it can be read without a build; a test says when it has gone stale.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from fpdb.cli import app

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
WIDTH = 88
INTRODUCTION = """\
<!-- Written by `tools/docs --write` from the help texts; change those. -->

# Command line

Every command and option of `fpdb`, as `fpdb COMMAND --help` prints them.
"""


def main() -> None:
    PAGE.write_text(page(app), encoding="utf-8")


def page(program: typer.Typer) -> str:
    """Return the whole page as Markdown."""
    sections = [f"## {path}\n\n```text\n{text}\n```\n" for path, _, text in commands(program)]
    return "\n".join([INTRODUCTION, *sections])


def commands(program: typer.Typer) -> Iterator[tuple[str, Any, str]]:
    """Yield each command that is not hidden: its path (`fpdb create`), itself, its help text."""
    yield from walk(typer.main.get_command(program), "fpdb", None)


# typer carries its own copy of click, so the commands are known here by what they can do.
def walk(command: Any, name: str, parent: Any) -> Iterator[tuple[str, Any, str]]:
    # No colour and a fixed width: the page must not depend on the terminal of its writer.
    settings = {**command.context_settings, "terminal_width": WIDTH, "color": False}
    context = command.context_class(command, info_name=name, parent=parent, **settings)
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield context.command_path, command, text.strip("\n")
    if hasattr(command, "list_commands"):
        for child_name in command.list_commands(context):
            child = command.get_command(context, child_name)
            if not child.hidden:
                yield from walk(child, child_name, context)


if __name__ == "__main__":
    main()
