"""The package: its name wherever pages install it, its address, and other systems."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fpdb
from fpdb.errors import InputError, OpenError

ROOT = Path(__file__).parents[1]
FOLDERS = ("fpdb", "docs", "examples", "tools", "tests", ".github")
SUFFIXES = {".py", ".md", ".ipynb", ".toml", ".yml", ".sh", ""}
INSTALL = re.compile(
    r"(?:(?:pip3?|uv|uv tool|pipx|poetry|conda)\s+(?:install|add|run)|uvx)\s"
    r"[^\n`]*?(?<![\w./-])fpdb(?![\w/-]|\.\w)"
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

WINDOWS = """
import sys
sys.platform = "win32"
sys.modules |= {"fcntl": None, "resource": None}
import fpdb
"""
SHADOWED = f"""
import sys, types
other = sys.modules["fpdb"] = types.ModuleType("fpdb")
other.__path__ = [{str(ROOT / "fpdb")!r}]
import fpdb.cli
fpdb.cli.main()
"""


def pages():
    """Yield the files that may say how to install fpdb."""
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.suffix in SUFFIXES)
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            built = {"_build", "__pycache__"} & set(path.parts)
            if path.is_file() and path.suffix in SUFFIXES and not built and path != Path(__file__):
                yield path


def test_no_page_installs_the_other_package():
    for promise in (
        "pip install 'fpdb[web]'",
        "pip install\nfpdb",
        "uv add fpdb",
        "uv tool install fpdb",
    ):
        assert INSTALL.search(promise)
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
@pytest.mark.skipif("urls" in PROJECT, reason="this is a release, which has its address")
def test_a_release_has_its_address(tmp_path):
    (tmp_path / ".github").mkdir()
    for name in ("README.md", "pyproject.toml", ".github/address"):
        shutil.copy(ROOT / name, tmp_path / name)
    address, tag = "https://host.example/owner/fpdb", "v1.2.3"
    subprocess.run([sys.executable, tmp_path / ".github" / "address", address, tag], check=True)
    links = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text("utf-8"))
    assert f"{address}/raw/{tag}/docs/report.png" in links
    for link in links:
        place, name = re.fullmatch(rf"{address}/(raw|blob)/{tag}/([^#]+)(?:#.*)?", link).groups()
        assert (ROOT / name).exists()
        assert place == ("raw" if name.endswith(".png") else "blob")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    assert project.pop("urls")["Repository"] == address
    assert project == PROJECT


@pytest.mark.process
@pytest.mark.parametrize(
    ("code", "message"),
    [
        (WINDOWS, "fpdb needs Linux: found Windows"),
        (
            SHADOWED,
            f"another package has replaced the module fpdb of fpdb-store in {ROOT / 'fpdb'}",
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
    with pytest.raises(InputError, match="on Linux only, found darwin"):
        fpdb.html_text("<p>one")
    assert fpdb.recipe("web").fingerprint("one two three four five six seven eight nine")
