"""The files of a directory, in order, and how large they are."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a directory: its path, its name below the directory, its size, what is wrong.

    Its `identity`, the device and the inode, stays when it is moved.
    """

    path: str
    name: str
    size: int = 0
    problem: str = ""
    identity: tuple[int, int] = (0, 0)


def walk(root: str) -> Iterator[Entry]:
    """Find all regular files, sorted; hidden ones and what links lead out to are left out.

    A link that leads to a file of the same directory counts as a file, one to a folder doesn't:
    its files are found where they are.
    """
    real = os.path.join(os.path.realpath(root), "")
    # A stack of its own, because a tree may be deeper than Python's.
    pending = [Entry(root, "")]
    while pending:
        entry = pending.pop()
        try:
            linked = entry.name and os.path.islink(entry.path)
            if linked and not os.path.join(os.path.realpath(entry.path), "").startswith(real):
                yield Entry(entry.path, entry.name, 0, "is a link that leads out of the directory")
                continue
            status = os.stat(entry.path)
            if stat.S_ISREG(status.st_mode):
                identity = (status.st_dev, status.st_ino)
                yield Entry(entry.path, entry.name, status.st_size, "", identity)
            elif stat.S_ISDIR(status.st_mode) and not linked:
                names = sorted(os.listdir(entry.path), reverse=True)
                pending += [
                    Entry(os.path.join(entry.path, name), f"{entry.name}/{name}".lstrip("/"))
                    for name in names
                    if not name.startswith(".")
                ]
        except OSError as error:
            yield Entry(entry.path, entry.name, 0, f"can't be read: {error.strerror}")


def size_of(path: str) -> int | None:
    """Count the bytes of a file, or of all files of a directory; None if only reading would tell.

    They are the bytes as they lie on the disk, which `progress` of the readers counts as well.
    """
    if path == "-":
        return None
    try:
        if os.path.isdir(path):
            return sum(entry.size for entry in walk(path))
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
