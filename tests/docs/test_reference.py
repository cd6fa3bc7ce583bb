"""The reference names every command, option, public name and error."""

import importlib
import inspect
import re
import shlex
import types
from functools import cached_property
from pathlib import Path
from types import FunctionType

import cli_reference

import fpdb
import fpdb.errors
from fpdb.cli.app import program

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
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
    assert read("cli.md") == cli_reference.page(program()), "run `tools/docs --write`"


def test_commands_are_in_the_reference():
    sections = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", read("cli.md"), re.MULTILINE))
    shared = sections.pop("Shared options")
    everywhere = "\n".join(line for line in shared.splitlines() if "In every command" in line)
    commands = {path: command for path, command, _ in cli_reference.commands(program())}
    assert sections.keys() == commands.keys()
    missing = {
        (path, name)
        for path, command in commands.items()
        for parameter in command.params
        if parameter.param_type_name == "option" and not parameter.hidden
        for names in [[*parameter.opts, *parameter.secondary_opts]]
        for name in names
        if not mentions(sections[path] + shared, name)
        or not any(mentions(sections[path] + everywhere, each) for each in names)
    }
    assert missing == set()


def test_the_examples_in_the_help_of_commands_are_valid():
    for path, command, text in cli_reference.commands(program()):
        if not hasattr(command, "list_commands"):
            require_valid_example(path, command, text)


def require_valid_example(path, command, text):
    found = re.search(r"^[ │]*Examples?:[ │]*\n((?:[ │]*\n)*(?: +.*(?:\n|$))+)", text, re.MULTILINE)
    assert found, f"{path} --help has no block `Example:`"
    calls = [
        words for words in calls_of_fpdb(found[1]) if words[: path.count(" ")] == path.split()[1:]
    ]
    assert calls, f"the example of {path} doesn't call it"
    for words in calls:
        assert command.make_context(path, words[path.count(" ") :])


def calls_of_fpdb(example):
    """Yield the arguments of each call of fpdb in the lines of an example."""
    for line in example.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        call = None
        for word in [*words, ";"]:
            if re.fullmatch(r"[|&;()<>]+", word):
                if call is not None:
                    yield call
                call = None
            elif call is not None:
                call.append(word)
            elif word == "fpdb":
                call = []


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


def test_public_methods_have_docstrings():
    on_page = re.findall(r"autoclass:: (\S+)\.(\w+)\n   :members:", read("python.md"))
    assert on_page
    public = [getattr(importlib.import_module(module), name) for module, name in on_page]
    public += [getattr(fpdb, name) for name in DESCRIBED] + list(vars(fpdb.models).values())
    kinds = FunctionType, classmethod, staticmethod, property, cached_property
    assert [
        f"{base.__qualname__}.{name}"
        for each in public
        if isinstance(each, type)
        for base in each.__mro__
        if base.__module__.startswith("fpdb.")
        for name, member in vars(base).items()
        if not name.startswith("_") and isinstance(member, kinds) and not inspect.getdoc(member)
    ] == []


def test_errors_are_public_and_in_the_reference():
    assert ERRORS
    assert set(ERRORS) <= set(fpdb.__all__)
    assert [name for name in ERRORS if not mentions(read("errors.md"), name)] == []


ROOT = REFERENCE.parents[1]
MESSAGES = ROOT / "fpdb" / "look" / "messages.json"
CHINESE = [ROOT / "README.zh-CN.md", *(ROOT / "docs").rglob("*.zh-CN.md")]


def test_chinese_pages_use_the_words_of_the_glossary():
    lines = re.findall(r"^- .*; not (.+)$", read("glossary.md"), re.MULTILINE)
    replaced = [word for line in lines for word in line.split(", ")]
    assert "概要" in replaced
    used = {
        (page.name, word)
        for page in [*CHINESE, MESSAGES]
        for word in replaced
        if word in page.read_text(encoding="utf-8")
    }
    assert used == set()


def test_chinese_pages_link_to_chinese_pages_where_there_are_some():
    links = {
        (page, (page.parent / target).resolve())
        for page in CHINESE
        for target in re.findall(r"\(([^)#:]+)\.md[#)]", page.read_text(encoding="utf-8"))
    }
    assert links
    assert [
        (page.name, english.name)
        for page, english in links
        for chinese in [english.with_name(f"{english.name}.zh-CN.md")]
        if chinese.exists() and chinese != page
    ] == []
