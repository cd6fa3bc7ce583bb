"""LMDB's own structure in a data file: its states, and its pages, without mapping the file."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import error as struct_error

from lmdb import verify

from fpdb.errors import FpdbError
from fpdb.storage import preflight, states
from fpdb.storage.datafile import DATA_FILE, require_sound
from fpdb.storage.environment import Environment
from fpdb.storage.rawfile import METAS, RawFile

_ATTEMPTS = 5
_GLANCES = 20
_PAUSE = 0.01


def state_faults(directory: Path) -> list[str]:
    """Say whether LMDB would take an older state for the newest, because a meta page is damaged."""
    file = RawFile(preflight.open_data(directory))
    try:
        for _ in range(_GLANCES):
            before = states.numbers(file)
            choice = states.choose(file, search=False)
            # What others commit meanwhile is no damage, and who does so has found a sound file.
            if not choice.faults or states.numbers(file) == before:
                return choice.faults if choice.sound == METAS else []
            time.sleep(_PAUSE)
    finally:
        file.close()
    return []


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
