"""The package installs with a compiler and without one; the kernels are sound."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy
import pytest

pytestmark = [pytest.mark.full, pytest.mark.process]

FINGERPRINT = "15304545752439566585"
ROOT = Path(__file__).parents[2]
PARTS = ["fpdb", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "tools"]
SHOW = """
import fpdb
print(fpdb.kernels_available)
print(fpdb.recipe("web").fingerprint("Kites fly high above the old harbour of the small town."))
"""


@pytest.fixture
def tree(tmp_path):
    """A copy of the source, without anything built."""
    copy = tmp_path / "tree"
    copy.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            ignored = shutil.ignore_patterns("*.so", "built.txt", "__pycache__")
            shutil.copytree(ROOT / part, copy / part, ignore=ignored)
        else:
            shutil.copy2(ROOT / part, copy / part)
    return copy


def wheel(tree, **variables):
    pip = [sys.executable, "-m", "pip", "wheel", "--verbose", "--no-deps", "--wheel-dir", "wheels"]
    done = subprocess.run(
        [*pip, "."],
        check=False,
        cwd=tree,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    [path] = tree.glob("wheels/*.whl")
    return path, done.stdout


def shown(path, tmp_path):
    """Unpack a wheel, and run a program with it."""
    installed = tmp_path / "installed"
    with zipfile.ZipFile(path) as file:
        file.extractall(installed)
    packages = Path(numpy.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        check=True,
        cwd=installed,
        env={**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{packages}"},
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_without_a_compiler_the_package_installs_and_says_so_once(tree, tmp_path):
    path, output = wheel(tree, CC=shutil.which("false"))
    assert output.count("no kernels are built") == 1
    with zipfile.ZipFile(path) as file:
        assert [name for name in file.namelist() if name.endswith((".so", ".c", ".pyx"))] == []
    assert shown(path, tmp_path) == ["False", FINGERPRINT]


def test_a_wheel_has_the_kernels_for_all_versions_of_python(tree, tmp_path):
    path, output = wheel(tree)
    assert "no kernels are built" not in output
    assert "-cp311-abi3-" in path.name
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
    sources = {source.stem for source in (ROOT / "fpdb" / "kernels").glob("*.pyx")}
    assert {name.removeprefix("fpdb/kernels/") for name in names if name.endswith(".so")} == {
        f"{source}.abi3.so" for source in sources
    }
    assert "fpdb/py.typed" in names
    assert [name for name in names if name.endswith((".c", ".pyx", "built.txt"))] == []
    assert shown(path, tmp_path) == ["True", FINGERPRINT]


def test_kernels_give_the_same_under_sanitizers(tree):
    """Run their tests where an access out of bounds or undefined behaviour ends the process."""
    flags = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1"
    compiler = os.environ.get("CC", "cc")
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "CFLAGS": flags,
        "LDFLAGS": flags,
        "PYTHONPATH": str(tree),
        # Python keeps some memory to the end.
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0",
        "FPDB_TIER": "quick",
    }
    shutil.copytree(ROOT / "tests", tree / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    # It builds, but can't load what it built: only the next step preloads the libraries for that.
    run(tree, environment, ["tools/lab/kernels"], code=1)
    assert (tree / "fpdb" / "kernels" / "built.txt").exists()
    preloaded = {**environment, "LD_PRELOAD": " ".join(libraries), "PYTHONMALLOC": "malloc"}
    tests = ["tests/kernels", "--ignore=tests/kernels/test_build.py", "-m", "not full"]
    run(tree, preloaded, ["-m", "pytest", "-q", "-x", "-s", "-p", "no:cacheprovider", *tests])


def run(tree, environment, arguments, code=0):
    done = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout[-8000:]
