"""The runner of examples notices what is wrong with a page."""

import sys
from pathlib import Path

import pytest

from examples import ExampleError, Page

pytestmark = pytest.mark.process


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a page with the given text in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run_text(text):
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        page = Page(path, tmp_path)
        page.run()
        return page.names

    return run_text


def block(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


ONCE = "<!-- not run: once -->\n"
WRONG = {
    "raises": (block("python", "x = 1", "raise KeyError('oh')"), ("page.md:3", "KeyError: 'oh'")),
    "syntax": (block("python", "x = 1", "x ="), ("page.md:3", "SyntaxError")),
    "pycon value": (block("pycon", ">>> 1", "1", ">>> 2", "3"), ("page.md:4", "got:\n    2")),
    "pycon raises": (block("pycon", ">>> 1 / 0"), ("page.md:2", "ZeroDivisionError")),
    "pycon without prompt": (block("pycon", "1 + 1"), ("page.md:2", "a line with >>>")),
    "output": (block("console", "$ true", "$ echo a", "b"), ("page.md:3", "got:\n    a")),
    "order": (block("console", "$ printf 'a\\nb\\n'", "b", "a"), ("page.md:2",)),
    "missing output": (block("console", "$ true", "a"), ("page.md:2", "expected:\n    a")),
    "exit code": (block("console", "$ echo oh; exit 3", "oh"), ("exit code 3", "exit code 0")),
    "exit code without output": (block("console", "$ false"), ("exit code 1", "exit code 0")),
    "other exit code": (block("console", "$ (exit 2)  # exit 3"), ("exit code 2", "exit code 3")),
    "no failure": (block("console", "$ true", "# exit 3"), ("exit code 0", "exit code 3")),
    "pipe": (block("console", "$ false | cat"), ("exit code 1",)),
    "console without prompt": (block("console", "fpdb --help"), ("a first line with $",)),
    "language": (block("bash", "false"), ("page.md:1", "bash")),
    "no language": (block("", "false"), ("page.md:1",)),
    "directive": (block("{code-block} python", "1 / 0"), ("page.md:1",)),
    "open fence": ("```python\n1\n", ("page.md:1", "a closing fence")),
    "no reason": ("<!-- not run: -->\n" + block("console", "$ false"), ("a reason",)),
    "within a note": ("````{note}\n" + block("python", "1 / 0") + "````\n", ("page.md:1",)),
    "second block": (block("text", "fine") + block("python", "1 / 0"), ("page.md:5",)),
    "after a table": (block("{toctree}", "page") + block("python", "1 / 0"), ("page.md:5",)),
    "comment of another": (ONCE + block("text") + block("python", "1 / 0"), ("page.md:5",)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reported"), WRONG.values(), ids=WRONG)
def test_a_wrong_page_fails_and_says_where(run, text, reported):
    with pytest.raises(ExampleError) as failure:
        run(text)
    for words in reported:
        assert words in str(failure.value)


def test_fpdb_is_the_one_under_test(run):
    run(block("console", "$ command -v fpdb > where"))
    where = Path("where").read_text(encoding="utf-8").strip()
    assert Path(where) == Path(sys.executable).parent / "fpdb"


def test_variables_of_fpdb_do_not_leak_in(run, monkeypatch):
    monkeypatch.setenv("FPDB_PATH", "elsewhere.fpdb")
    run(block("console", '$ echo "[$FPDB_PATH]"', "[]"))


def test_a_page_starts_in_an_empty_folder(run):
    run(block("console", "$ ls", "page.md"))
