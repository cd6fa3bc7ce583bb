"""Import the modules of a tool, which find each other beside themselves."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

LAB = Path(__file__).parents[2] / "tools" / "lab"


def modules_of(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], ModuleType]]:
    """Yield what imports a module of a tool; drop all of its modules afterwards."""
    monkeypatch.syspath_prepend(LAB / folder)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(LAB / folder)):
            del sys.modules[name]
