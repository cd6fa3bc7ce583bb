"""Several processes: forks, locks, kills, limits."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fpdb.errors import LockTimeoutError
from fpdb.storage import Environment

pytestmark = pytest.mark.process

Start = Callable[..., subprocess.Popen[str]]
Run = Callable[..., str]
Line = Callable[[subprocess.Popen[str]], str]

FORK = """
import os, threading, time
env = Environment.open(argv[0])

def put(key):
    with env.write(timeout=10) as txn:
        txn.put("documents", key, b"1")

def has(key):
    with env.read() as txn:
        return txn.get("documents", key) is not None

def fork(work):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    return child

def wait(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""

HOLD = """
import time
env = Environment.open(argv[0])
with env.write() as txn:
    txn.put("documents", b"held", b"1")
    print("holding", flush=True)
    time.sleep(60)
"""


def test_a_forked_child_reads_and_writes(closed: Path, run: Run) -> None:
    out = run(
        FORK
        + """
put(b"parent before")
def work():
    assert has(b"parent before")
    for turn in range(20):
        put(b"child %d" % turn)
    assert env._shared.pid == os.getpid()
child = fork(work)
for turn in range(20):
    put(b"parent %d" % turn)
assert wait(child) == 0
assert all(has(b"child %d" % turn) and has(b"parent %d" % turn) for turn in range(20))
assert env._shared.pid == os.getpid()
print("fine")
""",
        closed,
    )
    assert out == "fine\n"


def test_a_fork_within_transactions(closed: Path, run: Run) -> None:
    """The child's ends of the blocks neither commit nor unlock nor unpin anything."""
    out = run(
        FORK
        + """
from fpdb.errors import ClosedError
with env.read() as snapshot:
    with env.write() as txn:
        txn.put("documents", b"a", b"1")
        child = os.fork()
        if child:
            assert wait(child) == 0
            txn.put("documents", b"b", b"1")
        else:
            try:
                txn.__exit__(None, None, None)
                print("committed in the child", flush=True)
            except ClosedError as error:
                print(error, flush=True)
            snapshot.__exit__(None, None, None)
            for use in (env.read, env.write, lambda: Environment.open(argv[0])):
                try:
                    use().__enter__()
                    print("used in the child", flush=True)
                except ClosedError as error:
                    print(error, flush=True)
            env.close()
            os._exit(0)
    raw = env._shared.environment
    assert str(os.getpid()) in raw.readers(), raw.readers()
    for turn in range(50):
        with env.write() as txn:
            for number in range(1000):
                txn.put("documents", number.to_bytes(8), b"%100d" % turn)
    for number in range(1000):
        assert snapshot.get("documents", number.to_bytes(8)) == bytes(100)
    assert snapshot.get("documents", b"a") is None
assert has(b"a") and has(b"b")
assert wait(fork(lambda: put(b"c"))) == 0
assert has(b"c")
print("fine")
""",
        closed,
    )
    lines = out.splitlines()
    assert lines[-1] == "fine"
    assert "belongs to the parent process" in lines[0]
    assert all("inside a transaction when this process was forked" in line for line in lines[1:4])
    assert len(lines) == 5


def test_a_fork_while_other_threads_work(closed: Path, run: Run) -> None:
    out = run(
        FORK
        + """
stop = threading.Event()
def busy(number):
    while not stop.is_set():
        put(b"thread %d" % number)
        has(b"x")
threads = [threading.Thread(target=busy, args=(n,)) for n in range(4)]
for thread in threads:
    thread.start()
def work():
    put(b"child %d" % os.getpid())
    assert has(b"child %d" % os.getpid())
for _ in range(15):
    child = fork(work)
    assert wait(child) == 0
    assert has(b"child %d" % child)
stop.set()
for thread in threads:
    thread.join()
print("fine")
""",
        closed,
    )
    assert out == "fine\n"


def test_a_fork_during_another_threads_long_read(closed: Path, run: Run) -> None:
    out = run(
        FORK
        + """
from fpdb.storage import environment
environment.FORK_SECONDS = 0.1
inside, go = threading.Event(), threading.Event()
def read():
    with env.read():
        inside.set()
        go.wait()
thread = threading.Thread(target=read)
thread.start()
inside.wait()
assert wait(fork(lambda: has(b"a"))) == 1
go.set()
thread.join()
put(b"a")
assert wait(fork(lambda: put(b"b"))) == 0
assert has(b"b")
""",
        closed,
    )
    assert out.startswith("ClosedError")
    assert "was inside a transaction when this process was forked" in out


def test_a_child_and_its_parent_close_apart(closed: Path, run: Run) -> None:
    run(
        FORK
        + """
assert wait(fork(env.close)) == 0
put(b"a")
child = fork(lambda: (time.sleep(0.2), put(b"b")))
env.close()
assert wait(child) == 0
with Environment.open(argv[0]) as again, again.read() as txn:
    assert txn.get("documents", b"b") is not None
""",
        closed,
    )


def test_two_processes_write_in_turns(closed: Path, start: Start, line: Line) -> None:
    script = """
    env = Environment.open(argv[0])
    print("ready", flush=True)
    sys.stdin.readline()
    turns, count = 0, 0
    while count < 200:
        with env.write() as txn:
            count = int.from_bytes(txn.get("documents", b"count") or b"") + 1
            txn.put("documents", b"count", count.to_bytes(8))
        turns += 1
    print(turns)
    """
    writers = [start(script, closed) for _ in range(2)]
    for writer in writers:
        assert line(writer) == "ready"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    turns = [int(line(writer)) for writer in writers]
    with Environment.open(closed) as env, env.read() as txn:
        assert int.from_bytes(txn.get("documents", b"count") or b"") == sum(turns)
    assert min(turns) > max(turns) / 5


def test_a_holder_elsewhere_is_named_as_such(closed: Path, start: Start, line: Line) -> None:
    with Environment.open(closed) as env:
        holder = start(HOLD, closed)
        line(holder)
        record = (closed / "fpdb.lock").read_bytes()
        (closed / "fpdb.lock").write_bytes(record.replace(b" ", b" 1", 1))
        with pytest.raises(LockTimeoutError, match="of another container"):
            env.write(timeout=0).__enter__()
        (closed / "fpdb.lock").write_bytes(b"not a record")
        with pytest.raises(LockTimeoutError, match="an unknown process holds it"):
            env.write(timeout=0).__enter__()


def test_a_waiting_writer_heeds_the_interrupt(closed: Path, start: Start, line: Line) -> None:
    holder = start(HOLD, closed)
    line(holder)
    waiting = start(
        """
        import signal, time
        signal.signal(signal.SIGINT, signal.default_int_handler)
        def pause(seconds, sleep=time.sleep):
            print("waiting", flush=True)
            sleep(seconds)
        time.sleep = pause
        try:
            with Environment.open(argv[0]) as env, env.write(60):
                pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """,
        closed,
    )
    assert line(waiting) == "waiting"
    waiting.send_signal(signal.SIGINT)
    assert waiting.communicate(timeout=30)[0].split()[-1] == "interrupted"


def map_bytes(env: Environment) -> int:
    assert env._shared
    assert env._shared.environment
    return env._shared.environment.info()["map_size"]


def test_a_map_that_another_process_outgrew(closed: Path, run: Run) -> None:
    grow = """
    with Environment.open(argv[0]) as env, env.write() as txn:
        for number in range(1500):
            txn.put("documents", b"big %d" % number, bytes(4000))
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fpdb.storage.open_checks.LARGEST_MAP", 1 << 21)
        env = Environment.open(closed)
        assert map_bytes(env) == 1 << 21
    with env:
        run(grow, closed)
        with env.read() as txn:
            assert txn.entries("documents") == 2500
        with env.write() as txn:
            txn.put("documents", b"a", b"1")
        assert map_bytes(env) == 1 << 40


@pytest.mark.parametrize("way", ["file size", "tmpfs"])
def test_a_full_disk(way: str, request: pytest.FixtureRequest, tmp_path: Path, run: Run) -> None:
    out = run(
        """
        import resource
        from fpdb.errors import DiskFullError
        if argv[1] == "file size":
            resource.setrlimit(resource.RLIMIT_FSIZE, (12 << 20, 12 << 20))
        env = Environment.create(argv[0] + "/db", ["documents"])
        with env.write() as txn:
            txn.put("documents", b"first", b"1")
        for attempt in range(2):
            try:
                with env.write() as txn:
                    for number in range(5000):
                        txn.put("documents", number.to_bytes(8), bytes(4000))
            except DiskFullError as error:
                assert isinstance(error, OSError) and error.free >= 0 and error.path == env.path
                print(error, "|", error.hint)
        with env.write() as txn:
            txn.put("documents", b"second", b"1")
        with env.read() as txn:
            assert txn.entries("documents") == 2
        env.close()
        with Environment.open(argv[0] + "/db") as env, env.read() as txn:
            assert txn.get("documents", b"second") is not None
        """,
        request.getfixturevalue("small_disk") if way == "tmpfs" else tmp_path,
        way,
    )
    assert out.count("no room to write to") == 2


def test_lmdb_writes_its_lock_file_on_a_full_disk(small_disk: Path, run: Run) -> None:
    """It does so through a map: a page that isn't allocated ends the process by SIGBUS."""
    run(
        """
        import contextlib, os, threading
        from fpdb.errors import DiskFullError

        def require_full(act):
            try:
                act()
            except DiskFullError as error:
                print(error)
            else:
                raise AssertionError("there was room")

        db, lost = argv[0] + "/db", argv[0] + "/lost"
        Environment.create(lost, ["documents"]).close()
        os.remove(lost + "/lock.mdb")
        env = Environment.create(db, ["documents"])
        with open(argv[0] + "/all", "wb", 0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))

        together = threading.Barrier(200)
        def read():
            with env.read() as txn:
                together.wait()
        threads = [threading.Thread(target=read) for _ in range(200)]
        for each in threads: each.start()
        for each in threads: each.join()

        require_full(lambda: Environment.create(argv[0] + "/new", ["documents"]))
        require_full(lambda: Environment.open(lost))
        require_full(lambda: Environment.open(lost, readonly=True))
        os.remove(argv[0] + "/all")
        assert sorted(os.listdir(argv[0])) == ["db", "lost"]
        Environment.open(lost).close()
        """,
        small_disk,
    )
