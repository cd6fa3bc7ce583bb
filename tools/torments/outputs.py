"""Commands that write files, killed at any moment: whole files or the old ones, nothing else."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

from frame import Figures, caught, going

import fpdb

DOCUMENTS = 3000
_SECONDS, _REMOVAL_SECONDS = 120, 20
_OLD = b"old\n"
_RUN = "import sys; from fpdb.cli import main; sys.exit(main())"
# Writes in place, and waits before the second half.
_UNSAFE = """
import sys, time
data = open(sys.argv[2], "rb").read()
with open(sys.argv[1], "wb") as file:
    file.write(data[:len(data) // 2])
    file.flush()
    time.sleep(60)
"""
_ACTS = {
    "export.jsonl": "export base.fpdb -o",
    "export.fpdb.jsonl.gz": "export base.fpdb --output-format portable -o",
    "pairs.parquet": "pairs base.fpdb -o",
    "pairs.csv": "copies texts.jsonl -o",
    "report.html": "report texts.jsonl -o",
    "copy.fpdb": "backup base.fpdb -o",
    "explore": "explore base.fpdb --texts texts.jsonl",
}
_FILES = [name for name in _ACTS if name not in ("copy.fpdb", "explore")]


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    chance = random.Random(seed)
    place = _Place(work)
    figures.control = caught("a program that writes in place", 1, lambda _: place.control())
    for number in going(rounds):
        name = list(_ACTS)[number % len(_ACTS)]
        problems, left = place.torment(name, chance)
        figures.add(f"{number}: {name}", problems)
        figures.count("files and folders left", str(left))


class _Place:
    """A folder with inputs and outputs, and a directory for what is temporary."""

    def __init__(self, work: Path) -> None:
        self.folder, self.temporary = work / "place", work / "temporary"
        self.folder.mkdir()
        self.temporary.mkdir()
        with (
            fpdb.create(self.folder / "base.fpdb") as database,
            open(self.folder / "texts.jsonl", "w", encoding="utf-8") as file,
        ):
            for number in range(DOCUMENTS):
                words = [f"word{n * 7 + number // 2 * 13}" for n in range(60)] + [str(number)]
                key, text = f"key {number}", " ".join(words)
                database.add(key, text)
                file.write(json.dumps({"key": key, "text": text}) + "\n")
        self.inputs = set(os.listdir(self.folder))
        self.sizes: dict[str, int] = {}
        for name in _FILES:
            self._start(name).wait(_SECONDS)
            self.sizes[name] = (self.folder / name).stat().st_size
        self.clear()

    def torment(self, name: str, chance: random.Random) -> tuple[list[str], int]:
        """Kill a command, then run it to its end; return what is wrong, and how much was left."""
        target = self.folder / name
        if old := name in _FILES and chance.random() < 0.5:
            target.write_bytes(_OLD)
        process = self._start(name)
        before = chance.random() < 0.2
        self._wait(process, began=not before)
        time.sleep(chance.random() * (0.6 if before else 0.15))
        process.kill()
        process.wait()
        left, problems = self._left(name), []
        if not self._is_whole(target) if target.exists() else old:
            problems.append("what is there is neither old nor whole")
        process = self._start(name)
        if name == "explore":  # which runs until it is ended
            # What is removed has another name meanwhile, which isn't that of the new draft.
            after, until = left, time.monotonic() + _REMOVAL_SECONDS
            while process.poll() is None and time.monotonic() < until:
                after = [each for each in self._left(name) if each in left]
                if self._drafts() and not after:
                    break
                time.sleep(0.001)
            process.kill()
            process.wait()
        else:
            process.wait(_SECONDS)
            after = self._left(name)
            if process.returncode or not self._is_whole(target):
                problems.append("the next run wrote no whole file")
        problems += [f"the next run left {each}" for each in after]
        self.clear()
        return problems, len(left)

    def control(self) -> str:
        target = self.folder / "export.jsonl"
        process = subprocess.Popen(
            [sys.executable, "-c", _UNSAFE, target, self.folder / "texts.jsonl"]
        )
        while not (target.exists() and target.stat().st_size):
            time.sleep(0.01)
        process.kill()
        process.wait()
        noticed = not self._is_whole(target)
        self.clear()
        return "a half of a file" * noticed

    def clear(self) -> None:
        for path in [*self.folder.iterdir(), *self.temporary.iterdir()]:
            if path.name not in self.inputs:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        words = _ACTS[name].split() + ([] if name == "explore" else [name])
        if name == "copy.fpdb" and (self.folder / name).exists():
            shutil.rmtree(self.folder / name)
        return subprocess.Popen(
            [sys.executable, "-c", _RUN, *words],
            cwd=self.folder,
            env={**os.environ, "TMPDIR": str(self.temporary), "DISPLAY": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _wait(self, process: "subprocess.Popen[bytes]", *, began: bool) -> None:
        while began and process.poll() is None:
            if self._drafts():
                return
            time.sleep(0.001)

    def _drafts(self) -> set[str]:
        """Return what is unfinished; Python tries out the temporary directory with other names."""
        return {name for name in self._left("") if name.endswith(".new")}

    def _left(self, name: str) -> list[str]:
        """Return what is neither an input nor the output."""
        names = {*os.listdir(self.folder), *os.listdir(self.temporary)}
        return sorted(names - self.inputs - {name})

    def _is_whole(self, target: Path) -> bool:
        """Return whether a file is the old one or complete, and a database complete."""
        if target.is_dir():
            with fpdb.open(target, readonly=True) as copy:
                return len(copy) == DOCUMENTS and not list(copy.check())
        data = target.read_bytes()
        return data == _OLD or len(data) == self.sizes[target.name]
