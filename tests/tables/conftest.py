"""What the tests of several tables share."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from fpdb.storage import Environment, WriteTransaction, number_pages
from fpdb.tables import sorted_pages


@pytest.fixture
def undone(environment: Environment) -> Callable[[], AbstractContextManager[WriteTransaction]]:
    """Begin write transactions that leave nothing behind."""

    @contextlib.contextmanager
    def begin() -> Iterator[WriteTransaction]:
        with contextlib.suppress(ZeroDivisionError), environment.write() as txn:
            yield txn
            raise ZeroDivisionError

    return begin


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let pages be so small that a few rows split them."""
    for module in (number_pages, sorted_pages):
        monkeypatch.setattr(module, "LARGEST", 200)
    return 200
