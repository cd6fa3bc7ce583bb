"""Run the command line: inside the test's own process, or in one of its own."""

import contextlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from fpdb.cli import app


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def rows(self):
        """The fields of each line on standard output."""
        return [line.split("\t") for line in self.out.splitlines()]


@pytest.fixture
def run(monkeypatch):
    """Run a command in this process, as the installed script does.

    Its standard input is bytes, or an open file.
    """

    def run_here(*arguments, stdin=b""):
        source = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        streams = {
            "stdin": io.TextIOWrapper(source, "ascii"),
            "stdout": io.TextIOWrapper(io.BytesIO(), "ascii"),
            "stderr": io.TextIOWrapper(io.BytesIO(), "ascii"),
        }
        with monkeypatch.context() as patch:
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            patch.setattr(sys, "argv", ["fpdb", *map(str, arguments)])
            code = app.run()
        streams["stdin"].detach()  # the file of a test stays open
        written = []
        for name in ("stdout", "stderr"):
            streams[name].flush()
            written.append(streams[name].buffer.getvalue().decode("utf-8"))
        return Outcome(int(code), *written)

    return run_here


@pytest.fixture
def start():
    """Start a command as a process of its own."""
    started = []

    def start_process(*arguments, **options):
        environment = {**os.environ, **options.pop("environment", {})}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE} | options
        process = subprocess.Popen(
            [sys.executable, "-m", "fpdb", *map(str, arguments)],
            stderr=subprocess.PIPE,
            env=environment,
            **options,
        )
        started.append(process)
        return process

    yield start_process
    for process in started:
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                with contextlib.suppress(OSError):  # what it never read can't be flushed
                    stream.close()
        process.wait()
