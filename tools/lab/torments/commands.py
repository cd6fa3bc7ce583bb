"""Commands that are killed while they write files, or that have little address space.

What they write is whole, or the old is still there, and an allocation that fails is an error of
fpdb.
"""

import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from frame import Figures, caught, going

import fpdb

DOCUMENTS = 3000
_SECONDS = 300
_OLD = b"old\n"
_RUN = "import sys; from fpdb.cli import main; sys.exit(main())"
_RUN_UNGUARDED = "from fpdb.cli.app import program; program()(standalone_mode=False)"
# Writes in place, and waits before the second half.
_UNSAFE = """
import sys, time
data = open("texts.jsonl", "rb").read()
with open(sys.argv[1], "wb") as file:
    file.write(data[:len(data) // 2])
    file.flush()
    time.sleep(60)
"""
_WRITING = {
    "export.jsonl": "export base.fpdb -o",
    "export.fpdb.jsonl.gz": "export base.fpdb -o",
    "pairs.parquet": "pairs base.fpdb -o",
    "pairs.csv": "copies texts.jsonl -o",
    "report.html": "report texts.jsonl -o",
    "copy.fpdb": "backup base.fpdb -o",
    "explore": "explore base.fpdb --texts texts.jsonl",
}
_FILES = [name for name in _WRITING if name not in ("copy.fpdb", "explore")]
# What each command is given; but for ingests, NEW is either complete then or not there.
_ALLOCATING = {
    "ingest": "ingest NEW texts.jsonl page.html",
    "ingest, 2 jobs": "ingest NEW texts.jsonl --jobs 2",
    "query": "query base.fpdb lines.txt --format lines",
    "query, 2 jobs": "query base.fpdb lines.txt --format lines -j 2",
    "pairs": "pairs base.fpdb",
    "clusters": "clusters base.fpdb",
    "load": "load NEW base.fpdb.jsonl",
    "check": "check base.fpdb --deep",
    "backup": "backup base.fpdb --output NEW",
    "compact": "compact base.fpdb --output NEW",
}
# Mebibytes: below the first, Python can't import numpy; most commands need no more than the second.
_LEAST, _ENOUGH, _MOST = 200, 450, 2048
_CONTROL_LEAST = 140  # with the first, an ingest has enough


class Place:
    """A folder with inputs and outputs, and a directory for what is temporary."""

    def __init__(self, work: Path) -> None:
        self.folder, self.temporary = work / "place", work / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        texts = {
            f"key {number}": " ".join(
                [*(f"word{n * 7 + number // 2 * 13}" for n in range(60)), str(number)]
            )
            for number in range(DOCUMENTS)
        }
        with fpdb.create(self.folder / "base.fpdb") as database:
            for _ in database.add_many(map(fpdb.Document, texts, texts.values())):
                pass
            with (self.folder / "base.fpdb.jsonl").open("wb") as file:
                database.dump(file)
        lines = [json.dumps({"key": key, "text": text}) for key, text in texts.items()]
        self._write("texts.jsonl", *lines)
        self._write("lines.txt", *texts.values())
        self._write("page.html", f"<html><p>{texts['key 0']}</p></html>")
        self.inputs = set(os.listdir(self.folder))

    def _write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")

    def start(
        self, words: str, code: str = _RUN, mebibytes: int = 0, **streams: Any
    ) -> "subprocess.Popen[bytes]":
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if mebibytes:
                resource.setrlimit(resource.RLIMIT_AS, (mebibytes << 20,) * 2)

        silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return subprocess.Popen(
            [sys.executable, "-c", code, *words.split()],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.temporary), "DISPLAY": ""},
            preexec_fn=limit,  # noqa: PLW1509 - there are no threads
            **(silent | streams),
        )

    def left(self, name: str = "") -> list[str]:
        """Return what is neither an input nor the output."""
        names = {*os.listdir(self.folder), *os.listdir(self.temporary)}
        return sorted(names - self.inputs - {name})

    def drafts(self) -> list[str]:
        """Return what is unfinished; Python tries out the temporary directory with other names."""
        return [name for name in self.left() if name.endswith((".fpdb-new", ".fpdb-tmp"))]

    def clear(self) -> None:
        for path in [*self.folder.iterdir(), *self.temporary.iterdir()]:
            if path.name not in self.inputs:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


# Kills


