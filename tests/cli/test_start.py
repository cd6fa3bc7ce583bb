"""A command imports what it needs, and ends as Python does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fpdb

ROOT = Path(__file__).resolve().parents[2]
TEXT = "A text that is long enough to have a fingerprint of its own"
# What reads files and draws tables; both take longer than the work itself.
HEAVY = {"fpdb.io.files", "jieba", "pyarrow", "rich"}


def imported(*arguments, of=("-m", "fpdb")):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *of, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.stdout or "-c" in of
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.process
def test_a_fingerprint_needs_no_database():
    found = imported("fingerprint", "--text", TEXT)
    assert "fpdb.fingerprint.stages" in found
    assert found & (HEAVY | {"fpdb.queries", "fpdb.storage", "lmdb"}) == set()


@pytest.mark.process
def test_a_query_loads_little_beside_its_packages(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        db.add("page", TEXT)
    packages = imported(of=("-c", "import lmdb, msgpack, numpy.typing, typer, xxhash"))
    options = ("--text", TEXT, "--limit", "1", "--similarity", ".9")
    modules = imported("query", tmp_path / "db", *options)
    assert "fpdb.queries" in modules
    assert modules & (HEAVY | {"fpdb.io.arrow", "fpdb.io.html", "fpdb.joins.pairs"}) == set()
    # Modules are counted since no other process disturbs that, as it does the time. There are 80 of
    # fpdb and 23 of Python; pydantic, which typer may load, is 100 modules and half of the time.
    assert len(modules - packages) < 120


@pytest.mark.process
def test_a_program_that_calls_the_command_line_goes_on(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "from fpdb.cli import main\ntry:\n    main()\nexcept SystemExit as end:\n"
        "    print('ended with', end.code)\n"
    )
    done = subprocess.run(
        [sys.executable, script, "--version"], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "ended with 0"


@pytest.mark.process
@pytest.mark.parametrize("code", [0, 3])
def test_exit_functions_run_and_the_exit_code_is_that_of_the_command(tmp_path, code):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit\natexit.register(print, 'after all')\n"
    )
    arguments = ["--version"] if not code else ["get", str(tmp_path / "none"), "key"]
    done = subprocess.run(
        [sys.executable, "-m", "fpdb", *arguments],
        check=False,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, "after all")
