from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from modules import modules_of

from fpdb.tables import levels


@pytest.fixture
def torment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import one of the modules of the torture tool, which find each other beside themselves.

    They give small tables recent pages, for their process; the tests after them get none.
    """
    monkeypatch.setattr(levels, "_LEAST", levels._LEAST)
    yield from modules_of("torments", monkeypatch)
