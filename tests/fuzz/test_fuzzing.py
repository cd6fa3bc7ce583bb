"""The fuzz harness finds planted defects, exits with 1, and keeps the input that showed them."""

import importlib.util
import subprocess
import sys

import pytest
from _environment import environ, shared_path
from modules import LAB

RUN = LAB / "fuzzers" / "run.py"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        importlib.util.find_spec("atheris") is None,
        reason="atheris isn't installed; it needs Linux and Python 3.11 to 3.14",
    ),
]


def fuzz(*arguments):
    command = [sys.executable, RUN, *map(str, arguments)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env=environ(PYTHONPATH=shared_path())
    )


@pytest.mark.parametrize(
    ("target", "defect", "error"),
    [
        ("texts", "windows", "AssertionError"),
        ("readers", "reader", "KeyError"),
    ],
)
def test_a_planted_defect_is_found(tmp_path, target, defect, error):
    done = fuzz(target, "--seconds", 60, "--keep", tmp_path, "--plant", defect)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{target}: something" in done.stdout
    assert error in done.stdout
    assert list((tmp_path / target).glob("crash-*"))


def test_without_a_defect_nothing_is_found(tmp_path):
    done = fuzz("texts", "--seconds", 2, "--keep", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "texts: nothing" in done.stdout
    assert not list((tmp_path / "texts").glob("crash-*"))


def test_an_unknown_target_is_a_usage_error():
    assert fuzz("nothing").returncode == 2
