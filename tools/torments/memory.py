"""Commands with little address space, in which allocations fail at any place."""

import random
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from frame import Figures, caught, going

import fpdb

Ended = subprocess.CompletedProcess[str]

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


def run(figures: Figures, rounds: int, seed: int, work: Path) -> None:
    chance = random.Random(seed)
    _prepare(work)

    def attempt(number: int) -> str:
        limit = _CONTROL_LEAST + 20 * number
        problems = _faults(_command(work, _RUN_UNGUARDED, _ACTS["ingest"][0], limit))
        return f"with {limit} MiB, {problems[0]:.60}" if problems else ""

    controls = (_ENOUGH - _CONTROL_LEAST) // 20
    figures.control = caught("a command that doesn't explain its errors", controls, attempt)
    for number in going(rounds):
        name = list(_ACTS)[number % len(_ACTS)]
        low, high = (_LEAST, _ENOUGH) if chance.random() < 0.6 else (_ENOUGH, _MOST)
        limit = chance.randrange(low, high)
        words, whole = _ACTS[name]
        ended = _command(work, _RUN, words, limit)
        counted, stored, problems = _judge(work, ended, whole)
        figures.add(
            f"{name}, {limit} MiB", _faults(ended) + problems, lost=max(0, counted - stored),
            acknowledged=counted,
        )  # fmt: skip
        how = "done" if ended.returncode == 0 else ended.stderr.partition("error: ")[2][:30]
        figures.count(name, re.sub(r"[\d,]+.*", "", how).strip())


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

    return subprocess.run(
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


def _faults(ended: Ended) -> list[str]:
    """Say what is wrong with the end of a command, which may only be done or an error of fpdb."""
    lines = ended.stderr.splitlines()
    explained = all(any(line.startswith(word) for line in lines) for word in ("error: ", "hint: "))
    good = ended.returncode == 0 or (ended.returncode == 3 and explained)
    if not good or "Traceback" in ended.stderr:
        return [f"it ended with {ended.returncode}: {ended.stderr[-400:]}"]
    return []


def _judge(work: Path, ended: Ended, whole: int | None) -> tuple[int, int, list[str]]:
    new = work / "new.fpdb"
    found = re.search(r"added ([\d,]+)", ended.stderr)
    counted = int(found[1].replace(",", "")) if found else 0
    problems = [f"it left {path.name}" for path in work.glob(".new.fpdb*")]
    stored = 0
    if new.exists():
        with fpdb.open(new, readonly=True) as database:
            stored = len(database)
            problems += [f"{problem.where}: {problem.what}" for problem in database.check()]
    if whole is not None and stored != (whole if ended.returncode == 0 else 0):
        problems.append(f"it ended with {ended.returncode} and {stored} documents")
    return counted, stored, problems
