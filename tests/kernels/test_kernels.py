"""Kernels are used where they are built and newer than their source, and can be turned off."""

import hashlib
import os
import subprocess
import sys

import pytest

from fpdb import kernels

SHOW = "import fpdb; print(fpdb.kernels_available)"


@pytest.mark.process
def test_a_variable_turns_all_kernels_off():
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        check=True,
        env={**os.environ, "FPDB_KERNELS": "0"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "False\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "_FOLDER", tmp_path)
    return tmp_path


def test_installed_kernels_have_no_source(folder):
    (folder / "text.pyi").write_text("def fill() -> None: ...")
    assert kernels._usable()


@pytest.mark.parametrize("changed", ["text.pyx", "hashes.pxd", "more.pyx"])
def test_only_kernels_of_this_very_source_are_used(folder, changed):
    (folder / "text.pyx").write_text("")
    (folder / "hashes.pxd").write_text("")
    with pytest.warns(RuntimeWarning, match="tools/lab/kernels builds them"):
        assert not kernels._usable()
    (folder / "built.txt").write_text(hashlib.blake2b().hexdigest())
    assert kernels._usable()
    (folder / changed).write_text("def fill(): pass")
    with pytest.warns(RuntimeWarning, match="tools/lab/kernels builds them"):
        assert not kernels._usable()
