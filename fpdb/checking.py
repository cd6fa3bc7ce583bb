"""Check a database in a process of its own, so that no damaged file can end the one that asks.

LMDB trusts its file. A damaged one may end the process that reads it by a signal, or never let it
come to an end; so that process is another one, and what becomes of it is part of the answer.
"""

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from fpdb import errors
from fpdb.documents import read_layout
from fpdb.errors import FormatError, FpdbError, OpenError, WorkerError
from fpdb.models import Problem
from fpdb.storage import Environment, preflight
from fpdb.storage.datafile import DATA_FILE

# What the process may take: far more than any sound database needs.
_MEMORY = 4 << 30
_SECONDS = 600
_SECONDS_A_MEGABYTE = 2

_CODE = (
    "import sys; sys.path[:] = sys.argv[3:]; from fpdb.checking import serve; "
    "serve(sys.argv[1], deep=sys.argv[2] == 'deep')"
)
# It works with one processor; libraries that would take all of them need memory for each.
_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_SHOWN = 200
_DIED = "the process that read it died of "


def check(path: str | os.PathLike[str], *, deep: bool = False) -> Iterator[Problem]:
    """Yield everything that is wrong with a database, which another process reads for it.

    However damaged its file is, this process lives on: what ends the other one is a problem as
    well, and so is what keeps the database from being opened. Whether the path leads to a database
    at all, and may be read, is asked first, and an error. No secret of a recipe is needed.

    With `deep`, LMDB's own structure is followed first, page by page, without mapping the file:
    every page must be reachable once or free. Others may read and write meanwhile.

    Nothing is read before the result is iterated; the other process ends when the iterator is
    closed.
    """
    import subprocess
    import tempfile

    directory = Path(os.path.realpath(path))
    preflight.identify(directory)
    kind = "deep" if deep else "plain"
    with (
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(  # noqa: S603 - it is this very Python
            [sys.executable, "-c", _CODE, str(directory), kind, *sys.path],
            # It ends when this is closed, however that comes about.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            env={**os.environ, **_ENVIRONMENT},
        ) as child,
    ):
        try:
            for line in child.stdout or ():
                if line.endswith(b"\n"):  # else it died in the middle
                    yield _read(line)
            code = child.wait()
        finally:
            child.kill()
        if code:
            yield from _died(code, complaints)


def was_killed(problem: Problem) -> bool:
    """Tell whether a check ended because its process was killed, which says nothing of the file."""
    return problem.what.startswith((f"{_DIED}SIGKILL", f"{_DIED}SIGTERM"))


def _read(line: bytes) -> Problem:
    message = json.loads(line)
    if "error" in message:
        raise getattr(errors, message["error"])(message["text"], hint=message["hint"])
    return Problem(message["where"], message["what"])


def _died(code: int, complaints: IO[bytes]) -> Iterator[Problem]:
    complaints.seek(0)
    lines = complaints.read().decode(errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")[:_SHOWN]
    if code > 0:
        raise WorkerError(
            f"the process that checks ended with exit code {code}: {last or 'it said nothing'}",
            hint="can this Python start, and import fpdb, as a further process?",
        )
    name = signal.Signals(-code).name
    reason = f": {last}" if last else ""
    if -code == signal.SIGXCPU:
        reason = ": it took far more time than so large a file needs"
    elif -code == signal.SIGKILL:
        reason = ": was memory short? Not all was looked at"
    yield Problem(DATA_FILE, f"{_DIED}{name}{reason}")


def serve(directory: str, *, deep: bool) -> None:
    """Check a database as the further process that `check` starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked is interrupted, and ends this
    threading.Thread(target=_end_with_caller, daemon=True).start()
    try:
        _limit(Path(directory))
        for problem in _problems(Path(directory), deep=deep):
            _send(problem._asdict())
    except (FormatError, OpenError) as error:
        _send({"error": type(error).__name__, "text": str(error), "hint": error.hint})
    except FpdbError as error:
        _send(Problem(DATA_FILE, str(error))._asdict())
    except MemoryError:
        what = "to read it takes far more memory than any sound database needs"
        _send(Problem(DATA_FILE, what)._asdict())
    except Exception as error:  # whatever damage leads to, it is a finding
        what = f"can't be read on: {type(error).__name__}: {error}"
        _send(Problem(DATA_FILE, what)._asdict())


def _end_with_caller() -> NoReturn:
    os.read(0, 1)  # nothing is ever sent
    os._exit(0)


def _limit(directory: Path) -> None:
    size = (directory / DATA_FILE).stat().st_size
    seconds = _SECONDS + _SECONDS_A_MEGABYTE * (size >> 20)
    for what, most in (
        (resource.RLIMIT_DATA, _MEMORY),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        resource.setrlimit(what, (most if hard < 0 else min(most, hard), hard))


def _problems(directory: Path, *, deep: bool) -> Iterator[Problem]:
    from fpdb import maintenance
    from fpdb.storage import structure

    for fault in structure.state_faults(directory):
        yield Problem(DATA_FILE, fault)
    if deep:
        for fault in structure.faults(directory):
            yield Problem(DATA_FILE, fault)
    with Environment.open(directory, ["header"], readonly=True) as environment:
        _, index, catalog = read_layout(environment)
        with environment.read() as txn:
            yield from maintenance.check(txn, index, catalog)


def _send(message: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
