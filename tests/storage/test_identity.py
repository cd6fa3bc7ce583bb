"""A handle means one database: what happens if that is moved, removed or replaced meanwhile."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fpdb.errors import ClosedError, MovedError
from fpdb.storage import Environment, environment
from fpdb.storage.drafts import NOTICED_SECONDS

Run = Callable[..., str]

NAMES = ("header", "documents")


def made(path: Path, header: bytes, who: bytes) -> Path:
    with Environment.create(path, NAMES, {"header": {b"header": header}}) as env:
        put(env, b"who", who)
    return path


def put(env: Environment, key: bytes, value: bytes) -> None:
    with env.write() as txn:
        txn.put("documents", key, value)


def get(env: Environment, key: bytes) -> bytes | None:
    with env.read() as txn:
        value = txn.get("documents", key)
        return None if value is None else bytes(value)


@pytest.fixture
def old(path: Path) -> Path:
    return made(path, b"lineage", b"old")


@pytest.fixture
def twin(tmp_path: Path) -> Path:
    """A copy of the same database, as a backup is."""
    return made(tmp_path / "twin", b"lineage", b"twin")


@pytest.fixture(params=[False, True], ids=["writable", "readonly"])
def handle(old: Path, request: pytest.FixtureRequest) -> Iterator[Environment]:
    before = set(environment._open)  # of other tests
    with Environment.open(old, readonly=request.param) as env:
        assert get(env, b"who") == b"old"
        yield env
    assert set(environment._open) == before


def write_while(env: Environment, act: Callable[[], object]) -> None:
    with env.write() as txn:
        txn.put("documents", b"a", b"1")
        act()


def noticed() -> None:
    """Wait until each read looks at its path again."""
    time.sleep(NOTICED_SECONDS)


def replace(path: Path, by: Path) -> Path:
    moved = path.with_name("moved")
    path.rename(moved)
    by.rename(path)
    noticed()
    return moved


def test_another_database_at_the_path_is_an_error(
    handle: Environment, old: Path, twin: Path
) -> None:
    moved = replace(old, twin)
    for _ in range(2):
        with pytest.raises(MovedError, match="moved, removed or replaced") as caught:
            get(handle, b"who")
        assert "db.reopen()" in caught.value.hint
    with Environment.open(old) as new:
        assert get(new, b"who") == b"twin"
    # Back in its place, it is what the handle means.
    old.rename(twin)
    moved.rename(old)
    noticed()
    assert get(handle, b"who") == b"old"


@pytest.mark.parametrize("act", [shutil.rmtree, lambda path: path.rename(path.with_name("new"))])
def test_nothing_is_acknowledged_into_a_removed_or_moved_database(
    old: Path, act: Callable[[Path], object]
) -> None:
    with Environment.open(old) as env:
        put(env, b"a", b"1")
        act(old)
        with pytest.raises(MovedError, match="moved, removed or replaced"):
            put(env, b"b", b"2")
        with pytest.raises(ClosedError):
            get(env, b"a")


def test_a_write_that_ends_in_a_removed_database_is_an_error(old: Path) -> None:
    with Environment.open(old) as env:
        with pytest.raises(MovedError, match="during a write"):
            write_while(env, lambda: shutil.rmtree(old))
        with pytest.raises(MovedError, match="removed"):
            put(env, b"a", b"1")


def test_a_snapshot_stays_what_it_was_when_its_database_is_replaced(
    handle: Environment, old: Path, twin: Path
) -> None:
    with handle.read() as txn:
        moved = replace(old, twin)
        with pytest.raises(MovedError):
            get(handle, b"who")
        shutil.rmtree(moved)
        assert bytes(txn.get("documents", b"who") or b"") == b"old"


def test_a_data_file_that_is_replaced_within_its_directory_is_an_error(
    handle: Environment, old: Path, twin: Path
) -> None:
    # Both files would share LMDB's lock file, which is made for one.
    (twin / "data.mdb").rename(old / "data.mdb")
    noticed()
    with pytest.raises(MovedError):
        get(handle, b"who")
    with pytest.raises(MovedError, match="within"):
        Environment.open(old)


def test_nothing_is_left_of_an_environment_whose_snapshot_outlived_its_handle(old: Path) -> None:
    before = set(environment._open)  # of other tests
    with Environment.open(old) as env:
        snapshot = env.read()
        snapshot.__enter__()
    assert set(environment._open) > before
    snapshot.__exit__(None, None, None)
    # Another file may get the number of its inode.
    assert set(environment._open) == before


@pytest.mark.process
@pytest.mark.parametrize("new", ["replaced", "removed"])
def test_a_forked_child_compares_too(old: Path, tmp_path: Path, new: str, run: Run) -> None:
    made(tmp_path / "new", b"lineage", b"new")
    out = run(
        """
        import os, shutil
        from fpdb.errors import MovedError
        env = Environment.open(argv[0])
        with env.read() as txn:
            pass
        os.rename(argv[0], argv[0] + ".old")
        if argv[2] != "removed":
            os.rename(argv[1], argv[0])
        if os.fork() == 0:
            for write in (False, True):
                try:
                    with (env.write() if write else env.read()) as txn:
                        print(bytes(txn.get("documents", b"who")).decode(), flush=True)
                        if write:
                            txn.put("documents", b"child", b"1")
                except MovedError as error:
                    print("MovedError", flush=True)
            os._exit(0)
        os.wait()
        """,
        old,
        tmp_path / "new",
        new,
    )
    assert out.split() == ["MovedError"] * 2
    there = [each for each in (old, Path(f"{old}.old")) if each.exists()]
    for place in there:
        with Environment.open(place, readonly=True) as env:
            assert get(env, b"child") is None


def test_a_database_that_is_replaced_a_hundred_times_leaves_no_descriptor(
    old: Path, twin: Path
) -> None:
    spare = twin.with_name("spare")
    env = Environment.open(old)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(100):
        old.rename(spare)
        twin.rename(old)
        spare.rename(twin)
        with pytest.raises(MovedError):
            put(env, b"number", b"lost")
        env = Environment.open(old)
        put(env, b"number", str(number).encode())
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    env.close()
    with Environment.open(old, readonly=True) as env:
        assert get(env, b"who") == b"old"
        assert get(env, b"number") == b"99"


def test_a_changed_map_is_taken_of_the_same_database_only(old: Path, twin: Path) -> None:
    with Environment.open(old) as env:
        shared = env._shared
        assert shared is not None
        moved = replace(old, twin)
        with pytest.raises(MovedError, match="replaced"):
            shared.open_anew()
        old.rename(twin)
        moved.rename(old)
        assert get(env, b"who") == b"old"


def test_a_file_with_the_inode_of_the_opened_one_is_another(old: Path, tmp_path: Path) -> None:
    """A forked child, which hasn't opened it again yet, doesn't keep the number of the inode."""
    other = made(tmp_path / "other", b"other", b"other")
    with Environment.open(old) as env:
        shared = env._shared
        assert shared is not None
        shared._close()
        shared.barred = True
        (old / "data.mdb").write_bytes((other / "data.mdb").read_bytes())
        for use in (lambda: get(env, b"who"), lambda: put(env, b"a", b"1")):
            with pytest.raises(MovedError):
                use()
