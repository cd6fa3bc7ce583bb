"""The files that paths, patterns and directories name, and how many bytes they have."""

import glob
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from fpdb.errors import InputError
from fpdb.progress import Meter
from fpdb.storage.lmdb_file import DATA_FILE

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

# So begin the names of files that programs write for themselves; the last are of an open Word.
_HIDDEN = (".", "_", "~$")


class File(NamedTuple):
    """A file in a directory, its name there, and its bytes; `problem` says why it can't be read."""

    path: str
    name: str
    size: int = 0
    problem: str = ""


def walk(folder: str, left_out: Counter[str]) -> Iterator[File]:
    """Yield all regular files, sorted; leave out databases, and links that lead out.

    Files whose names begin with a dot, _ or ~$, which programs write for themselves, are left out
    too. Files that are left out are counted. A link that leads to a file of the same directory
    counts as a file, one to a folder doesn't: its files are found where they are.
    """
    real = os.path.join(os.path.realpath(folder), "")
    # A stack of its own, because a tree may be deeper than Python's.
    pending = [File(folder, "")]
    while pending:
        entry = pending.pop()
        try:
            linked = entry.name and os.path.islink(entry.path)
            if linked and not os.path.join(os.path.realpath(entry.path), "").startswith(real):
                yield entry._replace(problem="is a link that leads out of the directory")
                continue
            status = os.stat(entry.path)
            if stat.S_ISREG(status.st_mode):
                yield entry._replace(size=status.st_size)
            elif stat.S_ISDIR(status.st_mode) and not linked:
                names = sorted(os.listdir(entry.path), reverse=True)
                if DATA_FILE in names:
                    left_out["databases"] += 1
                    continue
                shown = [name for name in names if not name.startswith(_HIDDEN)]
                left_out["hidden files, or with _"] += len(names) - len(shown)
                prefix = f"{entry.name}/" if entry.name else ""
                pending += [
                    File(os.path.join(entry.path, name), f"{prefix}{name}") for name in shown
                ]
        except OSError as error:
            yield entry._replace(problem=f"can't be read: {error.strerror}")


def path_names(paths: Paths) -> list[str]:
    """Return the names of paths, of which one may be given alone, and of files that match patterns.

    As in directories, names that begin with a dot or _ match none.
    """
    names: list[str] = []
    several = isinstance(paths, Iterable) and not isinstance(paths, str)
    for name in cast("Iterable[Any]", paths) if several else [paths]:
        if not isinstance(name, str | os.PathLike):
            raise InputError(f"found {name!r:.40}, expected a path", hint="name files or folders")
        path, matching = os.fspath(name), []
        if glob.has_magic(path) and not os.path.lexists(path):
            every = sorted(glob.glob(path, recursive=True))
            matching = [path for path in every if not os.path.basename(path).startswith(_HIDDEN)]
        names += matching or [path]
    return names


def files_of(paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths of files, and of the files in directories that would be read."""
    for path in paths:
        if path != "-" and os.path.isdir(path):
            yield from (file.path for file in walk(path, Counter()))
        else:
            yield path


def size_of(*paths: str) -> int | None:
    """Return the bytes of files and directories; None if only reading would show how many."""
    total = 0
    for path in paths:
        try:
            if os.path.isdir(path):
                total += sum(file.size for file in walk(path, Counter()))
                continue
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        if path == "-" or not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total


def meter_of(name: str, paths: Sequence[str]) -> Meter:
    """Return a step that counts the bytes that are read of files and directories."""
    return Meter(name, "byte", size_of(*paths) or 0)
