"""The sides of the bench: who they are, what they can do, and the processes that they run in."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import environments

SCRIPTS = Path(__file__).parent / "sides"
# The order sets the number of threads; no library chooses it.
QUIET = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
RESERVE = 1 << 30


class StoppedError(Exception):
    """A side didn't give an answer; the message says why."""


@dataclass(frozen=True)
class Contender:
    """A side; `cap` is the largest number of documents that it is given, `cannot` tells why not."""

    name: str
    label: str
    script: str
    package: str | None = None
    options: Any = None
    cap: int | None = None
    why_cap: str = ""
    persistent: bool = False
    all_cores: tuple[str, ...] = ()
    cannot: dict[str, str] = field(default_factory=dict)
    distinct: bool = False  # its self-join drops copies, so it gets none


NO_INDEX = "simhash-pybind joins a list and keeps no index"
CONTENDERS = [
    Contender(
        "fpdb",
        "fpdb",
        "with_fpdb.py",
        persistent=True,
        all_cores=("load", "batch 1k", "batch 100k", "join"),
    ),
    Contender(
        "sqlite",
        "SQLite, four block columns",
        "with_sqlite.py",
        persistent=True,
        cap=10_000_000,
        why_cap="SQLite runs up to 10 M documents: loading 100 M would take hours",
    ),
    *(
        Contender(
            name,
            f"FAISS MultiHash {shown}",
            "with_faiss.py",
            package="faiss-cpu==1.15.1",
            options=options,
            all_cores=("batch 1k", "batch 100k", "join"),
        )
        for name, shown, options in (
            ("faiss", "(64,4,16)", (4, 16, 0)),
            ("faiss-flip", "(64,3,21), one flip", (3, 21, 1)),
        )
    ),
    Contender(
        "pynear",
        "pynear",
        "with_pynear.py",
        package="pynear==2.6.0",
        cap=10_000_000,
        why_cap="pynear runs up to 10 M documents: it takes minutes to build there",
        cannot={
            "adds": "pynear takes all fingerprints at once and none later",
            "disk": "pynear's MIHBinaryIndex can't be saved; it is built again at each start",
        },
    ),
    Contender(
        "simhash",
        "simhash",
        "with_simhash.py",
        package="simhash==2.1.2",
        cap=1_000_000,
        why_cap="simhash runs up to 1 M documents: for 10 M it would take over 10 GB",
    ),
    Contender(
        "pybind",
        "simhash-pybind",
        "with_simhash_pybind.py",
        package="simhash-pybind==0.0.3",
        cap=10_000_000,
        why_cap="simhash-pybind runs up to 10 M documents: it takes gigabytes there",
        cannot=dict.fromkeys(
            (
                "load",
                "adds",
                "single p50",
                "single p99",
                "batch 1k",
                "batch 100k",
                "disk",
                "memory",
                "reopen",
                "reopen cold",
            ),
            NO_INDEX,
        ),
        distinct=True,
    ),
]


def interpreter(contender):
    """Return the Python that a side runs under; install its package if it is missing."""
    if contender.package is None:
        return Path(sys.executable)
    return environments.python(contender.package.split("==")[0], contender.package)


def free_memory():
    lines = Path("/proc/meminfo").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["MemAvailable"].split()[0]) * 1024


class Process:
    """A side at work. It gets as much memory as is free when it starts, less a reserve."""

    def __init__(self, contender, work, folder, options):
        limit = max(free_memory() - RESERVE, RESERVE)
        python = str(interpreter(contender))
        script = str(SCRIPTS / contender.script)
        self.words = (folder / "stderr.txt").open("a+")
        self.running = subprocess.Popen(
            [python, script, str(work), str(folder), str(limit), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.words,
            env={**os.environ, **QUIET},
            start_new_session=True,
        )
        self.peak = 0
        self.version = self._answer(60)["version"]

    def ask(self, patience, do, **order):
        """Send an order and wait for the answer; a side that takes too long is ended."""
        self.peak = _resident(self.running.pid)
        line = json.dumps({"do": do, **order}, default=str) + "\n"
        try:
            self.running.stdin.write(line.encode())
            self.running.stdin.flush()
        except BrokenPipeError:
            raise StoppedError(self._last_words()) from None
        answer = self._answer(patience)
        if "stopped" in answer:
            raise StoppedError(answer["stopped"])
        return answer

    def _answer(self, patience):
        end = time.monotonic() + patience
        while not select.select([self.running.stdout], [], [], 0.02)[0]:
            self.peak = max(self.peak, _resident(self.running.pid))
            if time.monotonic() > end:
                self.end()
                raise StoppedError(f"stopped after {patience:.0f} s")
        line = self.running.stdout.readline()
        if not line:
            raise StoppedError(self._last_words())
        return json.loads(line)

    def _last_words(self):
        code = self.running.wait()
        self.words.seek(0)
        lines = self.words.read().strip().splitlines() or ["no message"]
        return f"ended with {code}: {lines[-1]}"

    def close(self):
        """Make the side close its files and end."""
        with suppress(StoppedError, subprocess.TimeoutExpired):
            if self.running.poll() is None:
                self.ask(60, "close")
                self.running.stdin.close()
                self.running.wait(60)
        self.end()

    def end(self):
        """End the side, and whatever it started."""
        if self.running.poll() is None:
            os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()
        for pipe in (self.running.stdin, self.running.stdout, self.words):
            with suppress(BrokenPipeError):
                pipe.close()


def _resident(pid):
    """Count the bytes that a process and its children hold, without the files that are mapped."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                total = int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return total
    return total + sum(map(_resident, children))
