from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from modules import modules_of


@pytest.fixture
def torment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import one of the modules of the torture tool, which find each other beside themselves."""
    yield from modules_of("torments", monkeypatch)
