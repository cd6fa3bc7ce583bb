"""The commands that copy a database, and that let others copy it."""

from pathlib import Path
from typing import Annotated

import typer

from fpdb.cli import databases, render
from fpdb.cli.options import DatabaseArgument
from fpdb.errors import FpdbError


def backup(
    path: DatabaseArgument,
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="The directory to make.")],
) -> None:
    """Copy a database to a new directory, while others read and write it.

    The copy is what the database holds at the start, without free pages. It is private, verified
    and on the disk before it appears; then its path is printed. It is a database like any other.

    \b
    Example:
      fpdb backup crawl.fpdb /backup/crawl-monday.fpdb
    """
    with databases.open_readonly(path) as database:
        database.backup(copy)
    render.row(copy)


def hold(
    path: DatabaseArgument,
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="What copies the directory.")
    ],
) -> None:
    """Run a program that copies the directory of a database, while others write to it.

    While the program runs, nothing that it may be copying is overwritten: any copy that it makes of
    the whole directory is consistent. Without this, a copy of a database that is written to is
    broken. The exit code is that of the program.

    \b
    Example:
      fpdb hold crawl.fpdb -- rsync -a crawl.fpdb/ backup:crawl.fpdb/
      fpdb hold crawl.fpdb -- cp -r crawl.fpdb /backup/crawl.fpdb
    """
    import subprocess

    with databases.open_readonly(path) as database, database.hold():
        try:
            code = subprocess.call(command)  # noqa: S603 - the user's own command
        except OSError as error:
            raise FpdbError(
                f"{command[0]} can't be run: {error.strerror}",
                hint="write the command as in a shell, behind --",
            ) from None
        except KeyboardInterrupt:
            code = 130
    raise typer.Exit(code if code >= 0 else 128 - code)
