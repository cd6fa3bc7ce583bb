"""The source keeps to its own rules: layers, sizes, names, imports, and no data run as code."""

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import layers
import pytest

import fpdb

ROOT = Path(__file__).resolve().parents[1]
MODULES = {
    path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "fpdb").rglob("*.py"))
}
# Lines of code: without blanks, comments and docstrings.
LONGEST_MODULE = 450
LONGEST_FUNCTION, LONGEST_IN_COMMANDS = 60, 80
# What `import fpdb` must not load: libraries, dictionaries, the test tools.
HEAVY = {"hypothesis", "jieba", "lmdb", "numpy", "opencc", "pytest", "rich", "typer"}
# Modules and functions that read data as code.
UNSAFE_IMPORTS = {"dill", "marshal", "shelve", "yaml"}
UNSAFE_CALLS = {"__import__", "compile", "eval", "exec"}
# A process and the workers that it started exchange pickles over a pair of sockets without a name.
# They are functions, readers and errors of any class, so no plainer form would do; whoever could
# write to the socket could also trace the processes.
PICKLING = {"multiprocessing", "pickle"}
MAY_PICKLE = {"fpdb/processes.py"}
# Modules that make files otherwise than through fpdb/scratch.py, and how.
MAY_MAKE_FILES = {
    # In a scratch folder.
    "fpdb/cli/report.py": {"write_text"},
    "fpdb/io/streams.py": {"open"},
    "fpdb/joins/columns.py": {"open", "touch"},
    # Documents that are deleted, beside their database.
    "fpdb/look/explorer.py": {"open", "touch"},
    # The folder that is to get an output for each input; and in a scratch folder.
    "fpdb/dedupe/files.py": {"mkdir", "open"},
    # The files of a database. No name has the process.
    "fpdb/storage/drafts.py": {"mkdir", "touch"},
    "fpdb/storage/lock.py": {"O_CREAT"},
    "fpdb/storage/open_checks.py": {"O_CREAT"},
    "fpdb/storage/seal.py": {"O_CREAT"},
    "fpdb/storage/transactions.py": {"open", "touch"},
}


@cache
def text(name):
    return MODULES[name].read_text(encoding="utf-8")


@cache
def tree(name):
    return ast.parse(text(name), filename=name)


@pytest.mark.process
def test_imports_point_down():
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint_imports, "--no-cache"],
        check=False,
        cwd=ROOT,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_shows_the_layers_that_are_checked():
    assert layers.picture() in layers.PAGE.read_text("utf-8"), "run `tools/docs --write`"


@pytest.mark.process
def test_import_is_light():
    program = f"import fpdb, sys; print(*sorted({HEAVY} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == []


def test_the_public_names_are_those_that_type_checkers_see():
    stub = ast.parse((ROOT / "fpdb" / "__init__.pyi").read_text(encoding="utf-8"))
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    modules = {alias.asname: line.module for line in lines for alias in line.names}
    assert modules == fpdb._MODULES
    assert sorted([*modules, "__version__"]) == fpdb.__all__
    for alias in (alias for line in lines for alias in line.names):
        assert alias.name == alias.asname  # a type checker exports what is imported so
        assert getattr(fpdb, alias.name) is fpdb.__dict__[alias.name]


def test_a_function_isn_t_replaced_by_the_module_of_its_name():
    for name in ("ingest", "load"):
        setattr(fpdb, name, importlib.import_module(f"fpdb.{name}"))  # as the import itself does
        assert callable(getattr(fpdb, name))


def test_a_name_that_doesn_t_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fpdb' has no attribute 'querry'"):
        fpdb.querry  # noqa: B018
    assert set(fpdb.__all__) <= set(dir(fpdb))


def code_lines(node):
    """Return the numbers of the lines with code of a module, a class or a function."""
    code, prose = set(), set()
    for each in ast.walk(node):
        if hasattr(each, "lineno"):
            code.update((each.lineno, each.end_lineno))
        if isinstance(each, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = each.body[0] if each.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                prose.update(range(first.lineno, first.end_lineno + 1))
    return code - prose


def test_no_module_or_function_is_too_long():
    long = {}
    for name in MODULES:
        if (lines := len(code_lines(tree(name)))) > LONGEST_MODULE:
            long[name] = lines
        most = LONGEST_IN_COMMANDS if name.startswith("fpdb/cli/") else LONGEST_FUNCTION
        for node in ast.walk(tree(name)):
            if not isinstance(node, ast.FunctionDef) or node.end_lineno - node.lineno < most:
                continue
            if (lines := len(code_lines(node))) > most:
                long[f"{name}: {node.name}"] = lines
    assert long == {}


def test_the_package_has_its_data():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    kinds = {".py", ".pyx", ".pxd", ".c", ".so", ".pyc"}  # built, or what is built of
    data = [
        path
        for path in (ROOT / "fpdb").rglob("*")
        if path.is_file()
        and path.suffix not in kinds
        and path.name != "built.txt"  # says of which source kernels were built, where that is there
        and "__pycache__" not in path.parts
    ]
    assert {path.name for path in data} >= {"page.css", "page.js", "py.typed"}
    assert [path for path in data if not any(path.match(each) for each in patterns)] == []


def test_no_public_class_or_type_has_the_name_of_another():
    places = defaultdict(list)
    for name in MODULES:
        for found in types(tree(name)):
            places[found].append(name)
    assert {found: names for found, names in places.items() if len(names) > 1} == {}


def test_no_public_function_has_the_name_of_another():
    places = defaultdict(list)
    for name in MODULES:
        # A command may be called like the function that it calls, and so may a function for Spark.
        if not name.startswith(("fpdb/cli/", "fpdb/integrations/")):
            for node in tree(name).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                    places[node.name].append(name)
    # An overloaded function is defined several times in one module.
    assert {found: names for found, names in places.items() if len(set(names)) > 1} == {}


def test_modules_say_what_they_are_for():
    docstrings = {name: ast.get_docstring(tree(name)) or "" for name in MODULES}
    assert [
        name for name, found in docstrings.items() if not found.partition("\n")[0].endswith(".")
    ] == []


def test_no_module_runs_data():
    found = {
        name: sorted(unsafe(tree(name)) - (PICKLING if name in MAY_PICKLE else set()))
        for name in MODULES
    }
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pickle", {"pickle"}),
        ("from yaml.loader import Loader", {"yaml"}),
        ("import builtins\nbuiltins.exec('1')", {"exec"}),
        ("from multiprocessing.connection import Client", {"multiprocessing"}),
        ("import numpy as np\nnp.load('x')", {"load"}),
        ("import numpy as np\nnp.load('x', None, allow_pickle=False)", set()),
        ("import subprocess\nsubprocess.run('x', shell=True)", {"shell"}),
        ("import re\nre.compile('x')\nfrom fpdb import pickle_free", set()),
    ],
)
def test_unsafe_code_is_found(source, found):
    assert unsafe(ast.parse(source)) == found


