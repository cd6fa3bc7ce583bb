"""Wait for what another process does."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds, a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
