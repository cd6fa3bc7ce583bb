"""The door for what is temporary: private, removed by the next maker after a kill, whole files."""

import errno
import os
import pwd
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fpdb import scratch
from fpdb.errors import ClosedError, FpdbError
from fpdb.scratch import Drafts, draft_file, remove_abandoned, scratch_folder

CLAIM, FOLDER = ".out.0123456789abcdef.fpdb-new", ".out.0123456789abcdef.fpdb-tmp"


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def killed_holder(code: str, *args: Path | str) -> None:
    """Run code until it prints a line, then kill it."""
    program = "import sys\nfrom pathlib import Path\nfrom fpdb.scratch import *\n"
    program += textwrap.dedent(code)
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, *args], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)


def test_a_folder_is_private_and_goes_with_its_block(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "out") as folder:
        assert folder.parent == tmp_path
        assert mode(folder) == 0o700
        (folder / "deep" / "deeper").mkdir(parents=True)
        (folder / "deep" / "link").symlink_to(tmp_path)
        (tmp_path / "kept").touch()
    assert names(tmp_path) == ["kept"]


def test_the_temporary_directory_is_the_place_without_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as folder:
        assert folder.parent == tmp_path


@pytest.mark.process
@pytest.mark.parametrize("what", ["folder", "draft"])
def test_what_a_killed_process_left_is_removed_by_the_next_of_its_name(
    tmp_path: Path, what: str
) -> None:
    killed_holder(
        """
        with scratch_folder(Path(sys.argv[1])) as folder, draft_file(sys.argv[1]) as file:
            if sys.argv[3] == "folder":
                (folder / "one").write_bytes(b"data")
                (folder / "folder").mkdir()
                (folder / "folder" / "link").symlink_to(sys.argv[2])
            else:
                folder.rmdir()
                file.write(b"data")
                file.flush()
            print("ready", flush=True)
            import time; time.sleep(60)
        """,
        tmp_path / "out",
        tmp_path / "elsewhere",
        what,
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    left = set(names(tmp_path)) - {"elsewhere"}
    assert len(left) == (3 if what == "folder" else 2)
    with scratch_folder(tmp_path / "another"), draft_file(tmp_path / "o"):
        assert left < set(names(tmp_path))
    with scratch_folder(tmp_path / "out") as folder:
        assert not left & set(names(tmp_path))
        with scratch_folder(tmp_path / "out"):  # one that is in use stays
            assert folder.exists()
    assert names(tmp_path / "elsewhere") == ["kept"]


def test_a_folder_stays_until_its_claim_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child of the killed process makes a file while the folder is removed."""
    (tmp_path / CLAIM).touch()
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "early").touch()
    genuine = os.rmdir

    def late(*more: Any, **options: Any) -> None:
        (tmp_path / FOLDER / "late").touch()
        genuine(*more, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", late)
        remove_abandoned(tmp_path / "out")
    assert names(tmp_path) == [CLAIM, FOLDER]
    remove_abandoned(tmp_path / "out")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name", [FOLDER, "out.part", ".out.0123456789abcdef.new", ".outer.fpdb-new"]
)
def test_what_fpdb_did_not_make_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis").write_text("precious")
    with draft_file(tmp_path / "out") as file:
        file.write(b"new")
    assert names(tmp_path) == sorted([name, "out"])
    assert (tmp_path / name / "thesis").read_text() == "precious"


def test_a_claim_that_another_maker_removes_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine, claims = scratch._lock, list[str]()

    def lock_late(claim: Any, **options: Any) -> bool:
        claims.append(claim.name)
        if len(claims) == 1:
            with draft_file(tmp_path / "out") as file:
                file.write(b"quick")
            assert not os.path.exists(claims[0])
        return genuine(claim, **options)

    monkeypatch.setattr(scratch, "_lock", lock_late)
    with draft_file(tmp_path / "out") as file:
        file.write(b"slow")
    assert len(set(claims)) == 3  # the first one, that of the quick maker, and another one
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"slow"


def test_a_file_appears_whole_with_the_mode_of_the_umask(tmp_path: Path, umask: None) -> None:
    with draft_file(tmp_path / "out") as file:
        file.write(b"new")
        assert "out" not in names(tmp_path)
    assert mode(tmp_path / "out") == 0o640
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("before", [0o600, 0o444])
def test_a_file_that_is_replaced_leaves_its_mode(tmp_path: Path, before: int) -> None:
    (tmp_path / "out").touch()
    (tmp_path / "out").chmod(before)
    with draft_file(tmp_path / "out") as file:
        file.write(b"new")
        assert {mode(path) for path in tmp_path.iterdir()} == {before}
    assert mode(tmp_path / "out") == before
    assert (tmp_path / "out").read_bytes() == b"new"


def test_of_two_writers_the_last_one_stays_whole(tmp_path: Path) -> None:
    with draft_file(tmp_path / "out") as first:
        first.write(b"first, and longer")
        with draft_file(tmp_path / "out") as second:
            second.write(b"second")
        assert (tmp_path / "out").read_bytes() == b"second"
    assert (tmp_path / "out").read_bytes() == b"first, and longer"
    assert names(tmp_path) == ["out"]


def test_all_is_on_the_disk_before_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def spy(act: str, genuine: Any) -> Any:
        def call(what: Any, *more: Any, **options: Any) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{what}") if act == "sync" else more[0])
            done.append(f"{act} {path.name.split('.')[1] if path.suffix else path.name}")
            genuine(what, *more, **options)

        return call

    monkeypatch.setattr(os, "fsync", spy("sync", fsync))
    monkeypatch.setattr(os, "replace", spy("move", replace))
    with Drafts() as drafts:
        for target in (tmp_path / "a", tmp_path / "b", tmp_path / "folder" / "c"):
            with drafts.file(target) as file:
                file.write(target.name.encode())
        done.append("all written")
    assert done == [
        *("sync a", "sync b", "sync c", "all written", "move a", "move b", "move c"),
        *(f"sync {tmp_path.name}", f"sync {tmp_path.name}", "sync folder"),
    ]
    assert names(tmp_path) == ["a", "b", "folder"]
    assert names(tmp_path / "folder") == ["c"]


def test_none_moves_if_one_fails(tmp_path: Path) -> None:
    def write(drafts: Drafts) -> None:
        with drafts.file(tmp_path / "a") as file:
            file.write(b"a")
        with drafts.file(tmp_path / "b"):
            raise ZeroDivisionError

    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), Drafts() as drafts:
        write(drafts)
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "real").write_bytes(b"old")
    (tmp_path / "deep" / "other").symlink_to("real")
    (tmp_path / "link").symlink_to("deep/other")
    (tmp_path / "dangling").symlink_to(tmp_path / "made")
    with draft_file(tmp_path / "dangling") as file:
        file.write(b"made")
    assert (tmp_path / "made").read_bytes() == b"made"
    with draft_file(tmp_path / "link") as file:
        file.write(b"new")
        assert len(names(tmp_path / "deep")) == 3
    assert (tmp_path / "deep" / "real").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "deep" / "other").is_symlink()


@pytest.mark.parametrize("leads", ["absent/file", "link"])
def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path, leads: str) -> None:
    (tmp_path / "link").symlink_to(leads)
    with (
        pytest.raises(FpdbError, match="link can't be written") as caught,
        draft_file(tmp_path / "link"),
    ):
        raise AssertionError
    assert caught.value.hint
    assert names(tmp_path) == ["link"]


def test_devices_pipes_and_descriptors_are_written_as_they_are(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    os.write(1, b"first, ")
    with draft_file("/dev/stdout") as file:
        file.write(b"more")
    assert capfd.readouterr().out == "first, more"
    with draft_file("/dev/null") as file:
        file.write(b"nothing")
    with (
        pytest.raises(FpdbError, match="full can't be written: No sp"),
        draft_file("/dev/full") as f,
    ):
        f.write(b"much")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "link").symlink_to("pipe")
    with draft_file(tmp_path / "link") as file:
        file.write(b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, b"first, ")
    for path in (f"/dev/fd/{log}", f"/proc/self/fd/{log}"):
        with draft_file(path) as file:
            file.write(b"more, ")
    os.close(log)
    assert (tmp_path / "log").read_bytes() == b"first, more, more, "
    assert names(tmp_path) == ["link", "log", "pipe"]


@pytest.mark.parametrize("target", ["", "folder", "absent/file", "file/x", "a\0b", "x" * 256])
def test_a_place_that_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(FpdbError, match="can't be written: ") as caught, draft_file(target) as file:
        file.write(b"new")
    assert caught.value.hint
    assert names(tmp_path) == ["file", "folder"]


def test_errors_of_other_files_are_left_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), draft_file(tmp_path / "out"):
        (tmp_path / "absent").read_bytes()
    assert names(tmp_path) == []


def test_the_longest_names(tmp_path: Path) -> None:
    target = tmp_path / ("ü" * 127)
    for _ in range(2):
        with draft_file(target) as file:
            file.write(b"new")
    assert names(tmp_path) == [target.name]


@pytest.mark.process
def test_a_child_that_is_forked_in_the_block_changes_nothing(tmp_path: Path) -> None:
    parent, outcome = os.getpid(), ""
    try:
        with draft_file(tmp_path / "out") as file:
            file.write(b"new")
            child = os.fork()
            if child:
                os.waitpid(child, 0)
    except ClosedError:
        outcome = "refused"
    finally:
        if os.getpid() != parent:
            (tmp_path / "child").write_text(outcome)
            os._exit(0)
    assert (tmp_path / "child").read_text() == "refused"
    assert (tmp_path / "out").read_bytes() == b"new"
    assert names(tmp_path) == ["child", "out"]


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL])
def test_a_file_system_that_neither_locks_nor_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def unable(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", unable)
    monkeypatch.setattr("os.fsync", unable)
    with scratch_folder(tmp_path / "out") as folder:
        for _ in range(2):
            with draft_file(tmp_path / "out") as file:
                file.write(b"new")
        assert folder.exists()  # nobody can see whether it is in use
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_disk_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    genuine = os.fsync

    def fail(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}") == (place == "directory"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        genuine(descriptor)

    monkeypatch.setattr("os.fsync", fail)
    with (
        pytest.raises(FpdbError, match="out can't be written: Input/output error") as caught,
        draft_file(tmp_path / "out") as file,
    ):
        file.write(b"new")
    assert caught.value.hint
    assert names(tmp_path) == ["out"] * (place == "directory")


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user")
def test_a_directory_that_can_be_written_but_not_listed(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o1733)
    child = os.fork()
    if child == 0:
        try:
            os.setuid(pwd.getpwnam("nobody").pw_uid)
            with draft_file(tmp_path / "public" / "out") as file:
                file.write(b"new")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert names(tmp_path / "public") == ["out"]
