"""Whose a database may be, and what a path may lead to."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpdb.errors import AccessError, NotADatabaseError
from fpdb.storage import Environment

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., str]
Line = Callable[[subprocess.Popen[str]], str]

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def public(closed: Path) -> Iterator[Path]:
    """A database that other users can reach and read."""
    with tempfile.TemporaryDirectory() as folder:
        path = closed.rename(Path(folder, "db"))
        for directory in (path.parent, path):
            directory.chmod(0o755)
        for file in path.iterdir():
            file.chmod(0o644)
        yield path


def give(path: Path, owner: int) -> None:
    for file in (path, *path.iterdir()):
        os.chown(file, owner, owner)


def state(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """What is in a directory: the bytes, owner and mode of each file."""
    found = {}
    for file in path.iterdir():
        about = file.lstat()
        found[file.name] = file.read_bytes(), about.st_uid, about.st_mode
    return found


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
def test_what_is_no_file_is_refused(closed: Path, kind: str) -> None:
    (closed / "data.mdb").rename(closed / "other.mdb")
    make = {"pipe": os.mkfifo, "directory": os.mkdir, "link": lambda path: path.symlink_to(closed)}
    make[kind](closed / "data.mdb")
    for readonly in (False, True):
        with pytest.raises(NotADatabaseError, match=r"data.mdb isn't a regular file"):
            Environment.open(closed, readonly=readonly)


@pytest.mark.parametrize("readonly", [False, True])
def test_no_file_that_a_link_leads_to_is_overwritten(
    closed: Path, tmp_path: Path, readonly: bool
) -> None:
    (tmp_path / "precious").write_bytes(b"my thesis")
    (closed / "lock.mdb").unlink(missing_ok=True)
    (closed / "lock.mdb").symlink_to(tmp_path / "precious")
    with pytest.raises(NotADatabaseError, match=r"lock.mdb is a link"):
        Environment.open(closed, readonly=readonly)
    assert (tmp_path / "precious").read_bytes() == b"my thesis"


def test_a_link_to_the_directory_is_followed(closed: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(closed)
    with Environment.open(tmp_path / "link") as env, env.write() as txn:
        txn.put("documents", b"a", b"1")


def test_the_group_of_a_volume_may_write_a_directory(closed: Path) -> None:
    # The rights that Kubernetes gives it.
    closed.chmod(0o2770)
    for name in ("data.mdb", "lock.mdb"):
        (closed / name).chmod(0o660)
    with Environment.open(closed) as env, env.write() as txn:
        txn.put("documents", b"a", b"1")


@needs_root
@pytest.mark.parametrize("readonly", [False, True])
def test_another_users_database_is_refused_to_root_too(public: Path, readonly: bool) -> None:
    """The lock files of root would shut the owner out."""
    (public / "lock.mdb").unlink()
    give(public, NOBODY)
    before = state(public)
    with pytest.raises(AccessError, match=f"belongs to user {NOBODY}, and this.* user 0") as caught:
        Environment.open(public, readonly=readonly)
    assert f"sudo -u '#{NOBODY}'" in caught.value.hint
    assert "fpdb backup" in caught.value.hint
    assert state(public) == before


AS_NOBODY = """
import os
from fpdb.errors import FpdbError
os.setgid(65534); os.setuid(65534)
for readonly in (False, True):
    try:
        with Environment.open(argv[0], readonly=readonly) as env, env.read() as txn:
            print("read", txn.entries("documents"))
    except FpdbError as error:
        print(type(error).__name__, error)
"""


@needs_root
def test_another_users_database_is_refused(run: Run, public: Path) -> None:
    (public / "lock.mdb").chmod(0o666)
    before = state(public)
    refused = f"AccessError {public} belongs to user 0, and this process runs as user 65534"
    assert run(AS_NOBODY, public).splitlines() == [refused] * 2
    assert state(public) == before


READER = """
from fpdb.errors import FpdbError
try:
    with Environment.open(argv[0], readonly=True) as env, env.read() as txn:
        print("read", txn.entries("documents"), flush=True)
        input()
    print("ends well")
except FpdbError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def mounted(public: Path) -> Iterator[Path]:
    """The same database where its disk is mounted to read, as a container's volume may be."""
    place = public.with_name("mounted")
    place.mkdir()
    bind = ["mount", "--bind", str(public), str(place)]
    if os.geteuid() or subprocess.run(bind, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize(("commits", "outcome"), [(1, "ends well"), (2, "AccessError")])
def test_who_reads_from_a_disk_without_lock_files_detects_writers(
    start: Start, line: Line, public: Path, mounted: Path, commits: int, outcome: str
) -> None:
    reader = start(READER, mounted)
    assert line(reader) == "read 1000"
    with Environment.open(public) as env:
        for number in range(commits):
            with env.write() as txn:
                for key in range(1000):
                    txn.put("documents", key.to_bytes(8), number.to_bytes(100))
    out, err = reader.communicate("go on\n", timeout=30)
    assert out.startswith(outcome), out + err
    assert ("was written to while it was read" in out) == (commits > 1)


def test_a_disk_that_is_mounted_to_read_may_be_anothers(public: Path, mounted: Path) -> None:
    give(public, NOBODY)
    before = state(public)
    with Environment.open(mounted, readonly=True) as env, env.read() as txn:
        assert txn.entries("documents") == 1000
    with pytest.raises(AccessError, match="is on a read-only file system"):
        Environment.open(mounted)
    assert state(public) == before
