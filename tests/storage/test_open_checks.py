"""What is refused before LMDB sees it."""

import contextlib
import errno
import os
import random
from pathlib import Path
from typing import Any

import lmdb
import pytest

from fpdb.errors import (
    DamagedError,
    DatabaseExistsError,
    DatabaseNotFoundError,
    FpdbError,
    NotADatabaseError,
    OpenError,
)
from fpdb.storage import Environment, open_checks
from fpdb.storage.lmdb_file import require_intact

FOREIGN = [
    random.Random(1).randbytes(40_000),
    b"SQLite format 3\0" + bytes(9000),
    b"This is no database, only a long text. " * 500,
    bytes(40_960),
]


def refused(path: Path, kind: type[FpdbError], message: str) -> None:
    """Try to open it in both ways; what is there stays as it is."""
    before = content(path)
    for readonly in (False, True):
        with pytest.raises(kind, match=message) as caught:
            Environment.open(path, readonly=readonly)
        assert caught.value.hint
    assert content(path) == before


def content(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in [path, *path.rglob("*")] if file.is_file()}


def test_what_is_no_database(tmp_path: Path) -> None:
    refused(tmp_path / "db", DatabaseNotFoundError, "there is no database at")
    refused(tmp_path / "no" / "db", FileNotFoundError, "there is no database at")
    refused(tmp_path, NotADatabaseError, "has no data.mdb")
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("text")
    refused(tmp_path / "file", NotADatabaseError, "file is a file, expected the directory")


def test_a_file_of_another_kind(closed: Path) -> None:
    data = (closed / "data.mdb").read_bytes()
    swapped = bytearray(data)  # the byte order
    for at in (16, 4096 + 16):
        swapped[at : at + 4] = data[at : at + 4][::-1]
    for foreign in (*FOREIGN, swapped):
        (closed / "data.mdb").write_bytes(foreign)
        refused(closed, NotADatabaseError, "isn't an LMDB file of format 1 and of this machine's")
    (closed / "data.mdb").write_bytes(data[:4096] + bytes(4096) + data[8192:])
    refused(closed, DamagedError, "a meta page is damaged")


def test_the_format_of_lmdb_1(path: Path) -> None:
    lmdb.open(str(path), lib_version=1, mode=0o700).close()
    refused(path, NotADatabaseError, "isn't an LMDB file of format 1")


def test_an_lmdb_file_of_another_program(path: Path) -> None:
    lmdb.open(str(path), lib_version=0).close()
    with Environment.open(path) as env, pytest.raises(NotADatabaseError, match="no sub-database"):
        env.require(["header"])
    with lmdb.open(str(path), lib_version=0) as raw, raw.begin(write=True) as txn:
        txn.put(b"key", b"value")
    with pytest.raises(NotADatabaseError, match="other entries than fpdb's"):
        Environment.open(path)


def test_an_environment_variable_chooses_no_format(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LMDB_DEFAULT_LIB_VERSION", "1")
    Environment.create(path, ["header"]).close()
    Environment.open(path).close()


def test_a_linked_data_file(closed: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "data.mdb").symlink_to(closed / "data.mdb")
    refused(tmp_path / "linked", NotADatabaseError, "isn't a regular file")


def test_sound_files_may_end_early(tmp_path: Path) -> None:
    """Pages that were taken and given back in one transaction are never written."""
    dice = random.Random(1)
    data, short = tmp_path / "data.mdb", 0
    with lmdb.open(str(tmp_path), map_size=1 << 30, lib_version=0, sync=False) as raw:
        for _ in range(400):
            with raw.begin(write=True) as txn:
                for _ in range(dice.randrange(40)):
                    txn.put(dice.randbytes(1), bytes(dice.choice([100, 4000, 9000])))
                    txn.delete(dice.randbytes(1))
                for sign in range(dice.randrange(150)):
                    txn.put(b"passing" + bytes([sign]), bytes(4000))
                for sign in range(150):
                    txn.delete(b"passing" + bytes([sign]))
            # A second descriptor would drop LMDB's locks, were this not the only process.
            descriptor = os.open(data, os.O_RDONLY)
            newest = require_intact(descriptor, "data.mdb")
            length = (newest.last_page + 1) * newest.free.page_size
            short += length > os.fstat(descriptor).st_size
            os.close(descriptor)
    assert short


def test_create_refuses_what_is_there(closed: Path, tmp_path: Path) -> None:
    before = content(closed)
    with pytest.raises(DatabaseExistsError, match="there is a database"):
        Environment.create(closed, ["header"])
    assert content(closed) == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(DatabaseExistsError, match="holds other files"):
        Environment.create(tmp_path / "full", ["header"])
    with pytest.raises(FileExistsError, match="is a file"):
        Environment.create(tmp_path / "full" / "notes.txt", ["header"])
    with pytest.raises(DatabaseNotFoundError, match="there is no directory"):
        Environment.create(tmp_path / "no" / "db", ["header"])
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["notes.txt"]


def test_an_open_database_is_only_looked_at_by_stat(
    env: Environment, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def directories_only(name: Any, flags: int, *rest: Any, **more: Any) -> int:
        if not flags & os.O_DIRECTORY:
            raise AssertionError("opened a file of a database that is in use")
        return real(name, flags, *rest, **more)

    monkeypatch.setattr(os, "open", directories_only)
    Environment.open(path, readonly=True).close()
    with pytest.raises(DatabaseExistsError):
        Environment.create(path, ["header"])


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_network_file_systems_are_refused(
    closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    device = closed.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mounts"
    other = "27 1 999:7 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
    mounts.write_text(other + f"30 27 {number} / /mnt/a\\040b rw - {kind} host:/x rw\n")
    monkeypatch.setattr(open_checks, "MOUNTS", mounts)
    assert open_checks.file_system_of(device) == kind
    refused(closed, OpenError, f"of type {kind}, expected a local one")
    with pytest.raises(OpenError, match="expected a local one"):
        Environment.create(tmp_path / "new", ["header"])
    mounts.write_text(other)
    Environment.open(closed).close()


def test_a_disk_that_cannot_allocate_the_lock_file(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    (closed / "lock.mdb").unlink()
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    Environment.open(closed).close()
    assert (closed / "lock.mdb").stat().st_size == open_checks.LOCK_BYTES


def test_random_damage_to_the_meta_pages_raises_named_errors_only(closed: Path) -> None:
    whole = (closed / "data.mdb").read_bytes()
    dice = random.Random(7)
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(dice.randrange(1, 6)):
            data[dice.randrange(2) * 4096 + dice.randrange(152)] = dice.randrange(256)
        (closed / "data.mdb").write_bytes(data)
        descriptor = os.open(closed / "data.mdb", os.O_RDONLY)
        with contextlib.suppress(FpdbError):
            require_intact(descriptor, "data.mdb")
        os.close(descriptor)
