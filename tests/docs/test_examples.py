"""Every code block of the documentation runs and prints what its page says."""

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

# Its commands start Spark, which looks for Java.
SPARK = ROOT / "docs" / "howto" / "spark.md"
PAGES[PAGES.index(SPARK)] = pytest.param(SPARK, marks=pytest.mark.spark)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_do_what_the_page_says(path, tmp_path, monkeypatch, request, warm_commands):
    monkeypatch.chdir(tmp_path)
    if path == SPARK:
        request.getfixturevalue("java")
    if path.parent == ROOT:  # the README is read in a checkout
        (tmp_path / "sample").symlink_to(ROOT / "sample")
    report = None
    try:
        Page(path, tmp_path, warm_commands).run()
    except ExampleError as error:
        report = str(error)
    if report:
        pytest.fail(report, pytrace=False)  # the page is at fault, so show no test code
