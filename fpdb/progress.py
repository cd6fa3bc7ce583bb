"""Events, for whoever listens: the logger `fpdb`, and how far long work is, for one listener.

The command line shows the latter.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

_PAUSE = 0.1
T = TypeVar("T")


class WorkStep(NamedTuple):
    """A step of some work, and how much of it is done, in units of a name in the singular."""

    name: str
    done: int
    total: int
    unit: str


_listener: Callable[[WorkStep], object] | None = None
_on_wait: Callable[[str], object] | None = None


def log(level: str, message: str, *values: object) -> None:
    """Log to the logger `fpdb`, if this process has imported `logging`, which takes long."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logger = logging.getLogger("fpdb")
        if not logger.handlers:  # the program says where its messages go
            logger.addHandler(logging.NullHandler())
        logger.log(logging.getLevelName(level), message, *values)


def listen(
    function: Callable[[WorkStep], object] | None, on_wait: Callable[[str], object] | None = None
) -> None:
    """Set the functions that get the steps of this process, and what it has long been waiting for.

    Steps come several times a second.
    """
    global _listener, _on_wait
    _listener, _on_wait = function, on_wait


def announce(line: str) -> None:
    """Log a line about a long wait, and hand it to the listener, if there is one."""
    log("WARNING", "%s", line)
    if _on_wait:
        _on_wait(line)


def show(step: WorkStep) -> None:
    if _listener:
        _listener(step)


class Meter:
    """A step that counts its work, and shows the count several times a second."""

    def __init__(self, name: str, unit: str, total: int) -> None:
        self._step = name, unit, total
        self._done, self._due = 0, 0.0

    def add(self, number: int) -> None:
        self._done += number
        if time.monotonic() >= self._due:
            name, unit, total = self._step
            show(WorkStep(name, self._done, total, unit))
            self._due = time.monotonic() + _PAUSE

    def count(self, items: Iterable[T], size: Callable[[T], int] | None = None) -> Iterator[T]:
        """Yield items, and count each when it is done, as one or by its size."""
        for item in items:
            self.add(0)
            yield item
            self._done += size(item) if size else 1


def tracked(
    items: Iterable[T], name: str, unit: str, total: int, size: Callable[[T], int] | None = None
) -> Iterable[T]:
    """Return items whose reading is a step of `total` units; each is one, or has a `size`."""
    return Meter(name, unit, total).count(items, size) if _listener else items
