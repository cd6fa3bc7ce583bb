"""The package: its name wherever pages install it, and systems that it doesn't run on."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fpdb
from fpdb.errors import OpenError

ROOT = Path(__file__).parents[1]
FOLDERS = ("fpdb", "docs", "examples", "tools", "tests", ".github")
SUFFIXES = {".py", ".md", ".ipynb", ".toml", ".yml", ".sh", ""}
INSTALL = re.compile(
    r"(?:pip3?|uv|pipx) (?:install|add|run)\b[^\n`]*?(?<![\w./-])fpdb(?![\w/-]|\.\w)"
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

SHADOWED = f"""
import sys, types
other = sys.modules["fpdb"] = types.ModuleType("fpdb")
other.__file__, other.__path__ = "/elsewhere/fpdb.py", [{str(ROOT / "fpdb")!r}]
import fpdb.cli
"""


def pages():
    """Yield the files that may say how to install fpdb."""
    yield from (path for path in ROOT.iterdir() if path.suffix in {".md", ".toml"})
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            built = {"_build", "__pycache__"} & set(path.parts)
            if path.is_file() and path.suffix in SUFFIXES and not built and path != Path(__file__):
                yield path


def test_no_page_installs_the_other_package():
    assert INSTALL.search("pip install 'fpdb[web]'")
    assert INSTALL.search("uv add fpdb")
    assert not INSTALL.search("pip install 'fpdb-store[web]'; pip install /src/fpdb")
    found = {
        f"{path}: {match[0]}"
        for path in pages()
        for match in INSTALL.finditer(path.read_text("utf-8", "replace"))
    }
    assert found == set()


def test_the_name_and_the_version_are_those_of_the_package():
    assert (PROJECT["name"], PROJECT["version"]) == ("fpdb-store", fpdb.__version__)
    assert PROJECT["scripts"] == {"fpdb": "fpdb.cli:main"}


def test_a_hint_names_extras_that_there_are():
    hints = re.findall(
        r"fpdb-store\[(\w+)\]",
        "".join(path.read_text("utf-8") for path in (ROOT / "fpdb").rglob("*.py")),
    )
    assert hints
    assert set(hints) <= set(PROJECT["optional-dependencies"])


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.platform = 'win32'; import fpdb", "fpdb needs Linux: found Windows"),
        (
            SHADOWED,
            "the module fpdb is that of another package: /elsewhere/fpdb.py",
        ),
    ],
)
def test_what_cannot_work_says_so_at_once(code, message):
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 1
    assert message in done.stderr


def test_another_system_gets_fingerprints_and_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(OpenError, match="on Linux only, found darwin") as raised:
        fpdb.create(tmp_path / "crawl.fpdb")
    assert "container" in raised.value.hint
    assert list(tmp_path.iterdir()) == []
    assert fpdb.recipe("web").fingerprint("one two three four five six seven eight nine")
