"""LMDB's own structure in a data file, page by page, in plain Python that doesn't map the file."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import error as struct_error

from lmdb import verify

from fpdb.errors import FpdbError
from fpdb.storage.datafile import DATA_FILE, require_sound
from fpdb.storage.environment import Environment

_ATTEMPTS = 5


def faults(directory: Path) -> Iterator[str]:
    """Say what is wrong with the pages of a data file, their trees, and the list of free ones.

    Others may write meanwhile. If they do, what seems wrong may be a page that was used again. Then
    all is looked at once more under a snapshot, which keeps later states from being overwritten.
    """
    with ExitStack() as stack:
        for attempt in range(_ATTEMPTS):
            before = _transaction(directory)
            found = _verify(directory)
            if not found or before is None or before == _transaction(directory):
                break
            if attempt == 0:
                environment = stack.enter_context(Environment.open(directory, readonly=True))
                stack.enter_context(environment.read())
    yield from found


def _verify(directory: Path) -> list[str]:
    try:
        found: list[str] = verify.verify(directory, subdir=True)  # type: ignore[no-untyped-call]
    except verify.VerifyError as error:
        return [str(error)]
    except (ArithmeticError, LookupError, TypeError, ValueError, struct_error) as error:
        return [f"the structure can't be followed: {type(error).__name__}: {error}"]
    return found


def _transaction(directory: Path) -> int | None:
    """Give the number of the newest transaction, if the meta pages can be read."""
    name = directory / DATA_FILE
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return require_sound(descriptor, str(name)).transaction
    except FpdbError:
        return None
    finally:
        os.close(descriptor)
