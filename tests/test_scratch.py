"""The door for what is temporary: exclusive, private, found again by the next, and whole files."""

import contextlib
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

from fpdb.errors import ClosedError, FpdbError, LockTimeoutError
from fpdb.scratch import CLAIM_FILE, Drafts, draft_file, scratch_folder

NOBODY = pwd.getpwnam("nobody").pw_uid
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts as another user")


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def as_nobody(act: Any) -> None:
    """Do something as another user."""
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.setuid(NOBODY)
            act()
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """Return a directory that all may write to, as /tmp."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and not folder.stat().st_mode & 0o001:
            folder.chmod(0o711)
    path = tmp_path / "public"
    path.mkdir()
    path.chmod(0o1777)
    return path


def killed_holder(code: str, *args: Path) -> None:
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
    with scratch_folder(tmp_path / "out") as scratch:
        assert scratch.path.parent == tmp_path
        assert mode(scratch.path) == 0o700
        with scratch.file("one") as file:
            file.write(b"data")
        assert mode(scratch.path / "one") == 0o600
        assert mode(scratch.path / "unfinished") == 0o600
        with pytest.raises(FileExistsError):
            scratch.file("one")
        (scratch.path / "deep" / "deeper").mkdir(parents=True)
        (scratch.path / "deep" / "link").symlink_to(tmp_path)
        (tmp_path / "kept").touch()
    assert names(tmp_path) == ["kept"]


def test_the_temporary_directory_is_the_place_without_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as scratch:
        assert scratch.path.parent == tmp_path


@pytest.mark.process
def test_what_a_killed_process_left_is_removed_by_the_next_of_its_name(tmp_path: Path) -> None:
    killed_holder(
        """
        with scratch_folder(Path(sys.argv[1])) as scratch:
            scratch.file("one").write(b"data")
            (scratch.path / "folder").mkdir()
            (scratch.path / "folder" / "link").symlink_to(sys.argv[2])
            print("ready", flush=True)
            sys.stdin.read(1)
            import time; time.sleep(60)
        """,
        tmp_path / "out",
        tmp_path / "elsewhere",
    )
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").touch()
    [left, other] = sorted(tmp_path.iterdir())
    with scratch_folder(tmp_path / "another"):
        assert left.exists()
    with scratch_folder(tmp_path / "out") as scratch:
        assert sorted(tmp_path.iterdir()) == sorted([scratch.path, other])
        with scratch_folder(tmp_path / "out"):  # one that is in use stays
            assert scratch.path.exists()
    assert names(tmp_path / "elsewhere") == ["kept"]


def test_a_maker_that_has_to_be_alone_is_refused_beside_another(tmp_path: Path) -> None:
    target, strange = tmp_path / "out.jsonl", tmp_path / f".out.jsonl.{'0' * 16}.new"
    strange.mkdir()
    os.mkfifo(strange / CLAIM_FILE)
    with scratch_folder(target, alone=True), scratch_folder(tmp_path / "other", alone=True):
        with (
            pytest.raises(LockTimeoutError, match="another run is writing"),
            scratch_folder(target, alone=True),
        ):
            pass
        with scratch_folder(target):
            pass
    with scratch_folder(target, alone=True):
        pass
    assert list(tmp_path.iterdir()) == [strange]


def test_a_worker_of_a_killed_process_makes_nothing_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".out.0123456789abcdef.new"
    folder.mkdir()
    (folder / "unfinished").touch()
    genuine = os.unlink

    def late(*more: Any, **options: Any) -> None:
        with contextlib.suppress(FileNotFoundError):
            (folder / "late").touch()
        genuine(*more, **options)

    monkeypatch.setattr(os, "unlink", late)
    with draft_file(tmp_path / "out"):
        pass
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    "name",
    [
        ".out.0123456789abcdef.new",
        ".out.precious.new",
        ".out.01234567.new",
        "out.part",
        ".out.1.part",
    ],
)
def test_what_fpdb_did_not_make_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis").write_text("precious")
    if name != ".out.0123456789abcdef.new":
        (tmp_path / name / "unfinished").touch()
    with draft_file(tmp_path / "out") as file:
        file.write(b"new")
    assert names(tmp_path) == sorted([name, "out"])
    assert (tmp_path / name / "thesis").read_text() == "precious"


@pytest.mark.parametrize("kind", ["dangling", "link", "pipe"])
def test_a_claim_that_is_no_file_opens_nothing(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / ".out.0123456789abcdef.new"
    folder.mkdir()
    (tmp_path / "target").touch()
    claim = folder / "unfinished"
    if kind == "pipe":
        os.mkfifo(claim)
    else:
        claim.symlink_to(tmp_path / ("absent" if kind == "dangling" else "target"))
    with draft_file(tmp_path / "out"):
        pass
    assert names(tmp_path) == sorted([folder.name, "out", "target"])
    assert names(folder) == ["unfinished"]


@needs_root
@pytest.mark.process
def test_a_folder_of_another_user_is_neither_used_nor_removed(public: Path) -> None:
    folder = public / ".out.0123456789abcdef.new"

    def prepare() -> None:
        folder.mkdir(0o777)
        (folder / "unfinished").touch()

    as_nobody(prepare)
    with draft_file(public / "out") as file:
        file.write(b"secret")
        assert names(folder) == ["unfinished"]
    assert names(public) == sorted([folder.name, "out"])


@needs_root
@pytest.mark.process
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_a_folder_that_another_user_swaps_is_refused(
    public: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    public.chmod(0o777)
    (public / "target").mkdir()
    genuine, made = os.open, []

    def swapped(path: Any, *more: Any, **options: Any) -> int:
        if str(path).startswith(".out.") and not made:
            made.append(public / path)

            def swap() -> None:
                made[0].rename(public / "away")
                if kind == "link":
                    made[0].symlink_to("target")
                else:
                    made[0].mkdir(0o700)
                    (made[0] / "his").touch()

            as_nobody(swap)
        return genuine(path, *more, **options)

    monkeypatch.setattr(os, "open", swapped)
    reason = "Not a directory" if kind == "link" else "another user replaced"
    with (
        pytest.raises(FpdbError, match=f"can't be written: {reason}") as caught,
        draft_file(public / "out"),
    ):
        raise AssertionError
    assert caught.value.hint
    assert names(public) == sorted([made[0].name, "away", "target"])
    assert names(made[0]) == ([] if kind == "link" else ["his"])


@pytest.mark.parametrize("claimed", [False, True])
def test_a_folder_that_another_maker_removes_before_it_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, claimed: bool
) -> None:
    genuine, removed = os.open, []

    def open_late(path: Any, *more: Any, **options: Any) -> int:
        if path == "unfinished" and not removed:
            opened = genuine(path, *more, **options) if claimed else None
            removed.append(Path(os.readlink(f"/proc/self/fd/{options['dir_fd']}")))
            with draft_file(tmp_path / "out") as file:
                file.write(b"quick")
            assert not removed[0].exists()
            if opened is not None:
                return opened
        return genuine(path, *more, **options)

    monkeypatch.setattr(os, "open", open_late)
    with draft_file(tmp_path / "out") as file:
        file.write(b"slow")
    assert len(removed) == 1
    assert names(tmp_path) == ["out"]
    assert (tmp_path / "out").read_bytes() == b"slow"


def test_a_file_appears_whole_with_the_mode_of_the_umask(tmp_path: Path, umask: None) -> None:
    with draft_file(tmp_path / "out") as file:
        file.write(b"new")
        [scratch] = tmp_path.iterdir()
        assert mode(scratch) == 0o700
        assert {mode(each) for each in scratch.iterdir()} == {0o600}
    assert mode(tmp_path / "out") == 0o640
    assert names(tmp_path) == ["out"]
    # A file of the user's own keeps its mode.
    (tmp_path / "out").chmod(0o600)
    with draft_file(tmp_path / "out") as file:
        file.write(b"newer")
    assert mode(tmp_path / "out") == 0o600
    assert (tmp_path / "out").read_bytes() == b"newer"


def test_all_is_on_the_disk_before_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def spy(act: str, genuine: Any) -> Any:
        def call(what: Any, *more: Any, **options: Any) -> None:
            name = os.readlink(f"/proc/self/fd/{what}") if act == "sync" else more[0]
            done.append(f"{act} {Path(name).name}")
            genuine(what, *more, **options)

        return call

    monkeypatch.setattr(os, "fsync", spy("sync", fsync))
    monkeypatch.setattr(os, "rename", spy("move", rename))
    with Drafts() as drafts:
        for target in (tmp_path / "a", tmp_path / "b", tmp_path / "folder" / "c"):
            with drafts.file(target) as file:
                file.write(target.name.encode())
        done.append("all written")
    assert done == [
        *(*["sync draft"] * 3, "all written", "move a", "move b", "move c"),
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
        assert any(name.endswith(".new") for name in names(tmp_path / "deep"))
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


@needs_root
@pytest.mark.process
@pytest.mark.parametrize("dangling", [False, True])
def test_a_strangers_link_in_a_directory_of_all_is_refused(public: Path, *, dangling: bool) -> None:
    (public.parent / "private").mkdir(0o700)
    target = public.parent / "private" / "file"
    if not dangling:
        target.write_bytes(b"precious")
    as_nobody(lambda: (public / "out").symlink_to(target))
    with (
        pytest.raises(FpdbError, match=f"it is a symbolic link of user {NOBODY}"),
        draft_file(public / "out"),
    ):
        raise AssertionError
    assert names(target.parent) == ([] if dangling else ["file"])
    assert (public / "out").is_symlink()


def test_devices_pipes_and_descriptors_are_written_as_they_are(tmp_path: Path) -> None:
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
    (tmp_path / "shown").symlink_to(f"/proc/self/fd/{log}")
    for path in (f"/dev/fd/{log}", tmp_path / "shown"):
        with draft_file(path) as file:
            file.write(b"more, ")
    os.close(log)
    assert (tmp_path / "log").read_bytes() == b"first, more, more, "
    assert names(tmp_path) == ["link", "log", "pipe", "shown"]


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


def test_a_folder_without_locks_is_used_but_never_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*_: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", unable)
    with scratch_folder(tmp_path / "out") as scratch:
        for _ in range(2):
            with draft_file(tmp_path / "out") as file:
                file.write(b"new")
        assert scratch.path.exists()
    assert names(tmp_path) == ["out"]


@needs_root
@pytest.mark.process
def test_a_directory_that_can_be_written_but_not_listed(public: Path) -> None:
    public.chmod(0o1733)

    def write() -> None:
        with draft_file(public / "out") as file:
            file.write(b"new")

    as_nobody(write)
    assert names(public) == ["out"]
