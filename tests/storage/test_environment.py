"""One process: handles, transactions, threads."""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from fpdb.errors import (
    ClosedError,
    LockTimeoutError,
    StorageError,
)
from fpdb.storage import Environment, environment, open_checks


def put(env: Environment, key: bytes, value: bytes) -> None:
    with env.write() as txn:
        txn.put("documents", key, value)


def get(env: Environment, key: bytes) -> bytes | None:
    with env.read() as txn:
        value = txn.get("documents", key)
        return None if value is None else bytes(value)


def test_an_exception_undoes_the_transaction(env: Environment) -> None:
    def fail() -> None:
        with env.write() as txn:
            txn.put("documents", b"a", b"1")
            raise KeyboardInterrupt

    put(env, b"kept", b"1")
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert get(env, b"a") is None
    with env.write() as txn:
        assert txn.delete("documents", b"kept")
        assert not txn.delete("documents", b"kept")


def test_handles_of_one_directory_share_it(env: Environment, path: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(path)
    with Environment.open(tmp_path / "link") as other:
        assert other._shared is env._shared
        put(other, b"a", b"1")
        assert get(env, b"a") == b"1"
    assert get(env, b"a") == b"1"


def test_the_last_handle_closes(path: Path) -> None:
    first = Environment.create(path, ["documents"])
    second = Environment.open(path)
    first.close()
    first.close()
    put(second, b"a", b"1")
    with pytest.raises(ClosedError, match="this handle of"):
        get(first, b"a")
    with pytest.raises(ClosedError):
        put(first, b"a", b"1")
    second.close()
    lmdb.open(str(path), lib_version=0).close()


def test_a_forgotten_handle_is_closed(path: Path) -> None:
    Environment.create(path, ["documents"])
    gc.collect()
    lmdb.open(str(path), lib_version=0).close()


def test_it_cant_become_writable_under_a_reader_of_the_same_thread(closed: Path) -> None:
    with Environment.open(closed, readonly=True) as reader:
        with reader.read() as txn, Environment.open(closed) as writer:
            assert get(writer, bytes(8)) == bytes(100)
            with pytest.raises(StorageError, match="is inside a transaction") as caught:
                put(writer, b"a", b"1")
            assert "end that snapshot" in caught.value.hint
            assert txn.entries("documents") == 1000
        assert get(reader, bytes(8)) == bytes(100)
        with Environment.open(closed) as writer, reader.read():
            put(writer, b"a", b"1")


def test_a_relative_path_survives_a_change_of_directory(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(closed.parent)
    with Environment.open("db") as env:
        monkeypatch.chdir("/")
        put(env, b"a", b"1")
        assert env._shared is not None
        env._shared.open_anew()
        assert get(env, b"a") == b"1"


def test_closing_waits_for_no_reader_and_breaks_none(path: Path) -> None:
    env = Environment.create(path, ["documents"])
    put(env, b"a", b"1" * 3000)
    inside, go, seen = threading.Event(), threading.Event(), list[bytes]()

    def read() -> None:
        with env.read() as txn:
            view = txn.get("documents", b"a")
            inside.set()
            go.wait()
            assert view is not None
            seen.append(bytes(view))

    thread = threading.Thread(target=read)
    thread.start()
    inside.wait()
    env.close()
    go.set()
    thread.join()
    assert seen == [b"1" * 3000]
    lmdb.open(str(path), lib_version=0).close()


def test_a_write_transaction_within_another_is_refused_at_once(env: Environment) -> None:
    with env.write(), pytest.raises(LockTimeoutError, match="this thread already writes"):
        env.write().__enter__()
    put(env, b"a", b"1")


def test_a_thread_that_writes_too_long_is_named(env: Environment) -> None:
    inside, go = threading.Event(), threading.Event()

    def write() -> None:
        with env.write():
            inside.set()
            go.wait()

    thread = threading.Thread(target=write)
    thread.start()
    inside.wait()
    started = time.monotonic()
    with pytest.raises(LockTimeoutError, match="another thread of this process holds it") as caught:
        env.write(timeout=0.1).__enter__()
    assert 0.05 < time.monotonic() - started < 20
    assert caught.value.pid == os.getpid()
    go.set()
    thread.join()
    put(env, b"a", b"1")


def test_eight_threads_read_and_write(env: Environment, path: Path) -> None:
    """Also while handles come and go, and the environment is mapped anew."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(30):
                with Environment.open(path, readonly=number % 2 == 0) as own:
                    if number % 2:
                        put(own, bytes([number]), bytes([turn]))
                    for _ in range(20):
                        with own.read() as txn:
                            for key, value in txn.cursor("documents"):
                                assert len(bytes(key)) == len(bytes(value)) == 1
                    if number == 1 and turn % 5 == 0:
                        assert own._shared is not None
                        own._shared.open_anew()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert [get(env, bytes([n])) for n in (1, 3, 5, 7)] == [bytes([29])] * 4


def test_busy_threads_take_turns(env: Environment) -> None:
    turns, start = [0, 0, 0], threading.Barrier(3)

    def write(number: int) -> None:
        start.wait()
        while min(turns) < 100 and max(turns) < 10_000:
            with env.write():
                turns[number] += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(turns) >= 100


def test_reader_slots_run_out_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_checks, "MAX_READERS", 3)
    monkeypatch.setattr(open_checks, "LOCK_BYTES", 64 * 5)
    with Environment.create(path, ["documents"]) as env:
        transactions = [env.read() for _ in range(4)]
        for txn in transactions[:3]:
            txn.__enter__()
        with pytest.raises(StorageError, match="every reader slot"):
            transactions[3].__enter__()
        for txn in transactions[:3]:
            txn.__exit__(None, None, None)
        assert get(env, b"a") is None


def test_a_transaction_larger_than_the_map(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_checks, "LARGEST_MAP", 1 << 20)

    def fill() -> None:
        with env.write() as txn:
            for number in range(1000):
                txn.put("documents", number.to_bytes(8), bytes(4000))

    with Environment.create(path, ["documents"]) as env:
        with pytest.raises(StorageError, match="more room than the memory map") as caught:
            fill()
        assert caught.value.hint
        put(env, b"a", b"1")
        with pytest.raises(StorageError, match="more room than the memory map"):
            fill()
        monkeypatch.setattr(open_checks, "LARGEST_MAP", 1 << 30)
        fill()  # with a larger map, if one can be had
        assert get(env, b"a") == b"1"


def test_lmdbs_own_errors_dont_escape(env: Environment) -> None:
    with pytest.raises(StorageError, match="BAD_VALSIZE"), env.write() as txn:
        txn.put("documents", bytes(600), b"")
    with pytest.raises(StorageError), env.read() as reader:
        reader.get("documents", b"")
    put(env, b"a", b"1")


DIES_AS_A_READER = """
import os
env = Environment.open(argv[0], readonly=True)
txn = env.read()
txn.__enter__()
os._exit(0)
"""


def test_the_slots_of_dead_readers_are_freed(
    env: Environment, run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By opening, as here by the reader that dies, and by writing now and then."""
    run(DIES_AS_A_READER, env.path)
    run(DIES_AS_A_READER, env.path)
    assert env._shared
    raw = env._shared.environment
    assert raw
    monkeypatch.setattr(env._shared, "reader_check_due", time.monotonic() + 60)
    put(env, b"a", b"1")
    assert len(raw.readers().splitlines()) == 2  # a head, and the second of them
    monkeypatch.setattr(env._shared, "reader_check_due", time.monotonic())
    put(env, b"a", b"1")
    assert "no active readers" in raw.readers()
    assert environment.READER_CHECK_SECONDS == 1
