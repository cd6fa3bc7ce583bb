"""The cells of the notebooks run, and show what is stored in them."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "examples"


def shown(source, names):
    """Run a cell; return the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.gate  # a notebook uses pandas
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    cells = [each for each in json.loads(path.read_text("utf-8"))["cells"] if "outputs" in each]
    for cell in cells:
        value = shown("".join(cell["source"]), names)
        stored = [output["data"] for output in cell["outputs"]]
        assert [repr(value)] * len(stored) == ["".join(data["text/plain"]) for data in stored]
        if type(value).__module__.startswith("fpdb."):
            assert value._repr_html_() == "".join(stored[0]["text/html"])
    assert len(cells) > 5
