"""Serve a database to agents, by the Model Context Protocol."""

import sys
from pathlib import Path

import typer

import fpdb
from fpdb.cli import end_by_sigterm, render
from fpdb.cli.inputs import is_terminal
from fpdb.cli.maintain import open_or_create
from fpdb.cli.options import option, require, takes


@takes(readonly=option("--readonly", "Only answer queries."))
def mcp(path: Path, readonly: bool = False) -> None:
    """Answer an agent, by MCP.

    Example:
      claude mcp add pages -- fpdb mcp pages.fpdb

    The Model Context Protocol, at a pipe. Its tools are check, query, delete and
    stats. They find copies and edited versions, no paraphrases.
    """
    require(not is_terminal(), "standard input is a terminal, expected the pipe of an agent")
    from fpdb.integrations.mcp import answers

    end_by_sigterm(typer.Exit)  # with 0, as a service should end
    opened = fpdb.open(path, readonly=True) if readonly else open_or_create(path, None)
    with opened as database:
        for answer in answers(database, sys.stdin.buffer):
            render.record(answer)
            render.deliver()
