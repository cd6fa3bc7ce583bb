"""Threads that work on items: in order, within bounds, and never left at work."""

import os
import threading
import time

import pytest

import fpdb
from fpdb.threads import MOST, count_jobs, made_ahead, mapped, overlapped


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_with_their_items(jobs):
    # The first items take longer than the others.
    items = [float(9 - number) / 100 for number in range(9)]
    assert list(mapped(time.sleep, items, jobs)) == [(item, None) for item in items]
    assert list(mapped(abs, [], jobs)) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_comes_in_its_place(jobs):
    found = mapped(lambda number: 1 // (3 - number), range(10), jobs)
    assert [next(found)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        next(found)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_was_read_before_an_error_comes_before_it(jobs):
    def source():
        yield from range(5)
        raise LookupError("no more")

    found = []
    with pytest.raises(LookupError, match="no more"):
        found.extend(result for _, result in mapped(abs, source(), jobs))
    assert found == list(range(5))


@pytest.mark.parametrize("ahead", [0, 10])
def test_only_so_many_items_are_in_flight(ahead):
    taken = []

    def source():
        for number in range(30):
            taken.append(number)
            yield number

    results = mapped(abs, source(), 2, ahead)
    for number in range(30):
        assert next(results) == (number, number)
        if ahead:
            assert len(taken) == min(number + 11, 30)
        else:
            time.sleep(0.01)
            assert len(taken) <= number + 8
    assert next(results, None) is None


def test_an_exception_of_the_caller_drops_what_waits_and_awaits_what_is_at_work():
    done = []
    gate = threading.Event()

    def work(number):
        if number:
            gate.wait(10)
        done.append(number)

    def items():
        yield from range(4)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(mapped(work, items(), 2, 50, stop=gate.set))
    assert len(done) <= 3


@pytest.mark.parametrize("jobs", [-1, MOST + 1, 1.5, True, "2", None])
def test_other_numbers_of_jobs_are_refused(jobs):
    with pytest.raises(fpdb.InputError, match="jobs"):
        count_jobs(jobs)


def test_no_jobs_means_all_processors():
    assert count_jobs(0) == len(os.sched_getaffinity(0))
    assert count_jobs(3) == 3


def test_a_thread_that_can_t_start_is_an_error(monkeypatch):
    def fail(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(fpdb.WorkerError, match="can't start new thread"):
        list(mapped(abs, range(3), 2))


def test_items_are_made_ahead_in_order_and_no_further_than_they_may():
    made = []

    def source():
        for number in range(50):
            made.append(number)
            yield number

    found = made_ahead(source(), 4)
    assert made == []
    assert next(found) == 0
    time.sleep(0.05)
    assert len(made) <= 6
    assert list(found) == list(range(1, 50))
    found = made_ahead(source(), 4)
    next(found)
    found.close()


def test_an_error_of_items_made_ahead_comes_after_those_before_it():
    def source():
        yield 1
        raise ValueError("the second")

    found = made_ahead(source(), 4)
    assert next(found) == 1
    with pytest.raises(ValueError, match="the second"):
        next(found)


def test_work_overlaps_with_making_the_next_item():
    working, seen = threading.Event(), []

    def source():
        yield 1
        assert working.wait(10)
        yield 2

    def work(item):
        working.set()
        seen.append(item)

    overlapped(work, source())
    assert seen == [1, 2]
    with pytest.raises(ZeroDivisionError):
        overlapped(lambda item: item / 0, [1, 2])
