"""A command imports what it needs, takes values as typer does, and ends as Python does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import fpdb
from fpdb.cli import _process_value, _spare_checks, program

ROOT = Path(__file__).resolve().parents[2]
TEXT = "A text that is long enough to have a fingerprint of its own"
# What reads files, and what typer checks values with; both take longer than the work itself.
HEAVY = {"fpdb.io.files", "jieba", "pyarrow", "pydantic", "rich"}


def imported(*arguments):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "fpdb", *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.stdout
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


@pytest.mark.process
def test_a_fingerprint_needs_no_database():
    found = imported("fingerprint", "--text", TEXT)
    assert "fpdb.fingerprint.engine" in found
    assert found & (HEAVY | {"fpdb.queries", "fpdb.storage", "lmdb"}) == set()


@pytest.mark.process
def test_a_query_needs_no_reader_and_no_join(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        db.add("page", TEXT)
    found = imported("query", tmp_path / "db", "--text", TEXT, "--limit", "1")
    assert "fpdb.queries" in found
    assert found & (HEAVY | {"fpdb.io.arrow", "fpdb.io.html", "fpdb.joins.pairs"}) == set()


@pytest.mark.process
def test_the_version_needs_no_command():
    assert imported("--version") & (HEAVY | {"fpdb.fingerprint", "numpy"}) == set()


LINES = [
    *(
        "ingest",
        "query db",
        "query db x --limit 3 -q",
        "query db x --limit three",
        "query db x -n 0",
    ),
    *("query db --similarity 0.5 --text a --text b", "query db --similarity 2", "query db -k -1"),
    *("create db -k 3 --similarity off --capacity 5e6", "create db --capacity 0", "create -"),
    *("create db --key-type integer", "create db --key-type other", "ingest db a b --max-bytes 4M"),
    *(
        "ingest db --max-bytes 4X",
        "distance -1 -2 --base signed --bits 32",
        "distance 1 2 --bits x",
    ),
    *("plan 1e6 --machines 2**3", "compare", "compare a b --json", "hold db -- true", "get db a"),
    *("fingerprint --base decimal -t a", "fingerprint --base ten -t a", "--version", "spark pairs"),
    *("pairs db --jobs 257", "stats /proc/1/mem", "recipes show web --json", "eval a --sample 1.5"),
]


def parsed(line, *, quick):
    """Return the values of a command line's options, or the error that they are."""
    command = typer.main.get_command(program())
    if quick:
        _spare_checks(command)
    found = []
    arguments = line.split()
    try:
        while command:
            context = command.make_context(command.name, list(arguments))
            found.append(context.params)
            arguments = [*context._protected_args, *context.args]
            command = command.commands.get(arguments.pop(0)) if arguments else None
    except Exception as error:  # those of typer have no common base that it exports
        found.append((type(error), str(getattr(error, "message", ""))))
    return found


@pytest.mark.parametrize("line", LINES)
def test_values_are_what_typer_makes_of_them(line):
    assert parsed(line, quick=True) == parsed(line, quick=False)


def test_what_isn_t_known_of_typer_is_left_to_it():
    class Strange:
        required = False

        def process_value(self, context, value):
            return [context, value]

    assert _process_value(Strange(), "context", "value") == ["context", "value"]


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
