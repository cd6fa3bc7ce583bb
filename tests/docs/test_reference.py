"""The reference names every command, option, public name and error."""

import inspect
import re
import types
from pathlib import Path

import cli_reference
import pytest

import fpdb
import fpdb.errors
from fpdb.cli import app

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
COMMANDS = {path: (command, text) for path, command, text in cli_reference.commands(app)}
LEAVES = [path for path, (command, _) in COMMANDS.items() if not hasattr(command, "list_commands")]
DESCRIBED = [
    name
    for name in fpdb.__all__
    if isinstance(value := getattr(fpdb, name, None), type) or inspect.isroutine(value)
]
ERRORS = [
    name
    for name, value in vars(fpdb.errors).items()
    if isinstance(value, type)
    and issubclass(value, fpdb.errors.FpdbError)
    and not name.startswith("_")
]


def read(name):
    return (REFERENCE / name).read_text(encoding="utf-8")


def mentions(page, word):
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", page) is not None


def test_cli_page_is_fresh():
    assert read("cli.md") == cli_reference.page(app), "run `tools/docs --write`"


@pytest.mark.parametrize("path", COMMANDS)
def test_command_is_in_the_reference(path):
    command, _ = COMMANDS[path]
    page = read("cli.md")
    assert f"\n## {path}\n" in page
    section = page.split(f"\n## {path}\n")[1].split("\n## ")[0]
    for parameter in command.params:
        if parameter.param_type_name == "option" and not parameter.hidden:
            for name in [*parameter.opts, *parameter.secondary_opts]:
                assert mentions(section, name), f"{path} doesn't show {name}"


@pytest.mark.parametrize("path", COMMANDS)
def test_command_and_its_options_have_help(path):
    command, _ = COMMANDS[path]
    assert command.help, f"{path} has no help"
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{path}: {parameter.name} has no help"


@pytest.mark.parametrize("path", LEAVES)
def test_help_of_a_command_has_an_example(path):
    _, text = COMMANDS[path]
    example = re.search(r"^ *Examples?:\n((?: *\n)* +.*(?:\n|$))+", text, re.MULTILINE)
    assert example, f"{path} --help has no block `Example:`"
    assert path in example[0], f"the example of {path} doesn't call it"


def test_all_is_what_the_package_exposes():
    # ruff (RUF022) keeps __all__ sorted.
    exposed = {
        name
        for name, value in vars(fpdb).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert len(fpdb.__all__) == len(set(fpdb.__all__))
    assert exposed <= set(fpdb.__all__)
    for name in fpdb.__all__:
        assert hasattr(fpdb, name)


def test_python_page_takes_every_name_from_all():
    directive = re.search(r"\.\. automodule:: fpdb\n((?:   .*\n)+)", read("python.md"))
    assert directive
    first, *further = directive[1].splitlines()
    assert first == "   :members:", "an option here could leave names out"
    assert all(option.startswith("   :inherited-members: object, ") for option in further)


@pytest.mark.parametrize("name", DESCRIBED)
def test_public_name_has_a_docstring(name):
    value = getattr(fpdb, name)
    # dataclass and NamedTuple fill in the signature, which describes nothing.
    assert value.__doc__
    assert not value.__doc__.startswith(f"{value.__name__}(")


@pytest.mark.parametrize("name", ERRORS)
def test_error_is_public_and_in_the_reference(name):
    assert name in fpdb.__all__
    assert mentions(read("errors.md"), name)
