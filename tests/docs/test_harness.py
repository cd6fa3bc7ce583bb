"""The runner of examples notices what is wrong with a page."""

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


WRONG = {
    "raises": (block("python", "x = 1", "raise KeyError('oh')"), ("page.md:3", "KeyError: 'oh'")),
    "syntax": (block("python", "x = 1", "x ="), ("page.md:3", "SyntaxError")),
    "pycon value": (block("pycon", ">>> 1", "1", ">>> 2", "3"), ("page.md:4", "got:\n    2")),
    "pycon raises": (block("pycon", ">>> 1 / 0"), ("page.md:2", "ZeroDivisionError")),
    "output": (block("console", "$ true", "$ echo a", "b"), ("page.md:3", "got:\n    a")),
    "missing output": (block("console", "$ true", "a"), ("page.md:2", "expected:\n    a")),
    "exit code": (block("console", "$ echo oh; exit 3", "oh"), ("exit code 3", "exit code 0")),
    "no failure": (block("console", "$ true", "# exit 3"), ("exit code 0", "exit code 3")),
    "pipe": (block("console", "$ false | cat"), ("exit code 1",)),
    "console without prompt": (block("console", "fpdb --help"), ("a first line with $",)),
    "language": (block("bash", "false"), ("page.md:1", "bash")),
    "no language": (block("", "false"), ("page.md:1",)),
    "open fence": ("```python\n1\n", ("page.md:1", "a closing fence")),
    "no reason": ("<!-- not run: -->\n" + block("console", "$ false"), ("a reason",)),
    "second block": (block("text", "fine") + block("python", "1 / 0"), ("page.md:5",)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "reported"), WRONG.values(), ids=WRONG)
def test_a_wrong_page_fails_and_says_where(run, text, reported):
    with pytest.raises(ExampleError) as failure:
        run(text)
    for words in reported:
        assert words in str(failure.value)
