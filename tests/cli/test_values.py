"""Values of the command line become what typer makes of them, and errors are typer's."""

import pytest
import typer

from fpdb.cli.app import program

VALUES = ["", "3", "0", "-1", "300", "99999", "1e3", "0.5", "nan", "4.0", "x", "-", "a/b.txt"]
VALUES += ["hex", "decimal", "auto", "page", "text", "integer", "drop", "replace", "HEX"]
COMMANDS = program().commands


def outcome(process, context, value):
    try:
        return process(context, value)
    except typer.BadParameter as error:
        return type(error), error.format_message()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", COMMANDS)
def test_values_become_what_typer_makes_of_them(name, monkeypatch):
    command = COMMANDS[name]
    context = typer.Context(command)
    for parameter in command.params:
        monkeypatch.setattr(parameter, "callback", None)  # it would open files
        by_typer = type(parameter).process_value.__get__(parameter)
        assert parameter.process_value != by_typer
        is_many = parameter.multiple or parameter.nargs == -1
        for value in [None, (), ("a", "b")] if is_many else [None, *VALUES, parameter.default]:
            ours = outcome(parameter.process_value, context, value)
            theirs = outcome(by_typer, context, value)
            if is_many:  # typer makes None and () the same later
                ours, theirs = ours or (), theirs or ()
            assert (ours, type(ours)) == (theirs, type(theirs)), (parameter.name, value)
