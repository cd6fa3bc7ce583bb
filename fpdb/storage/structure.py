"""LMDB's own structure in a data file: its states, and its pages, without mapping the file."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import error as struct_error

from lmdb import verify

from fpdb.errors import FpdbError
from fpdb.storage import preflight
from fpdb.storage.environment import Environment
from fpdb.storage.lmdb_file import LmdbFile, require_intact
from fpdb.storage.survey import newest_state

_ATTEMPTS = 5
_GLANCES = 20
_PAUSE = 0.01


def state_faults(directory: Path) -> list[str]:
    """Return what is wrong with the meta pages, if they mislead LMDB about the newest state."""
    file = LmdbFile(preflight.open_data(directory))
    try:
        for _ in range(_GLANCES):
            before = file.meta_bytes()
            state = newest_state(file)
            # A commit of another process is no damage, and who commits has found an intact file.
            if not state.faults or file.meta_bytes() == before:
                return state.faults if state.misled else []
            time.sleep(_PAUSE)
    finally:
        file.close()
    return []


def faults(directory: Path) -> Iterator[str]:
    """Yield what is wrong with the pages of a data file, their trees, and the list of free ones.

    Others may write meanwhile. If they do, what seems wrong may be a page that was used again. Then
    all is verified once more under a snapshot, which keeps later states from being overwritten.
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
    """Return the number of the newest transaction, if the meta pages can be read."""
    descriptor = preflight.open_data(directory)
    try:
        return require_intact(descriptor, str(directory)).transaction
    except FpdbError:
        return None
    finally:
        os.close(descriptor)