def run_killed(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    chance, place, sizes = random.Random(seed), Place(work), dict[str, int]()
    for name in _FILES:
        place.start(f"{_WRITING[name]} {name}").wait(_SECONDS)
        sizes[name] = (place.folder / name).stat().st_size
    place.clear()

    def attempt(_: int) -> str:
        target = place.folder / "export.jsonl"
        process = place.start(target.name, _UNSAFE)
        while not (target.exists() and target.stat().st_size):
            time.sleep(0.01)
        _end(process)
        noticed = not _is_whole(target, sizes)
        place.clear()
        return "a half of a file" * noticed

    figures.control = caught("a program that writes in place", 1, attempt)
    for number in going(rounds):
        name = list(_WRITING)[number % len(_WRITING)]
        problems, left = _killed(place, name, chance, sizes)
        figures.add(f"{number}: {name}", problems)
        figures.count("files and folders left", str(left))


def _killed(
    place: Place, name: str, chance: random.Random, sizes: dict[str, int]
) -> tuple[list[str], int]:
    """Kill a command, then run it to its end; return what is wrong, and how much was left."""
    target, words = place.folder / name, _WRITING[name]
    words += f" {name}" * (name != "explore")
    if old := name in _FILES and chance.random() < 0.5:
        target.write_bytes(_OLD)
    process, before = place.start(words), chance.random() < 0.2
    while not before and process.poll() is None and not place.drafts():
        time.sleep(0.001)
    time.sleep(chance.random() * (0.6 if before else 0.15))
    _end(process)
    left, problems = place.left(name), []
    if not _is_whole(target, sizes) if target.exists() else old:
        problems.append("what is there is neither old nor whole")
    if target.is_dir():
        shutil.rmtree(target)
    process = place.start(words)
    if name == "explore":  # which runs until it is ended
        after, until = left, time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            after = [each for each in place.left(name) if each in left]
            if place.drafts() and not after:
                break
            time.sleep(0.001)
        _end(process)
    else:
        process.wait(_SECONDS)
        after = place.left(name)
        if process.returncode or not _is_whole(target, sizes):
            problems.append("the next run wrote no whole file")
    problems += [f"the next run left {each}" for each in after]
    place.clear()
    return problems, len(left)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def _is_whole(target: Path, sizes: dict[str, int]) -> bool:
    """Return whether a file is the old one or complete, and a database complete."""
    if target.is_dir():
        with fpdb.open(target, readonly=True) as copy:
            return len(copy) == DOCUMENTS and not list(copy.check())
    return target.read_bytes() == _OLD or target.stat().st_size == sizes[target.name]


# Memory


def run_short(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    """Run commands with so little address space that allocations fail at any place."""
    chance, place = random.Random(seed), Place(work)

    def attempt(number: int) -> str:
        limit = _CONTROL_LEAST + 20 * number
        *_, problems = _limited(place, _ALLOCATING["ingest"], limit, _RUN_UNGUARDED)
        return f"with {limit} MiB, {problems[0]:.60}" if problems else ""

    controls = (_ENOUGH - _CONTROL_LEAST) // 20
    figures.control = caught("a command that doesn't explain its errors", controls, attempt)
    for number in going(rounds):
        name = list(_ALLOCATING)[number % len(_ALLOCATING)]
        low, high = (_LEAST, _ENOUGH) if chance.random() < 0.6 else (_ENOUGH, _MOST)
        limit = chance.randrange(low, high)
        how, counted, lost, problems = _limited(place, _ALLOCATING[name], limit)
        figures.add(f"{name}, {limit} MiB", problems, lost=lost, acknowledged=counted)
        figures.count(name, how)


def _limited(
    place: Place, words: str, mebibytes: int, code: str = _RUN
) -> tuple[str, int, int, list[str]]:
    """Return how a command ended, its documents, how many are lost, and what else is wrong."""
    place.clear()
    whole = "NEW" in words and "ingest" not in words
    process = place.start(words.replace("NEW", "new.fpdb"), code, mebibytes, stderr=subprocess.PIPE)
    said, done = process.communicate(timeout=_SECONDS)[1].decode(), process.returncode == 0
    explained = re.search("^error: ", said, re.M) and re.search("^hint: ", said, re.M)
    problems = [f"it left {name}" for name in place.left() if name.startswith(".new.fpdb")]
    if not (done or (process.returncode == 3 and explained)) or "Traceback" in said:
        problems.insert(0, f"it ended with {process.returncode}: {said[-400:]}")
    found = re.search(r"added ([\d,]+)", said)
    counted, stored = int(found[1].replace(",", "")) if found else 0, 0
    if (place.folder / "new.fpdb").exists():
        with fpdb.open(place.folder / "new.fpdb", readonly=True) as database:
            stored = len(database)
            problems += [f"{problem.where}: {problem.what}" for problem in database.check()]
    if whole and stored != (DOCUMENTS if done else 0):
        problems.append(f"it ended with {process.returncode} and {stored} documents")
    how = "done" if done else re.sub(r"[\d,]+.*", "", said.partition("error: ")[2][:30]).strip()
    return how, counted, max(0, counted - stored), problems
