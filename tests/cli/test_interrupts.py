"""Ctrl-C ends a command with exit code 130 and one line, from its beginning on."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fpdb

pytestmark = pytest.mark.process

ROOT = Path(fpdb.__file__).parents[1]
TEXT = "one two three four five six seven eight"
# What an installer makes of the entry point.
SCRIPT = f"""\
#!{sys.executable}
import sys
from fpdb.cli import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
"""
# Runs in each process once Python itself has started. It waits where a module is imported, at the
# exit of the interpreter, or nowhere: then it writes after which processor time interrupts are
# caught.
PAUSE = """
import atexit, os, signal, sys, time

place = os.environ["PAUSE_AT"]
reached = os.environ["PAUSE_FILE"]

def pause(*_):
    sys.meta_path[:] = [each for each in sys.meta_path if each is not Finder]
    with open(reached, "w"):
        pass
    while os.path.exists(reached):
        time.sleep(0.01)

class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name == place:
            pause()

if place == "exit":
    atexit.register(pause)
elif place == "start":
    begun, change = time.process_time(), signal.signal

    def write_when_caught(number, handler):
        before = change(number, handler)
        if number == signal.SIGINT and handler is signal.default_int_handler:
            signal.signal = change
            with open(reached + ".part", "w") as file:
                file.write(str(time.process_time() - begun))
            os.rename(reached + ".part", reached + ".caught")
        return before

    signal.signal = write_when_caught
    with open(reached, "w"):
        pass
else:
    sys.meta_path.insert(0, Finder)
"""


@pytest.fixture
def starting(tmp_path):
    """Start a command that pauses at a place, and wait until it is there."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(PAUSE)
    script = tmp_path / "fpdb"
    script.write_text(SCRIPT)
    reached = tmp_path / "reached"
    started = []

    def start(place, *arguments, command=(sys.executable, str(script)), **options):
        reached.unlink(missing_ok=True)
        path = os.pathsep.join((str(hooks), str(ROOT)))
        environment = {"PYTHONPATH": path, "PAUSE_AT": place, "PAUSE_FILE": str(reached)}
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | environment,
            **options,
        )
        started.append(process)
        deadline = time.monotonic() + 60
        while not reached.exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.001)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


MODULE = (sys.executable, "-m", "fpdb")


@pytest.mark.parametrize(
    ("place", "command", "ended"),
    [
        ("typer", None, (-signal.SIGINT, b"", b"")),  # the command hasn't begun
        ("typer", MODULE, (-signal.SIGINT, b"", b"")),
        ("numpy", None, (130, b"", b"interrupted\n")),
        ("fpdb.cli.recipes", MODULE, (130, b"", b"interrupted\n")),
        ("jieba", None, (130, b"", b"interrupted\n")),
    ],
)
def test_an_interrupt_while_a_module_is_imported(starting, place, command, ended):
    options = {"command": command} if command else {}
    text = "国务院今天发布了关于放假的通知"
    process = starting(place, "fingerprint", "-r", "tagged-title", "-t", text, **options)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == ended


def test_an_interrupt_at_the_exit_of_the_interpreter_is_too_late(starting, tmp_path):
    process = starting("exit", "fingerprint", "-t", TEXT)
    process.send_signal(signal.SIGINT)
    (tmp_path / "reached").unlink()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, bool(out), err) == (0, True, b"")


def test_a_program_that_imports_fpdb_keeps_its_interrupts(starting, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "try:\n    import fpdb.database\nexcept KeyboardInterrupt:\n    print('its own')\n"
    )
    process = starting("numpy", command=(sys.executable, str(script)))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, b"its own\n", b"")


def test_an_ignored_interrupt_stays_ignored(starting, tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = starting("numpy", "fingerprint", "-t", TEXT)
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    (tmp_path / "reached").unlink()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, bool(out), err) == (0, True, b"")


@pytest.mark.full
@pytest.mark.parametrize("command", [None, MODULE])
def test_an_interrupt_at_any_moment_of_a_command(starting, tmp_path, command):
    options = {"command": command} if command else {}
    lines = tmp_path / "pages.txt"
    lines.write_text("".join(f"{TEXT} {number}\n" for number in range(2000)))
    path = tmp_path / "crawl.fpdb"
    with fpdb.create(path) as database:
        database.add("a", TEXT)
    commands = [
        ["--version"],
        ["fingerprint", "--format", "lines", lines],
        ["check", path],
        ["query", path, lines, "--format", "lines", "--jobs", "2"],
        ["backup", path, "--output", tmp_path / "copy.fpdb"],
    ]
    ended, seconds = [], []
    caught = tmp_path / "reached.caught"
    for arguments in commands:
        for step in range(42):
            shutil.rmtree(tmp_path / "copy.fpdb", ignore_errors=True)
            process = starting("start", *arguments, **options)
            time.sleep(step * 0.025)
            begun = caught.exists()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            seen = (arguments[0], step, process.returncode, err.decode())
            # Until the command has begun, the end is the signal's or Python's.
            early = process.returncode in (1, -signal.SIGINT)
            late = process.returncode == 0 and b"interrupted" not in err
            interrupted = process.returncode == 130 and re.fullmatch(rb"interrupted.*\n", err)
            assert early or late or interrupted, seen
            assert not (begun and early), seen
            ended.append(process.returncode)
            if caught.exists():
                seconds.append(float(caught.read_text()))
                caught.unlink()
            assert not list(tmp_path.glob(".copy.fpdb*")), seen
    assert ended.count(130) > len(ended) / 4
    assert min(seconds) < 0.1  # a busy machine lengthens most of them
