"""What each test costs in processor time.

A pytest plugin. Processor time, of the test and of the child processes it waited for, depends less
on what else the machine is doing than the time on the clock does.
"""

import resource

import pytest

# A test of the gate that takes longer is listed at the end of the run, unless it is marked `slow`.
LISTED_SECONDS = 2.0
_STARTING_FIXTURES = {"start"}  # of tests/cli


def _cpu_seconds() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu_seconds", _cpu_seconds() - before))


def pytest_terminal_summary(terminalreporter):
    passed = terminalreporter.stats.get("passed", [])
    slow = [
        (dict(report.user_properties)["cpu_seconds"], report.nodeid)
        for report in passed
        if report.when == "call" and not {"slow", "full", "spark"} & set(report.keywords)
    ]
    listed = sorted((found for found in slow if found[0] > LISTED_SECONDS), reverse=True)
    if listed:
        terminalreporter.section(f"over {LISTED_SECONDS:g} s of processor time, not marked slow")
        for seconds, name in listed:
            terminalreporter.line(f"{seconds:5.1f} s  {name}")


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items):
    """Mark the tests whose fixtures start processes, and require a reason of each slow test."""
    for item in items:
        if not _STARTING_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("process")
        for mark in item.iter_markers("slow"):
            if not (mark.args and isinstance(mark.args[0], str)):
                raise pytest.UsageError(f"{item.nodeid}: expected pytest.mark.slow(reason)")
