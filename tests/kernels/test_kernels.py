"""Kernels are used where they are built and newer than their source, and can be turned off."""

import hashlib
import os
import subprocess
import sys

import pytest

import fpdb
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


def test_kernels_are_used_if_they_were_built_from_this_source(folder):
    (folder / "text.pyx").write_text("def fill(): pass")
    (folder / "hashes.pxd").write_text("")
    with pytest.warns(RuntimeWarning, match="tools/kernels builds them"):
        assert not kernels._usable()
    digest = hashlib.blake2b(b"def fill(): pass").hexdigest()
    (folder / "built.txt").write_text(digest)
    assert kernels._usable()


@pytest.mark.parametrize("changed", ["text.pyx", "hashes.pxd", "more.pyx"])
def test_kernels_of_another_source_are_not_used(folder, changed):
    (folder / "text.pyx").write_text("")
    (folder / "hashes.pxd").write_text("")
    (folder / "built.txt").write_text(hashlib.blake2b().hexdigest())
    assert kernels._usable()
    (folder / changed).write_text("def fill(): pass")
    with pytest.warns(RuntimeWarning, match="tools/kernels builds them"):
        assert not kernels._usable()


def test_the_package_tells_whether_kernels_are_there():
    assert fpdb.kernels_available is kernels.available
