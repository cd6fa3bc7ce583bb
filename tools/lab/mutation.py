"""Change the code in one place at a time, and list the changes that no test notices.

    tools/lab/mutants                            all modules of TARGETS
    tools/lab/mutants fpdb/tables/plan.py        one of them
    tools/lab/mutants --sample 40 --seed 7       forty changes of each, the same ones for a seed

A mutant has one other comparison, operator, number, truth value or result. It is killed if a test
of the module's folders fails that `tools/test quick` runs. Tests are imported and collected once:
each mutant is a fork of that process in which the code of one function is replaced, and runs the
tests that call it. A module whose constants change is imported anew. `equal_mutants.tsv` lists the
mutants that no test can kill, and why.
"""

import argparse
import ast
import builtins
import functools
import gc
import importlib.abc
import importlib.util
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EQUAL = Path(__file__).with_name("equal_mutants.tsv")
# Of each folder of the package: its modules whose values users see, and the folders of their tests.
FOLDERS = {
    "fingerprint": ("recipe sketches features passages", "fingerprint kernels"),
    "tables": ("probes bands plan", "tables"),
    "documents": ("lookup writer", "documents database"),
    "joins": ("selection pairs clusters", "joins"),
    "dedupe": ("decide", "dedupe"),
    "storage": ("format", "storage format documents"),
}
TARGETS = [
    f"fpdb/{name}/{module}.py"
    for name, (modules, _) in FOLDERS.items()
    for module in modules.split()
]
MARKS = "not process and not slow and not gate and not full and not spark"
JOBS = 2
SECONDS = 300  # for a mutant that waits forever; one that runs forever exceeds its processor time
SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Mod: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.And: ast.Or,
    ast.Or: ast.And,
}  # fmt: skip


UNUSED = {"annotation", "returns", "decorator_list", "bases"}


class Mutant(NamedTuple):
    line: int
    function: str
    first: int  # the line of the outermost function around it, 0 if there is none
    change: str
    code: CodeType  # of the module


def mutants_of(path):
    """Return the mutants of a module, in the order of its text."""
    tree = ast.parse(path.read_text())
    mutants, often = [], Counter()

    def visit(node, owner, field, at, function, first):
        if is_form(node):
            return
        around = first
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            function = f"{function}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef):
            first = first or line_of(node)
        for changed, name, value, place in changes_of(node, owner, field, at):
            # Put another value into a field, compile the module, and put the old one back.
            old, before = getattr(changed, name), ast.unparse(node)
            setattr(changed, name, value if place is None else put(old, place, value))
            after = "return None" if name == "value" and changed is node else ast.unparse(node)
            change = f"{before} -> {after if changed is node else ast.unparse(value)}"
            often[function, change] += 1
            number = f" #{often[function, change]}" * (often[function, change] > 1)
            code = compile(ast.fix_missing_locations(tree), str(path), "exec")
            mutants.append(Mutant(node.lineno, function, first, change + number, code))
            setattr(changed, name, old)
        for name, value in ast.iter_fields(node):
            # Defaults are computed where the function is defined.
            inside = around if name == "args" and isinstance(node, ast.FunctionDef) else first
            for number, child in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(child, ast.AST) and name not in UNUSED:
                    place = number if isinstance(value, list) else None
                    visit(child, node, name, place, function, inside)

    visit(tree, None, None, None, "", 0)
    return mutants


def put(values, place, value):
    return [*values[:place], value, *values[place + 1 :]]


def is_form(node):
    """Return whether a node is a message or an assertion, or has nothing that runs."""
    match node:
        case ast.Raise() | ast.JoinedStr() | ast.Assert() | ast.keyword(arg="strict"):
            return True
        case ast.If():
            return "TYPE_CHECKING" in ast.unparse(node.test)
        case ast.FunctionDef():
            names = {ast.unparse(each) for each in node.decorator_list}
            return bool(names & {"overload", "abstractmethod"})
    return False


