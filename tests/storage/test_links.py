"""Nothing of a database directory is followed, and another user's files are left as they are."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpdb.errors import AccessError, NotADatabaseError, OpenError
from fpdb.storage import Environment

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., str]
Line = Callable[[subprocess.Popen[str]], str]

NOBODY = 65534
PRECIOUS = b"a thesis\n" * 600

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A file that a link leads to."""
    file = tmp_path / "precious"
    file.write_bytes(PRECIOUS)
    return file


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
        os.chown(file, owner, owner, follow_symlinks=False)


def state(path: Path) -> dict[str, tuple[bytes, int, int]]:
    """What is in a directory: the bytes, owner and mode of each file."""
    found = {}
    for file in path.iterdir():
        about = file.lstat()
        content = os.readlink(file).encode() if file.is_symlink() else file.read_bytes()
        found[file.name] = content, about.st_uid, about.st_mode
    return found


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("name", ["lock.mdb", "fpdb.lock", "fpdb.seal"])
@pytest.mark.parametrize("there", [False, True])
def test_a_link_is_refused_and_never_followed(
    closed: Path, precious: Path, name: str, readonly: bool, there: bool
) -> None:
    (closed / name).unlink(missing_ok=True)
    (closed / name).symlink_to(precious if there else precious.with_name("new"))
    before = state(closed)
    with pytest.raises(OpenError, match=f"{name} is a symbolic link") as caught:
        Environment.open(closed, readonly=readonly, verify=lambda _: None)
    assert "remove it" in caught.value.hint
    assert precious.read_bytes() == PRECIOUS
    assert not precious.with_name("new").exists()
    assert state(closed) == before


@pytest.mark.parametrize("name", ["lock.mdb", "fpdb.lock", "fpdb.seal", "data.mdb"])
@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_what_is_no_file_is_refused(closed: Path, name: str, kind: str) -> None:
    (closed / name).unlink(missing_ok=True)
    (os.mkfifo if kind == "pipe" else os.mkdir)(closed / name)
    what = f"{name} is a directory, pipe" if name != "data.mdb" else "data.mdb isn't a regular file"
    for readonly in (False, True):
        with pytest.raises((OpenError, NotADatabaseError), match=what):
            Environment.open(closed, readonly=readonly)


def test_a_second_name_of_another_file_is_refused(closed: Path, precious: Path) -> None:
    for name in ("lock.mdb", "fpdb.lock", "fpdb.seal"):
        (closed / name).unlink(missing_ok=True)
        os.link(precious, closed / name)
        with pytest.raises(OpenError, match=f"{name} has 2 names"):
            Environment.open(closed)
        (closed / name).unlink()
    assert precious.read_bytes() == PRECIOUS
    Environment.open(closed).close()


def test_a_link_to_the_directory_is_followed(closed: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(closed)
    with Environment.open(tmp_path / "link") as env, env.write() as txn:
        txn.put("documents", b"a", b"1")


@needs_root
@pytest.mark.parametrize("mode", [0o775, 0o707])
def test_a_directory_that_others_may_write_is_only_read(closed: Path, mode: int) -> None:
    os.chown(closed, -1, NOBODY)
    closed.chmod(mode)
    with pytest.raises(AccessError, match=f"mode {mode:o}") as caught:
        Environment.open(closed)
    assert "chmod go-w" in caught.value.hint
    before = state(closed)
    with Environment.open(closed, readonly=True) as env, env.read() as txn:
        assert txn.shared.unguarded
        assert txn.entries("documents") == 1000
        # A handle that may write doesn't come by way of one that only reads.
        with pytest.raises(AccessError, match="may replace files"):
            Environment.open(closed)
    assert state(closed) == before
    closed.chmod(mode & ~0o022)
    Environment.open(closed).close()


def test_a_group_of_this_process_may_write_a_directory(closed: Path) -> None:
    # The rights that Kubernetes gives the group of a volume.
    closed.chmod(0o2770)
    for name in ("data.mdb", "lock.mdb"):
        (closed / name).chmod(0o660)
    with Environment.open(closed) as env, env.write() as txn:
        txn.put("documents", b"a", b"1")


# Databases of other users


@needs_root
def test_root_reads_without_a_trace(public: Path) -> None:
    (public / "lock.mdb").unlink(missing_ok=True)
    (public / "fpdb.seal").unlink()
    give(public, NOBODY)
    before = state(public)
    with Environment.open(public, readonly=True, verify=lambda _: None) as env, env.read() as txn:
        assert txn.entries("documents") == 1000
    assert state(public) == before
    with pytest.raises(PermissionError, match=f"belongs to user {NOBODY}"):
        Environment.open(public)


@needs_root
def test_a_lock_file_of_a_third_user_is_refused(public: Path) -> None:
    give(public, NOBODY)
    Environment.open(public, readonly=True).close()
    (public / "lock.mdb").touch()
    os.chown(public / "lock.mdb", 1, 1)
    with pytest.raises(OpenError, match=r"lock.mdb belongs to user 1, expected user 65534"):
        Environment.open(public, readonly=True)


AS_NOBODY = """
import os
from fpdb.errors import FpdbError
os.setgid(65534); os.setuid(65534)

def attempt(**options):
    try:
        with Environment.open(argv[0], **options) as env, env.read() as txn:
            unguarded = txn.shared.unguarded
            print("read", txn.entries("documents"), "without a lock file" * unguarded)
            for _ in range(int(argv[1])):
                print("waits", flush=True)
                input()
    except FpdbError as error:
        print(type(error).__name__, error, "|", error.hint)
"""


@needs_root
def test_another_users_database_is_not_written(run: Run, public: Path) -> None:
    out = run(AS_NOBODY + "attempt()", public, 0)
    assert "AccessError" in out
    assert "belongs to user 0, and this process runs as user 65534" in out


@needs_root
@pytest.mark.parametrize("lock", ["missing", "of its owner", "for all"])
def test_modes_let_another_user_read(run: Run, public: Path, lock: str) -> None:
    if lock == "missing":
        (public / "lock.mdb").unlink()
    elif lock == "for all":
        (public / "lock.mdb").chmod(0o666)
    before = state(public)
    out = run(AS_NOBODY + "attempt(readonly=True)", public, 0)
    assert out.startswith("read 1000 without a lock file")
    assert state(public) == before


def write(path: Path, times: int) -> None:
    with Environment.open(path) as env:
        for number in range(times):
            with env.write() as txn:
                for key in range(1000):
                    txn.put("documents", key.to_bytes(8), number.to_bytes(100))


@needs_root
@pytest.mark.parametrize(("commits", "outcome"), [(1, "ends well"), (2, "AccessError")])
def test_who_reads_without_a_lock_file_detects_writers(
    start: Start, line: Line, public: Path, commits: int, outcome: str
) -> None:
    script = AS_NOBODY + "attempt(readonly=True)\nprint('ends well')"
    reader = start(script, public, 1)
    assert line(reader).startswith("read 1000")
    assert line(reader) == "waits"
    write(public, commits)
    out, err = reader.communicate("go on\n", timeout=30)
    assert out.startswith(outcome), out + err
    if commits > 1:
        assert "was written to while user 65534 read it without its lock file" in out
        assert "run as its owner" in out
