"""Commands and workers in a directory full of hostile modules execute none of them."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

HOSTILE = {
    *sys.stdlib_module_names,
    *importlib.metadata.packages_distributions(),
    *("fpdb", "sitecustomize", "usercustomize", "rjieba", "brotli", "pandas"),
}
PACKAGES = ("collections", "encodings", "importlib", "json", "multiprocessing", "numpy", "fpdb")
SCRIPT = "import sys\nfrom fpdb.cli import main\nsys.exit(main())\n"


@pytest.fixture
def hostile(tmp_path):
    """A directory with a module of each name that may be imported, which leaves its name."""
    folder = tmp_path / "downloads"
    folder.mkdir()
    for name in HOSTILE:
        module = folder / f"{name}.py"
        if name in PACKAGES:
            module = folder / name / "__init__.py"
            module.parent.mkdir()
        text = f"open({str(tmp_path / 'executed')!r}, 'a').write({name + ' '!r})\n"
        module.write_text(text + "raise ImportError('this is hostile')\n")
    return folder


def executed(folder):
    found = folder.parent / "executed"
    return found.read_text() if found.exists() else ""


def test_the_modules_are_hostile(hostile):
    subprocess.run(
        [sys.executable, "-c", "import json"], check=False, cwd=hostile, capture_output=True
    )
    assert "json" in executed(hostile).split()


# A daemon that has imported what it needs, and changes to another directory.
DAEMON = """
import os, sys
import multiprocessing.reduction, multiprocessing.connection, subprocess, concurrent.futures.thread
from fpdb.processes import mapped
os.chdir(sys.argv[1])
sys.path[:0] = ["", ".", "../downloads"]
print(list(mapped(abs, [-1, -2], 2)))
"""


def test_a_worker_imports_nothing_from_the_working_directory(hostile, tmp_path):
    own = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((own, "", ".", "../downloads"))}
    done = subprocess.run(
        [sys.executable, "-c", DAEMON, hostile],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[(-1, 1), (-2, 2)]\n", "")
    assert executed(hostile) == ""


def test_a_worker_finds_what_was_imported_from_a_relative_path(tmp_path):
    # As in a source tree, whose fpdb isn't installed.
    root = Path(__file__).parents[2]
    program = (
        f"import os, sys; os.chdir({str(root)!r}); sys.path[:0] = ['']; import fpdb\n"
        "sys.path = [p for p in sys.path if not os.path.exists(os.path.join(p, 'fpdb')) or not p]\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from fpdb.processes import mapped; print([*mapped(abs, [-1, -2], 2)])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("[(-1, 1), (-2, 2)]\n", "")