def changes_of(node, owner, field, at):
    """Yield each change: an object, its field, the value to put there, and its place in a list."""
    match node:
        case ast.Compare():
            for number, operator in enumerate(node.ops):
                yield node, "ops", SWAPS[type(operator)](), number
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)](), None
        case ast.Constant(value=bool()):
            yield owner, field, ast.Constant(not node.value), at
        case ast.Constant(value=int()):
            yield owner, field, ast.Constant(node.value + 1), at
        case ast.Constant(value=float()):
            yield owner, field, ast.Constant(node.value * 0.9 or 1.0), at
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            yield owner, field, operand, at
        case ast.Return(value=ast.AST()) if not isinstance(node.value, ast.Constant):
            yield node, "value", ast.Constant(None), None


def line_of(function):
    """Return the first line of the code of a function."""
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def counting(path):
    """Return a module's code in which each function reports that it is called."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body.insert(0, ast.parse(f"__called__({line_of(node)})").body[0])
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


def functions_in(code):
    """Yield the code of each function in a code, but not of those in functions."""
    for inner in filter(lambda each: isinstance(each, CodeType), code.co_consts):
        if inner.co_flags & 2:  # that of a class has no such flag
            yield inner
        else:
            yield from functions_in(inner)


def replace(path, code, first=None):
    """Replace the code of a module's functions, or of the one at a line."""
    new = {(each.co_firstlineno, each.co_name): each for each in functions_in(code)}
    for thing in gc.get_objects():
        if isinstance(thing, functools._lru_cache_wrapper):
            if str(thing.__module__).startswith("fpdb"):
                thing.cache_clear()
        elif isinstance(thing, FunctionType) and thing.__code__.co_filename == str(path):
            name = thing.__code__.co_firstlineno, thing.__code__.co_name
            if name in new and first in (None, name[0]):
                thing.__code__ = new[name]


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports a mutant in place of its module."""

    def __init__(self, path, code):
        self.path, self.code = path, code

    def find_spec(self, name, *_):
        if name == ".".join(self.path.relative_to(ROOT).with_suffix("").parts):
            return importlib.util.spec_from_file_location(name, self.path, loader=self)
        return None

    def exec_module(self, module):
        exec(self.code, module.__dict__)


class Plugin:
    """Runs mutants in place of the tests that pytest has collected."""

    def __init__(self, path, mutants, folder, whole):
        self.path, self.mutants, self.folder, self.whole = path, mutants, folder, whole
        self.killers, self.failed = [], None

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session):
        self.session = session
        if self.whole:  # this process has imported the mutant
            self.run_tests(session.items)
        if not (pid := os.fork()):
            builtins.__called__ = set().add
            replace(self.path, counting(self.path))
            self.run_tests(session.items, counted=True)
        if os.waitpid(pid, 0)[1]:
            os._exit(2)
        seconds, calls = json.loads((self.folder / "tests").read_text())
        by_file = Counter()
        for name, spent in seconds.items():
            by_file[name.partition("::")[0]] += spent
        items = sorted(session.items, key=lambda item: by_file[item.nodeid.partition("::")[0]])
        running, waiting, alive = {}, list(enumerate(self.mutants)), []
        while running or waiting:
            if waiting and len(running) < JOBS:
                place, mutant = waiting.pop()
                chosen = [item for item in items if mutant.first in calls[item.nodeid]]
                chosen.sort(key=lambda item: item.nodeid not in self.killers[-20:])
                if not (pid := os.fork()):
                    os.setsid()
                    replace(self.path, mutant.code, mutant.first)
                    limit = 4 + 2 * int(sum(seconds[item.nodeid] for item in chosen))
                    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                    self.run_tests(chosen)
                running[pid] = place, time.monotonic()
            self.wait(running, alive)
        (self.folder / "alive").write_text(json.dumps(alive))
        return True

    def wait(self, running, alive):
        """Note what became of a mutant that has ended, and end those that wait too long."""
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            for other, (_, start) in running.items():
                if time.monotonic() - start > SECONDS:
                    os.killpg(other, signal.SIGKILL)
            time.sleep(0.01)
            return
        place, _ = running.pop(pid)
        if not status:
            alive.append(place)
        shutil.rmtree(self.folder / str(pid), ignore_errors=True)
        if (killer := self.folder / f"{pid}.killer").exists():
            self.killers.append(killer.read_text())

    def run_tests(self, items, *, counted=False):
        """Run tests up to the first that fails, and end the process: with 0 if none does."""
        paths = self.session.config._tmp_path_factory
        paths._given_basetemp, paths._basetemp = self.folder / str(os.getpid()), None
        self.session.items = items
        seconds, calls = {}, {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            called = set()
            builtins.__called__ = called.add
            start = time.process_time()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid], calls[item.nodeid] = time.process_time() - start, sorted(called)
            if self.failed:
                if counted:
                    print(f"{self.failed} fails without a mutant", file=sys.stderr)
                (self.folder / f"{os.getpid()}.killer").write_text(self.failed)
                os._exit(1)
        if counted:
            (self.folder / "tests").write_text(json.dumps([seconds, calls]))
        os._exit(0)


def run(path, mutants):
    """Return those mutants of a module that survive."""
    inside = [mutant for mutant in mutants if mutant.first]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        if code := in_child(path, inside, Path(folder), None):
            sys.exit(f"the tests of {path} ended with {code} without a mutant")
        alive = [inside[place] for place in json.loads(Path(folder, "alive").read_text())]
        outside = [mutant for mutant in mutants if not mutant.first]
        alive += [each for each in outside if not in_child(path, [], Path(folder), each)]
    return sorted(alive, key=lambda mutant: mutant.line)


def in_child(path, mutants, folder, whole):
    """Collect tests in another process, and run them on mutants, or on one of the constants."""
    if pid := os.fork():
        return os.waitpid(pid, 0)[1]
    os.setsid()
    os.environ["FPDB_TIER"] = "quick"
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2) if whole else (0, 1):
        os.dup2(null, number)
    if whole:
        sys.meta_path.insert(0, Importer(path, whole.code))
        resource.setrlimit(resource.RLIMIT_CPU, (90, 90))
    tests = [str(ROOT / "tests" / each) for each in FOLDERS[path.parent.name][1].split()]
    options = ["-q", "-m", MARKS, "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    code = pytest.main([*options, *tests], plugins=[Plugin(path, mutants, folder, whole)])
    os._exit(1 if whole else code)  # a whole one gets here only if it can't be imported


def main():
    parser = argparse.ArgumentParser(
        prog="tools/lab/mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("modules", nargs="*", default=TARGETS)
    parser.add_argument("--sample", type=int, help="the number of mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="another one chooses others")
    parser.add_argument("--least", type=float, default=0, help="fail if a smaller share is killed")
    options = parser.parse_args()
    equal = {tuple(line.split("\t")[:3]) for line in EQUAL.read_text().splitlines()}
    tried = killed = 0
    for module in options.modules:
        path = ROOT / module
        every = mutants_of(path)
        mutants = [each for each in every if (module, each.function, each.change) not in equal]
        if options.sample and options.sample < len(mutants):
            mutants = random.Random(options.seed).sample(mutants, options.sample)
        alive = run(path, mutants)
        for mutant in alive:
            print(f"{module}:{mutant.line}: {mutant.function}: {mutant.change}")
        tried, killed = tried + len(mutants), killed + len(mutants) - len(alive)
        counts = f"{len(every):5} mutants, {len(mutants):4} tried, {len(mutants) - len(alive):4}"
        print(f"{module:32}{counts} killed", flush=True)
    print(f"{killed} of {tried} killed, {killed / max(tried, 1):.0%}")
    return killed < options.least * tried


if __name__ == "__main__":
    sys.exit(main())
