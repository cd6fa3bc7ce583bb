"""Commands with little address space, in which allocations fail at any place."""

import random
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from figures import ControlError, Figures, going

import fpdb

ROUNDS = 300
DOCUMENTS = 3000
SECONDS = 300
_MIB = 1 << 20
# Below the first, Python can't import numpy. Most commands need no more than the second.
_LEAST, _ENOUGH, _MOST = 200, 450, 2048
_CONTROL_LEAST = 140  # with the first, an ingest has enough

_RUN = "import sys; from fpdb.cli import main; sys.exit(main())"
_RUN_UNGUARDED = "from fpdb.cli.app import program; program()(standalone_mode=False)"

# What each command is given in the working directory, and how many documents NEW then has.
_ACTS: dict[str, tuple[list[str], int | None]] = {
    "ingest": (["ingest", "NEW", "pages.jsonl", "page.html"], None),
    "ingest, 2 jobs": (["ingest", "NEW", "pages.jsonl", "--jobs", "2"], None),
    "query": (["query", "base.fpdb", "lines.txt", "--format", "lines"], None),
    "query, 2 jobs": (["query", "base.fpdb", "lines.txt", "--format", "lines", "-j", "2"], None),
    "pairs": (["pairs", "base.fpdb"], None),
    "clusters": (["clusters", "base.fpdb"], None),
    "load": (["load", "NEW", "base.fpdb.jsonl"], DOCUMENTS),
    "check": (["check", "base.fpdb", "--deep"], None),
    "backup": (["backup", "base.fpdb", "--output", "NEW"], DOCUMENTS),
    "compact": (["compact", "base.fpdb", "--output", "NEW"], DOCUMENTS),
}


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    errors: str


def missing() -> str:
    """Return what this torment lacks here."""
    return ""


def run(rounds: int, seed: int, work: Path) -> Figures:
    """Run commands with random limits on their address space, and judge what they leave."""
    chance = random.Random(seed)
    _prepare(work)
    control = _control(work)
    acknowledged = lost = inconsistent = 0
    notes: dict[str, object] = {}
    ends: dict[str, dict[str, int]] = {}
    total = 0
    for number in going(rounds):
        total += 1
        name = list(_ACTS)[number % len(_ACTS)]
        low, high = (_LEAST, _ENOUGH) if chance.random() < 0.6 else (_ENOUGH, _MOST)
        limit = chance.randrange(low, high)
        words, whole = _ACTS[name]
        ended = _command(work, _RUN, words, limit)
        problems = _faults(ended)
        counted, stored, found = _judge(work, ended, whole)
        problems += found
        acknowledged += counted
        lost += max(0, counted - stored)
        inconsistent += bool(problems)
        if problems:
            notes[f"{name}, {limit} MiB"] = problems
        how = "done" if ended.code == 0 else ended.errors.partition("error: ")[2][:30]
        how = re.sub(r"[\d,]+.*", "", how).strip()
        counts = ends.setdefault(name, {})
        counts[how] = counts.get(how, 0) + 1
    return Figures(
        total, acknowledged, lost, inconsistent, control=control, notes={**ends, **notes}
    )


def _prepare(work: Path) -> None:
    texts = [
        " ".join(f"word{place * 7 + number * 13}of{number % 999}" for place in range(60))
        for number in range(DOCUMENTS)
    ]
    with fpdb.create(work / "base.fpdb") as database:
        for _ in database.add_many(map(fpdb.Document, map(str, range(DOCUMENTS)), texts)):
            pass
        with (work / "base.fpdb.jsonl").open("wb") as file:
            database.dump(file)
    (work / "lines.txt").write_text("".join(f"{text}\n" for text in texts))
    (work / "pages.jsonl").write_text(
        "".join(f'{{"key": "k{number}", "text": "{text}"}}\n' for number, text in enumerate(texts))
    )
    (work / "page.html").write_text(f"<html><p>{texts[0]}</p></html>")


def _command(work: Path, code: str, words: list[str], mebibytes: int) -> Ended:
    for path in work.glob("*new.fpdb*"):
        shutil.rmtree(path)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (mebibytes * _MIB,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    done = subprocess.run(
        [sys.executable, "-c", code, *(word.replace("NEW", "new.fpdb") for word in words)],
        check=False,
        cwd=work,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        timeout=SECONDS,
        preexec_fn=limit,
    )
    return Ended(done.returncode, done.stderr)


def _faults(ended: Ended) -> list[str]:
    """Say what is wrong with the end of a command, which may only be done or an error of fpdb."""
    lines = ended.errors.splitlines()
    explained = all(any(line.startswith(word) for line in lines) for word in ("error: ", "hint: "))
    if ended.code not in {0, 3} or "Traceback" in ended.errors or (ended.code and not explained):
        return [f"it ended with {ended.code}: {ended.errors[-400:]}"]
    return []


def _judge(work: Path, ended: Ended, whole: int | None) -> tuple[int, int, list[str]]:
    """Return how many documents were acknowledged, how many are stored, and what is wrong."""
    new = work / "new.fpdb"
    found = re.search(r"added ([\d,]+)", ended.errors)
    counted = int(found[1].replace(",", "")) if found else 0
    problems = [f"it left {path.name}" for path in work.glob(".new.fpdb*")]
    stored = 0
    if new.exists():
        with fpdb.open(new, readonly=True) as database:
            stored = len(database)
            problems += [f"{problem.where}: {problem.what}" for problem in database.check()]
    if whole is not None and stored != (whole if ended.code == 0 else 0):
        problems.append(f"it ended with {ended.code} and {stored} documents")
    return counted, stored, problems


def _control(work: Path) -> str:
    """Run a command that doesn't explain its errors, until one is noticed."""
    words, _ = _ACTS["ingest"]
    for mebibytes in range(_CONTROL_LEAST, _ENOUGH, 20):
        if problems := _faults(_command(work, _RUN_UNGUARDED, words, mebibytes)):
            return f"a command without a handler was caught with {mebibytes} MiB: {problems[0]:.60}"
    raise ControlError("a command that doesn't explain its errors wasn't caught")
