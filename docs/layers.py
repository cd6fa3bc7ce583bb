"""Draw the layers on architecture.md: from the rules that the gate checks, and the docstrings."""

import ast
import tomllib

from _environment import ROOT
from published import write

PAGE = ROOT / "docs" / "explanation" / "architecture.md"


def picture():
    """Return the layers from the top to the bottom, each with the first line of its docstring."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    [rule] = [
        rule for rule in settings["tool"]["importlinter"]["contracts"] if rule["type"] == "layers"
    ]
    names = [name for layer in rule["layers"] for name in layer.replace(" | ", " |\n").split("\n")]
    lines = [f"{name:16}{job(name.removesuffix(' |'))}" for name in names]
    return "\n".join(["```text", *lines, "```"])


def job(name):
    path = ROOT / "fpdb" / name
    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.get_docstring(ast.parse(module.read_text("utf-8"))).splitlines()[0]


if __name__ == "__main__":
    write(PAGE, "layers", picture())
