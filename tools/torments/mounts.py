"""Torn copies in the place of the database that they were copied from, on several file systems.

The database is removed and a torn copy of all its files, the seal included, is put in its place.
The copy may get the number of the inode that the seal names; it must be refused all the same.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from figures import ControlError, Figures, going
from power import Disk, kinds

import fpdb
from fpdb.storage.drafts import SEAL_FILE, seal

ROUNDS = 20  # of each way, on each file system
DOCUMENTS, REWRITTEN, TURNS = 500, 400, 20
FILES, FOLDER, RESTARTED = "cp saved/*", "cp -r saved", "restart; cp saved/*"
WAYS = (FILES, FOLDER, RESTARTED)


def missing() -> str:
    """Return what this torment lacks here."""
    if os.geteuid():
        return "only root may mount"
    try:
        with tempfile.TemporaryDirectory() as folder, Overlay(Path(folder)), Memory(Path(folder)):
            return ""
    except (subprocess.CalledProcessError, OSError) as error:
        return f"nothing can be mounted: {error}"


class _Mount:
    """A file system that is mounted until the end of a block, and again by a restart."""

    place: Path
    _arguments: tuple[str, ...]

    def __enter__(self) -> Self:
        self.place.mkdir(exist_ok=True)
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        _command("umount", "--lazy", str(self.place))

    def restart(self) -> None:
        """Mount it again, as when a container or the machine is started again."""
        _command("umount", str(self.place))
        self._mount()

    def _mount(self) -> None:
        _command("mount", *self._arguments, "fpdb-torture", str(self.place))


class Overlay(_Mount):
    """An overlay, the file system of containers; its layers survive a restart."""

    def __init__(self, work: Path) -> None:
        self.place = work / "merged"
        lower, upper, inner = (work / name for name in ("lower", "upper", "inner"))
        for folder in (lower, upper, inner):
            folder.mkdir(exist_ok=True)
        layers = f"lowerdir={lower},upperdir={upper},workdir={inner}"
        self._arguments = ("-t", "overlay", "-o", layers)


class Memory(_Mount):
    """A tmpfs; it is empty after a restart."""

    def __init__(self, work: Path) -> None:
        self.place = work / "memory"
        self._arguments = ("-t", "tmpfs", "-o", "size=128m")


Mounted = Disk | Overlay | Memory


def systems() -> list[str]:
    """Name the file systems that can be mounted here."""
    return [*kinds(), "overlay", "tmpfs"]


@contextlib.contextmanager
def mounted(kind: str, work: Path) -> Iterator[Mounted]:
    """Mount a file system for a block."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        disk: Mounted
        match kind:
            case "overlay":
                disk = Overlay(Path(folder))
            case "tmpfs":
                disk = Memory(Path(folder))
            case _:
                disk = Disk(Path(folder), kind)
        with disk:
            yield disk


def _command(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def run(rounds: int, seed: int, work: Path, only: str = "") -> Figures:
    """Restore torn copies in each way on each file system, and open them."""
    sound, torn = work / "sound", work / "torn"
    _make(sound, torn, seed)
    notes: dict[str, object] = {}
    done = refused = served = 0
    controls = []
    for kind in [only] if only else systems():
        with mounted(kind, work) as disk:
            path = disk.place / "db"
            _restore(sound, path, FILES)
            seal(path)
            controls.append(f"{kind}: {_control(disk, torn)}")
            for way in WAYS:
                results = [_round(disk, path, sound, torn, way) for _ in going(rounds)]
                here = sum(not opened for opened, _ in results)
                same = sum(again for _, again in results)
                notes[f"{kind}, {way}"] = f"{here} of {len(results)} refused, inode again {same}"
                done, refused = done + len(results), refused + here
                served += len(results) - here
    return Figures(
        done,
        acknowledged=0,
        lost=0,
        inconsistent=served,
        refused=refused,
        control="; ".join(controls),
        notes=notes,
    )


def _make(sound: Path, torn: Path, seed: int) -> None:
    """Make a database, and a copy of it whose head is later than its tail."""
    recipe = fpdb.recipe("web")
    with fpdb.create(sound, recipe=recipe) as db:
        db.add_fingerprints([f"key {n}" for n in range(DOCUMENTS)], range(seed, seed + DOCUMENTS))
        early = b""
        for turn in range(TURNS):
            marks = range(turn * DOCUMENTS, turn * DOCUMENTS + REWRITTEN)
            db.add_fingerprints([f"key {n}" for n in range(REWRITTEN)], marks)
            if turn == TURNS - 4:
                early = (sound / "data.mdb").read_bytes()
    late = bytearray((sound / "data.mdb").read_bytes())
    shutil.copytree(sound, torn)
    pages = range(2 * 4096, len(early), 4096)
    changed = [at for at in pages if early[at : at + 4096] != late[at : at + 4096]]
    for at in changed[len(changed) // 2 :]:
        late[at : at + 4096] = early[at : at + 4096]
    (torn / "data.mdb").write_bytes(late)


def _control(disk: Mounted, torn: Path) -> str:
    """Seal a torn copy, which must then be opened: nothing but the seal keeps it from that."""
    path = disk.place / "control"
    shutil.copytree(torn, path)
    seal(path)
    if not _opens(path):
        raise ControlError("a torn copy that is sealed was refused for another reason")
    shutil.rmtree(path)
    return "a torn copy with a seal of its own was opened"


def _round(disk: Mounted, path: Path, sound: Path, torn: Path, way: str) -> tuple[bool, bool]:
    """Return whether a torn copy was opened, and whether it has the inode of the sound one."""
    shutil.rmtree(path)
    if way == RESTARTED:
        disk.restart()  # some count their inodes from one again
    _restore(sound, path, way)
    seal(path)
    shutil.copy(path / SEAL_FILE, torn)
    inode = (path / "data.mdb").stat().st_ino
    shutil.rmtree(path)
    if way == RESTARTED:
        disk.restart()
    _restore(torn, path, way)
    return _opens(path), (path / "data.mdb").stat().st_ino == inode


def _restore(saved: Path, path: Path, way: str) -> None:
    if way == FOLDER:
        _command("cp", "-r", str(saved), str(path))
        return
    path.mkdir()
    _command("cp", *(str(file) for file in sorted(saved.iterdir())), str(path))


def _opens(path: Path) -> bool:
    try:
        fpdb.open(path).close()
    except fpdb.DamagedError:
        return False
    return True
