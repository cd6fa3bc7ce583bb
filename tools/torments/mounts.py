"""Torn copies in the place of the database that they were copied from, on several file systems.

The database is removed and a torn copy of all its files, the seal included, is put in its place.
The copy may get the number of the inode that the seal names; it must be refused all the same.
"""

import shutil
import tempfile
from pathlib import Path

import disks
from disks import Disk
from frame import ControlError, Figures, command, going

import fpdb
from fpdb.storage.drafts import SEAL_FILE, seal

# Rounds are of each way, on each file system.
DOCUMENTS, REWRITTEN, TURNS = 500, 400, 20
FILES, FOLDER, RESTARTED = "cp saved/*", "cp -r saved", "restart; cp saved/*"
WAYS = (FILES, FOLDER, RESTARTED)


def missing() -> str:
    return disks.missing("overlay") or disks.missing("tmpfs")


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    sound, torn = work / "sound", work / "torn"
    _make(sound, torn, seed)
    for kind in disks.KINDS:
        if disks.missing(kind):
            continue
        with tempfile.TemporaryDirectory(dir=work) as folder, Disk(Path(folder), kind) as disk:
            path = disk.place / "db"
            _restore(sound, path, FILES)
            seal(path)
            figures.control = f"{_control(disk, torn)} on each file system"
            for way in WAYS:
                for number in going(rounds):
                    opened, again = _round(disk, path, sound, torn, way)
                    problems = ["a torn copy was opened"] * opened
                    figures.add(f"{kind}, {way}, {number}", problems)
                    figures.refused += not opened
                    outcomes = ["opened" if opened else "refused", *["inode again"] * again]
                    figures.count(f"{kind}, {way}", *outcomes)


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


def _control(disk: Disk, torn: Path) -> str:
    """Seal a torn copy, which must then be opened: nothing but the seal keeps it from that."""
    path = disk.place / "control"
    shutil.copytree(torn, path)
    seal(path)
    if not _opens(path):
        raise ControlError("a torn copy that is sealed was refused for another reason")
    shutil.rmtree(path)
    return "a torn copy with a seal of its own was opened"


def _round(disk: Disk, path: Path, sound: Path, torn: Path, way: str) -> tuple[bool, bool]:
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
        command("cp", "-r", str(saved), str(path))
        return
    path.mkdir()
    command("cp", *(str(file) for file in sorted(saved.iterdir())), str(path))


def _opens(path: Path) -> bool:
    try:
        fpdb.open(path).close()
    except fpdb.DamagedError:
        return False
    return True
