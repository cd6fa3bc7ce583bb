"""System calls of a running process: listed, or made to fail or to kill, with strace."""

import contextlib
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# What can change a disk. A socket, which a worker talks over, isn't written with these.
WRITES = ["write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate"]
SYNCS = ["fsync", "fdatasync", "msync", "sync_file_range"]
NAMES = ["mkdir", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir"]
CREATES = ["openat"]
STORAGE = [*WRITES, *SYNCS, *NAMES, *CREATES]

SECONDS = 10
_LINE = re.compile(r"(\d+)\s+(\w+)\(([^\n]*)")


class Call(NamedTuple):
    """One system call of a process: its name, and the how manieth of that name it was."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} {self.number}"


@contextlib.contextmanager
def traced(pid: int, *options: str, threads: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """Trace a process during a block, or until it ends."""
    strace = ["strace", "-o", "/dev/null", *(["-f"] if threads else []), *options, "-p", str(pid)]
    process = subprocess.Popen(
        strace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        if not select.select([process.stderr], [], [], 20)[0]:
            raise RuntimeError("strace doesn't attach")
        words = process.stderr.readline()
        if b"attached" not in words:
            raise RuntimeError(f"strace doesn't attach: {words.decode(errors='replace')}")
        yield process
    finally:
        # To be ended while it buries a killed process makes strace wait for ever.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS if _dying(pid) else 0)
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # it lets go of the process
        process.communicate(timeout=20)


def _dying(pid: int) -> bool:
    """Return whether a process is a zombie by now, or has a deadly signal pending."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    pending = re.search(r"ShdPnd:\s*(\w+)", status)
    killed = pending is not None and bool(int(pending[1], 16) >> 8 & 1)
    return killed or "State:\tZ" in status or "State:\tX" in status


def injecting(call: str, what: str, when: str) -> list[str]:
    """Return strace's options that make a call fail or kill."""
    return ["-e", f"trace={call}", "-e", f"inject={call}:{what}:when={when}"]


def calls(log: Path, names: list[str]) -> list[Call]:
    """List the calls of a log that change the disk, as strace counts them."""
    counts: dict[tuple[str, str], int] = {}
    found = []
    main = ""
    for line in log.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if not match or match[2] not in names:
            continue
        main = main or match[1]
        # strace counts for each thread; other processes than ours are not meant.
        place = (match[1], match[2])
        counts[place] = counts.get(place, 0) + 1
        creates = match[2] in CREATES
        if creates and (match[1] != main or "O_CREAT" not in match[3]):
            continue
        found.append(Call(match[2], counts[place]))
    return list(dict.fromkeys(found))


def missing() -> str:
    if shutil.which("strace") is None:
        return "strace isn't installed"
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        time.sleep(0.05)
        with traced(sleeper.pid, *injecting("fsync", "error=EIO", "1")):
            return ""
    except RuntimeError as error:
        return f"strace can't be used by user {os.geteuid()} ({error})"
    finally:
        sleeper.kill()
        sleeper.wait()
