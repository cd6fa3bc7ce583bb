"""Feed hostile inputs to fpdb, each in a process of its own that is measured and can be killed.

Started as a program with a folder: reads names from standard input, and answers each with a line
of JSON. The process that is measured is a fork of one in which everything is imported and every
dictionary loaded, so that what it takes above that is what the input made it take.
"""

import contextlib
import io
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import xxhash
from hostile_inputs import INPUTS, Hostile

import fpdb
from fpdb.cli import main
from fpdb.storage.format import (
    pack_header,
    require_supported,
    seed_of,
    unpack,
    unpack_header,
)

WATCHDOG_SECONDS = 60.0
_MOST_DATA = 1 << 30
_GOOD = "a good text of more than eight words follows the hostile one"
_WARM = "Warm words and 一些中文词语 for every dictionary, letters and digits 0123456789 alike."


def recipes() -> dict[str, fpdb.Recipe]:
    """Give the recipes that texts are fed to."""
    web, words = fpdb.recipe("web"), fpdb.recipe("words")
    names = ("web", "char-4", "simhash-py", "submissions", "tagged-title", "noisy")
    made = {name: fpdb.recipe(name) for name in names}
    made["tags"] = web.replace(name="tags", clean=("tags", "unicode"))
    made["jieba-hmm"] = words.replace(name="jieba-hmm", segment="jieba-hmm")
    made["jieba"] = words.replace(name="jieba")
    made["n-100"] = words.replace(name="n-100", segment="words", grams=fpdb.Grams(n=100))
    return made


RECIPES = recipes()


def _cli(*arguments: str) -> tuple[int, str]:
    """Run a command in this process, and give its exit code and what it said."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    sys.stdout, sys.stderr = streams
    sys.argv = ["fpdb", *arguments]
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    for stream in streams:
        stream.flush()
    return code, "\n".join(stream.buffer.getvalue().decode("utf-8") for stream in streams)


def ingest(folder: Path, file: str, arguments: tuple[str, ...], last: bool | str) -> str:
    """Ingest a file into a new database; the last document must be there."""
    database = folder / "x.fpdb"
    code, said = _cli("ingest", str(database), str(folder / file), *arguments)
    if code not in (0, 4):  # some records are bad
        return f"exit {code}: {said}"
    if last:
        with fpdb.open(database, readonly=True) as db:
            assert ("last" if last is True else last) in db, f"the last document is missing: {said}"
    assert len(said) < 60_000, "a hostile input makes fpdb say too much"
    return said[said.rindex("\nread ") + 1 :]


def text(folder: Path, recipes: tuple[str, ...]) -> str:
    """Fingerprint a text and a good one under several recipes."""
    hostile = (folder / "text").read_bytes().decode("utf-8", "surrogatepass")
    found = []
    for name in recipes:
        recipe = RECIPES[name]
        try:
            batch = recipe.batch([hostile, _GOOD])
            assert batch.fingerprints[1] == recipe.batch([_GOOD]).fingerprints[0]
            found.append("short" if batch.short[0] else "fine")
        except fpdb.InputError as error:
            found.append(f"error: {error}; hint: {error.hint}")
    return " | ".join(found)


def toml(folder: Path) -> str:
    """Read a recipe and use it."""
    try:
        fpdb.read_recipe(folder / "hostile.toml").batch([_GOOD])
    except fpdb.RecipeError as error:
        return f"error: {str(error)[:300]}; hint: {error.hint}"
    return "fine"


def stored(folder: Path, kind: str) -> str:
    """Read bytes whose checksum is right."""
    body = (folder / "bytes").read_bytes()
    try:
        match kind:
            case "meta":
                unpack(body, "metadata")
            case "header":
                start = pack_header({})[:8]
                checksum = xxhash.xxh3_64_digest(start + body, seed_of("header", b"header"))
                require_supported(unpack_header(start + checksum + body), readonly=True)
    except fpdb.FpdbError as error:
        return f"{type(error).__name__}: {error}"
    return "fine"


FEEDS = {"ingest": ingest, "text": text, "toml": toml, "stored": stored}


def _status(name: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def measure(hostile: Hostile, folder: Path) -> dict[str, Any]:
    """Feed one input in this process, and say how it ended and what it took."""
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + _MOST_DATA,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, start = _status("VmRSS"), time.process_time()
    with contextlib.suppress(OSError):  # forgets the highest use so far, where that is allowed
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    try:
        ended = FEEDS[hostile.feed](folder, **hostile.options)
    except BaseException:
        ended = "crash: " + traceback.format_exc()[-2000:]
    seconds = time.process_time() - start
    return {"ended": ended, "seconds": seconds, "bytes": _status("VmHWM") - before}


def run(name: str, folder: Path) -> dict[str, Any]:
    """Make one input in a process of its own, and measure what it does in another one."""
    folder.mkdir()
    hostile = INPUTS[name]
    try:
        made = _forked(lambda: {"made": str(hostile.make(folder))})
        return made if "ended" in made else _forked(lambda: measure(hostile, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forked(work: Any) -> dict[str, Any]:
    """Call a function in a fork of this process; give what it returns, or how it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            answer = work()
        except BaseException:
            answer = {"ended": "crash: " + traceback.format_exc()[-2000:], "seconds": 0, "bytes": 0}
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    answer = b""
    due = time.monotonic() + WATCHDOG_SECONDS
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while True:
            if not select.select([pipe], [], [], max(due - time.monotonic(), 0))[0]:
                os.kill(child, signal.SIGKILL)
                break
            if not (piece := pipe.read(1 << 16)):
                break
            answer += piece
    status = os.waitpid(child, 0)[1]
    if answer and not status:
        return json.loads(answer)
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
    return {"ended": f"killed by {how}", "seconds": WATCHDOG_SECONDS, "bytes": 0}


def warm_up() -> None:
    """Load what every process needs once, so that no input has to pay for it."""
    for recipe in RECIPES.values():
        recipe.batch([_WARM])


def serve(folder: Path) -> None:
    """Answer names with outcomes."""
    warm_up()
    for number, line in enumerate(sys.stdin):
        outcome = run(line.rstrip("\n"), folder / str(number))
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
