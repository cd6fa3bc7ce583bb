"""Every code block of the documentation runs and prints what its page says."""

import contextlib
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from examples import ExampleError, Page

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "docs" / "_build"
PAGES = [
    path
    for path in [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    if BUILD not in path.parents
]


pytestmark = pytest.mark.process

# Its examples are in several languages, and call a server.
LANGUAGES = ROOT / "docs" / "howto" / "crawlers-in-other-languages.md"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_do_what_the_page_says(path, tmp_path, monkeypatch, request, warm_commands):
    monkeypatch.chdir(tmp_path)
    replaced = {}
    if path == LANGUAGES:
        with socket.socket() as free:  # the usual port may be taken by another run of the tests
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        replaced = {"7373": port, "fpdb serve crawl.fpdb": f"fpdb serve crawl.fpdb --port {port}"}
        if not shutil.which("node"):
            pytest.skip("Node isn't installed")
        request.addfinalizer(lambda: end(tmp_path / "serve.pid"))
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    report = None
    try:
        Page(path, tmp_path, warm_commands, replaced).run()
    except ExampleError as error:
        report = str(error)
    if report:
        pytest.fail(report, pytrace=False)  # the page is at fault, so show no test code


def end(file):
    """End the process of a page that failed before it did so itself."""
    if file.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGTERM)
