"""Threads fingerprint texts side by side, with the results of one."""

import os
import threading

import numpy as np
import pytest

import fpdb
from fpdb import kernels
from fpdb.processes import mapped

TEXTS = [f"number {number} of the texts, {'and so on, ' * (number % 50)}" for number in range(5000)]


@pytest.mark.parametrize("name", ["web", "title", "code", "jieba"])
@pytest.mark.parametrize("jobs", [0, 3])
def test_the_batch_of_several_threads_is_that_of_one(name, jobs):
    recipe = fpdb.recipe("words").replace(segment="jieba") if name == "jieba" else fpdb.recipe(name)
    one, several = (recipe.batch(iter(TEXTS), sketches=True, jobs=each) for each in (1, jobs))
    np.testing.assert_array_equal(several.fingerprints, one.fingerprints)
    np.testing.assert_array_equal(several.features, one.features)
    np.testing.assert_array_equal(several.short, one.short)
    np.testing.assert_array_equal(several.sketches, one.sketches)


def test_the_first_text_that_is_wrong_is_reported_by_threads_too():
    with pytest.raises(fpdb.InputError, match="found int"):
        fpdb.recipe("web").batch(["x" * 200_000, 5, "y"], jobs=2)
    with pytest.raises(fpdb.InputError, match="jobs"):
        fpdb.recipe("web").batch([], jobs=-1)


@pytest.mark.parametrize(
    ("name", "whole"),
    [("web", True), ("char-4", True), ("title", True), ("code", False), ("news-md5", False)],
)
def test_recipes_whose_work_kernels_do(name, whole):
    assert fpdb.recipe(name).in_kernels is (whole and kernels.available)


def test_threads_work_in_this_process_and_keep_the_order():
    seen = set()

    def work(number):
        seen.add(threading.get_ident())
        return os.getpid(), number

    found = list(mapped(work, range(100), 2, threads=True))
    assert found == [(number, (os.getpid(), number)) for number in range(100)]
    assert len(seen) <= 2
    assert threading.get_ident() not in seen


def test_an_error_in_a_thread_comes_after_the_results_before_it():
    found = mapped(lambda number: 1 // (3 - number), range(10), 2, threads=True)
    assert [next(found)[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_items_that_nobody_waits_for_any_more_are_dropped():
    done = []
    gate = threading.Event()

    def work(number):
        if number:
            gate.wait(10)
        done.append(number)

    found = mapped(work, range(100), 2, 50, threads=True)
    assert next(found) == (0, None)
    threading.Timer(0.2, gate.set).start()
    found.close()
    assert len(done) <= 3