def unsafe(module):
    """Return the names of the unsafe modules and functions that a module uses."""
    found = set()
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                roots = {alias.name.partition(".")[0] for alias in names}
                found |= roots & (UNSAFE_IMPORTS | PICKLING)
            case ast.ImportFrom(
                module="multiprocessing.connection", names=[ast.alias(name="wait")]
            ):
                continue  # it waits for files and sends nothing
            case ast.ImportFrom(module=str(origin), level=0):
                found |= {origin.partition(".")[0]} & (UNSAFE_IMPORTS | PICKLING)
            case ast.Call(func=ast.Name(id=name)):
                found |= {name} & UNSAFE_CALLS
            case ast.Call(func=ast.Attribute(value=ast.Name(id="builtins"), attr=name)):
                found |= {name} & UNSAFE_CALLS
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=name), keywords=words):
                given = {word.arg: ast.unparse(word.value) for word in words}
                if name == "load" and owner in {"np", "numpy"}:
                    found |= {"load"} if given.get("allow_pickle") != "False" else set()
                found |= {"shell"} & {word for word in given if given[word] != "False"}
                found |= {"system"} & {name if owner == "os" else ""}
    return found


def test_what_is_temporary_is_made_by_one_module():
    found = {name: making(tree(name)) for name in MODULES if name != "fpdb/scratch.py"}
    assert {name: ways for name, ways in found.items() if ways} == MAY_MAKE_FILES


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import tempfile", {"tempfile"}),
        ("os.open(path, os.O_WRONLY | os.O_CREAT)", {"O_CREAT"}),
        ("open(path, 'xb')", {"open"}),
        ("path.open('a+b')", {"open"}),
        ("open(path)\nopen(path, 'rb')\npath.open()\nfpdb.open(path)", set()),
        ("path.write_text('x')\npath.touch()", {"touch", "write_text"}),
        ("draft = f'{path}.part'", {".part"}),
        ("draft = f'{path}.{os.getpid()}'", {"getpid"}),
        ("os.kill(os.getpid(), 9)\nparts = 'many parts'", set()),
    ],
)
def test_other_ways_of_making_files_are_found(source, found):
    assert making(ast.parse(source)) == found


def making(module):
    """Return how a module makes files."""
    found = set()
    calls = {"copy2", "copyfile", "copytree", "makedirs", "mkdir", "mkfifo"}
    calls |= {"touch", "write_bytes", "write_text"}
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                found |= {"tempfile"} & {alias.name for alias in names}
            case ast.ImportFrom(module="tempfile"):
                found.add("tempfile")
            case ast.Attribute(value=ast.Name(id="os"), attr="O_CREAT" | "O_TMPFILE" as flag):
                found.add(flag)
            case ast.Call(func=ast.Name(id="open"), args=[_, *more], keywords=words):
                found |= {"open"} if writes(more, words) else set()
            case ast.Call(func=ast.Attribute(attr="open"), args=more, keywords=words):
                found |= {"open"} if writes(more, words) else set()
            case ast.Call(func=ast.Attribute(attr=name)):
                found |= {name} & calls
            case ast.JoinedStr(values=values):
                found |= (
                    {"getpid"} if any("getpid(" in ast.unparse(each) for each in values) else set()
                )
            case ast.Constant(value=str(value)):
                found |= {each for each in (".part", ".tmp", ".temp") if value.endswith(each)}
    return found


def writes(arguments, words):
    """Return whether the mode among the arguments of an open() is one that may make a file."""
    given = [*arguments, *(word.value for word in words if word.arg == "mode")]
    modes = {str(each.value) for each in given if isinstance(each, ast.Constant)}
    return any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes)


def types(module):
    """Yield the names of the public classes and type aliases at the top level of a module."""
    for node in module.body:
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (
                not isinstance(value, ast.Call | ast.Constant)
                and name[:1].isupper()
                and not name.isupper()
            ):
                yield name
