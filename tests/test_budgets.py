"""Budgets of commands, options and the functions of a call: who adds one names what it replaces."""

import asyncio
import runpy
from pathlib import Path

import cli_reference
import pytest
from asgi import call, close

import fpdb
from fpdb.cli.app import program

MOST_COMMANDS, MOST_OPTIONS = 26, 265
# Functions and modules of fpdb that a call crosses, and all of its calls, with kernels.
MOST_CROSSED = {"add": (132, 21, 280), "query": (42, 13, 50), "create": (195, 26, 855)}
MOST_OF_A_CHECK = 30, 9
TRACE = runpy.run_path(str(Path(__file__).resolve().parents[1] / "tools" / "trace"))


def options_of(command):
    """Return the names of a command's own options, without --help and --help-all."""
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    return [option.opts[0] for option in options if option.name != "_all"]


def test_commands_and_options_are_few():
    options = {
        path: options_of(command)
        for path, command, _ in cli_reference.commands(program())
        if path != "fpdb"
    }
    assert len(options) <= MOST_COMMANDS
    assert sum(map(len, options.values())) <= MOST_OPTIONS


@pytest.mark.skipif(not fpdb.kernels_available, reason="definitions cross more functions")
def test_a_call_crosses_few_functions(tmp_path):
    for name, operation in TRACE["operations"](tmp_path):
        if name in MOST_CROSSED:
            calls, _depth = TRACE["trace"](operation)
            crossed = len(calls), len({module for module, _ in calls}), sum(calls.values())
            assert all(map(int.__le__, crossed, MOST_CROSSED[name])), (name, crossed)


def test_a_check_crosses_few_functions_of_the_loop(tmp_path):
    from fpdb.integrations import server

    texts = [" ".join(f"{side}{number}" for number in range(60)) for side in "ab"]

    async def run(database):
        application = server.app(database)
        await call(application, "POST", "/v1/check", {"key": "a", "text": texts[0]})
        request = call(application, "POST", "/v1/check", {"key": "b", "text": texts[1]})
        calls = await TRACE["trace_async"](request)
        await close(application)
        return calls

    with fpdb.create(tmp_path / "db") as database:
        calls = asyncio.run(run(database))
    crossed = len(calls), len({module for module, _ in calls})
    assert all(map(int.__le__, crossed, MOST_OF_A_CHECK)), crossed
