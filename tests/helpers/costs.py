"""What each test costs: its processor time, and the processes that it starts.

A pytest plugin. Processor time, of the test and of the child processes it waited for, depends less
on what else the machine is doing than the time on the clock does.
"""

import resource
import sys

import pytest

# A test that takes longer is listed at the end of the run, unless it is marked `slow`. It doesn't
# fail, because a busy processor can double the time of a test.
LISTED_SECONDS = 2.0
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}
_STARTING_FIXTURES = {"start"}  # of tests/cli, tests/database and tests/storage
_LONG = {"slow", "full", "spark"}
_started: list[str] = []


def _note_start(event: str, _: object) -> None:
    if event in _STARTS:
        _started.append(event)


sys.addaudithook(_note_start)


def _cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items):
    """Mark the tests whose fixtures start processes, and require a reason of each slow test."""
    for item in items:
        if not _STARTING_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("process")
        for mark in item.iter_markers("slow"):
            if not (mark.args and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f"{item.nodeid}: expected pytest.mark.slow(reason)")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    _started.clear()
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_seconds", _cpu_seconds() - before))
        item.user_properties.append(("starts", len(_started)))


def pytest_terminal_summary(terminalreporter):
    slow, starting = [], []
    for report in terminalreporter.stats.get("passed", []):
        if report.when == "call" and not _LONG & set(report.keywords):
            costs = dict(report.user_properties)
            if costs["cpu_seconds"] > LISTED_SECONDS:
                slow.append(f"{costs['cpu_seconds']:5.1f} s  {report.nodeid}")
            if costs["starts"] and "process" not in report.keywords:
                starting.append(report.nodeid)
    for title, lines in (
        (f"over {LISTED_SECONDS:g} s of processor time, not marked slow", slow),
        ("starting a process, not marked process", starting),
    ):
        if lines:
            terminalreporter.section(title)
            for line in sorted(lines, reverse=True):
                terminalreporter.line(line)
