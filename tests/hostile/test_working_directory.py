"""Commands and workers in a directory full of hostile modules execute none of them."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_reference import commands

from fpdb.cli.app import program

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
TEXT = "one two three four five six seven eight"

HOSTILE = {
    *sys.stdlib_module_names,
    *importlib.metadata.packages_distributions(),
    *("fpdb", "sitecustomize", "usercustomize", "brotli", "pandas"),
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
from fpdb.processes import Worker
os.chdir(sys.argv[1])
sys.path[:0] = ["", ".", "../downloads"]
print(Worker(abs).call(-1))
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
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert executed(hostile) == ""


def test_a_worker_finds_what_was_imported_from_a_relative_path(tmp_path):
    # As in a source tree, whose fpdb isn't installed.
    program = (
        f"import os, sys; os.chdir({str(ROOT)!r}); sys.path[:0] = ['']; import fpdb\n"
        "sys.path = [p for p in sys.path if not os.path.exists(os.path.join(p, 'fpdb')) or not p]\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from fpdb.processes import Worker; print(Worker(abs).call(-1))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("1\n", "")


# What each command is given; the files are beside the working directory.
COMMANDS = {
    "ingest": ["../x.fpdb", "../pages.jsonl", "../page.html", "../x.parquet", "--jobs", "2"],
    "query": ["../x.fpdb", "../lines.txt", "--format", "lines", "--jobs", "2", "--json"],
    "pairs": ["../x.fpdb", "--output", "../pairs.parquet"],
    "clusters": ["../x.fpdb"],
    "dedupe": ["../pages.jsonl", "--output", "../kept.jsonl", "--jobs", "2"],
    "report": ["../pages.jsonl", "--output", "../report.html"],
    "compare": ["-t", TEXT, "-t", TEXT],
    "copies": ["../pages.jsonl"],
    "eval": ["../pages.jsonl"],
    "follow": ["../x.fpdb"],
    "mcp": ["../x.fpdb"],
    "load": ["../loaded.fpdb", "../x.fpdb.jsonl.gz"],
    "export": ["../x.fpdb", "--output", "../x.fpdb.jsonl.gz"],
    "create": ["../x.fpdb", "--recipe", "web"],
    "get": ["../x.fpdb", "k1"],
    "delete": ["../x.fpdb", "absent"],
    "serve": ["../x.fpdb", "--port", "0"],
    "explore": ["../x.fpdb"],
    "stats": ["../x.fpdb"],
    "check": ["../x.fpdb", "--deep"],
    "backup": ["../x.fpdb", "--output", "../copy.fpdb"],
    "compact": ["../x.fpdb", "--output", "../small.fpdb"],
    "repair": ["../x.fpdb", "--output", "../repaired.fpdb"],
    "fingerprint": ["-t", TEXT, "-t", "国务院今天发布了关于放假的通知", "--jobs", "2"],
    "plan": [],
    "recipes": ["web"],
}
# These run until they are ended.
ENDLESS = ("serve", "explore")
# Those that make what others need come first.
FIRST = ("create", "ingest", "export", "load", "backup", "compact")


def test_there_is_a_run_of_each_command():
    paths = {path for path, found, _ in commands(program()) if not hasattr(found, "list_commands")}
    names = {path.removeprefix("fpdb ") for path in paths}
    assert names == set(COMMANDS)


@pytest.mark.parametrize(
    ("started", "names"),
    [
        pytest.param(
            "script",
            ("create", "backup"),
            marks=pytest.mark.slow("each command is a Python of its own"),
        ),
        pytest.param("script", dict.fromkeys((*FIRST, *COMMANDS)), marks=pytest.mark.full),
        pytest.param("module", dict.fromkeys((*FIRST, *COMMANDS)), marks=pytest.mark.full),
    ],
    ids=["some", "script", "module"],
)
def test_no_command_imports_from_the_working_directory(hostile, tmp_path, started, names):
    script = tmp_path / "fpdb"
    script.write_text(SCRIPT)
    begin = {"script": [script], "module": ["-P", "-m", "fpdb"]}[started]
    place_files(tmp_path)
    for name in names:
        with subprocess.Popen(
            [sys.executable, *begin, *name.split(), *COMMANDS[name]],
            cwd=hostile,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            if name in ENDLESS:
                assert "http" in process.stdout.readline()  # it listens
                process.terminate()
            output, _ = process.communicate()
        codes = (0, -signal.SIGTERM) if name in ENDLESS else (0,)
        assert process.returncode in codes, (name, output)
        assert executed(hostile) == "", name


def place_files(folder):
    """Write the files that the commands read."""
    texts = [" ".join(f"word{place}of{number}" for place in range(20)) for number in range(1500)]
    table = pa.table({"key": [f"row{number}" for number in range(9)], "text": texts[:9]})
    pq.write_table(table, folder / "x.parquet")
    (folder / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    (folder / "pages.jsonl").write_text(
        "".join(
            json.dumps({"key": f"k{number}", "text": text}) + "\n"
            for number, text in enumerate(texts)
        )
    )
    (folder / "page.html").write_text(f"<html><title>A page</title><p>{texts[0]}</p></html>")
