"""What the tests of several tables share."""

import contextlib
from collections.abc import Callable

import pytest

from fpdb.storage import Environment, WriteTransaction


@pytest.fixture
def undone(environment: Environment) -> Callable[[Callable[[WriteTransaction], None]], None]:
    """Run a test in a write transaction that leaves nothing behind."""

    class DoneError(Exception):
        pass

    def run(work: Callable[[WriteTransaction], None]) -> None:
        with contextlib.suppress(DoneError), environment.write() as txn:
            work(txn)
            raise DoneError

    return run
