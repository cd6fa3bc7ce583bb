"""The files that a recipe names: regular ones, no larger than they may be, private when written."""

import os
import stat
from pathlib import Path


def read_bounded(path: Path, largest: int) -> bytes:
    """Read a whole file; anything else than a file, or a larger one, is a `ValueError`."""
    content, _ = read_with_mode(path, largest)
    return content


def write_private(path: Path, content: str) -> None:
    """Write a file that only its owner may read."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(number, "w", encoding="utf-8") as file:
        file.write(content)


def read_with_mode(path: Path, largest: int) -> tuple[bytes, int]:
    """Read a whole file, and say which mode the very file had that was read."""
    # Opening a pipe must not wait for a writer who never comes.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(number, "rb") as file:
        mode = os.fstat(number).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} isn't a regular file")
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"{path} has more than {largest:,} bytes")
    return content, mode
