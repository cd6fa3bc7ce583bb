"""Worker processes: in order, within bounds, and never left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fpdb
from fpdb.processes import CallError, KeptWorkers, Worker

pytestmark = pytest.mark.process


def running():
    """The processes that this one started and that still run."""
    while True:
        found = []
        try:
            for task in Path("/proc/self/task").iterdir():
                found += (task / "children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):  # a thread has just ended
            continue
        return [int(number) for number in found]


@pytest.fixture
def children():
    """Return what lists the processes that a test started, and that still run."""
    before = set(running())
    return lambda: [number for number in running() if number not in before]


@pytest.mark.parametrize("size", [0, 1, 1 << 14, 3 << 20])
def test_values_of_any_size_arrive(size):
    with Worker(bytes) as worker:
        for _ in range(2):
            assert worker.call(b"x" * size) == b"x" * size


def ended(code):
    os._exit(code)


def killed(by):
    signal.raise_signal(by)
    time.sleep(60)


@pytest.mark.parametrize(
    ("work", "item", "how"),
    [
        (killed, signal.SIGSEGV, "killed the process that read it by SIGSEGV: Segmentation fault"),
        (killed, signal.SIGPROF, "takes more than 3 seconds of processor time"),
        (ended, 7, "ended the process that read it with 7"),
        (bytes, 1 << 60, "takes more than 1 MiB of memory"),
    ],
)
def test_a_call_without_a_value_is_one_error_that_says_how(work, item, how, children):
    kept = KeptWorkers(work, lambda: None)
    with pytest.raises(CallError, match=how):
        list(kept.values(item, 1 << 20, 3))
    kept.end()
    assert children() == []


def some_values(count):
    for number in range(count):
        yield None if number == 1 else number
        if number == 5:
            raise fpdb.InputError("too many")


def test_values_come_one_by_one_and_a_process_is_kept(children):
    kept = KeptWorkers(some_values, lambda: None)
    for _ in range(2):
        assert list(kept.values(3, 1 << 20, 3)) == [0, None, 2]
        [process] = children()
    found = kept.values(9, 1 << 20, 3)
    assert [next(found) for _ in range(6)] == [0, None, 2, 3, 4, 5]
    with pytest.raises(fpdb.InputError, match="too many"):
        next(found)
    assert len(list(kept.values(3, 1 << 20, 3))) == 3
    assert children() == [process]
    next(kept.values(3, 1 << 20, 3))  # and nobody takes the others
    assert process not in children()
    kept.end()
    assert children() == []


def test_a_worker_that_can_t_start_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(fpdb.WorkerError, match="can't be started: No such file"):
        Worker(abs).call(1)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(fpdb.WorkerError, match="ended with 1"):
        Worker(abs).call(1)


SCRIPT = """
import time
from fpdb.processes import Worker

workers = [Worker(time.sleep) for _ in range(2)]
workers[0]._connection.send((time.sleep, 60))
print(*(worker._process.pid for worker in workers), flush=True)
time.sleep(60)
"""


def test_workers_end_when_their_starter_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE)
    numbers = [int(number) for number in process.stdout.readline().split()]
    assert numbers
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 60
    while any(map(_runs, numbers)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
