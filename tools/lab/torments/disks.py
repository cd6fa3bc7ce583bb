"""File systems that are made for a torment: mounted, filled, cut off and mounted again."""

import contextlib
import fcntl
import itertools
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from frame import command

SHUT_DOWN, WITHOUT_FLUSH = 0x8004587D, 2  # XFS_IOC_GOINGDOWN, also of ext4
IMAGES = ("ext4", "xfs")  # in a file
SIZES = {"xfs": 320}  # mebibytes


def missing(kind: str = "ext4") -> str:
    if os.geteuid():
        return "only root may mount"
    if kind in IMAGES and not shutil.which(f"mkfs.{kind}"):
        return f"there is no mkfs.{kind}"
    try:
        with tempfile.TemporaryDirectory() as folder, Disk(Path(folder), kind):
            return ""
    except (subprocess.CalledProcessError, OSError) as error:
        return f"{kind} can't be mounted: {error}"


class Disk:
    """A file system in an image file, or in memory; it is mounted until the end of a block."""

    def __init__(self, work: Path, kind: str, mebibytes: int = 0) -> None:
        self.place, self._image, self._kind = work / kind, work / f"{kind}.image", kind
        mebibytes = mebibytes or SIZES.get(kind, 128)
        self._size = mebibytes << 20
        source = [str(self._image)] if kind in IMAGES else [f"-osize={mebibytes}m", "fpdb-torture"]
        options = ["-o", "loop"] * (kind in IMAGES)
        self._mount = ["mount", "-t", kind, *options, *source, str(self.place)]

    def __enter__(self) -> Self:
        self.place.mkdir(exist_ok=True)
        if self._kind in IMAGES:
            with self._image.open("wb") as image:
                image.truncate(self._size)
            command(f"mkfs.{self._kind}", "-q", str(self._image))
        command(*self._mount)
        return self

    def __exit__(self, *_: object) -> None:
        # Lazily, since after a failure some process may still be there.
        with contextlib.suppress(subprocess.CalledProcessError):
            command("umount", "--lazy", str(self.place))
        self._image.unlink(missing_ok=True)

    def cut(self) -> None:
        """Shut the file system down: nothing more reaches the image."""
        descriptor = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("=I", WITHOUT_FLUSH))
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Mount it again, as after the machine or the container was started again."""
        for attempt in itertools.count(1):
            try:
                command("umount", str(self.place))
            except subprocess.CalledProcessError:  # a process that was killed may still be there
                if attempt == 50:
                    raise
                time.sleep(0.1)
            else:
                break
        command(*self._mount)
