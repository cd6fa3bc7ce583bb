"""Torment databases: kill, cut off, fill up and damage what writes them, and count what is lost."""

import argparse
import importlib
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from frame import Figures


class Torment(NamedTuple):
    """A torment: what it does, its function, how many rounds, and the options of the function.

    `missing` of the module that it `needs` says why it can't be done here.
    """

    what: str
    run: str
    rounds: int
    options: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    needs: str = ""


CROWD = {"writers": 3, "readers": 2, "kinds": ["text"]}
TORMENTS = {
    "kills": Torment("kill -9 of one writer at random moments", "crashes.run", 1000),
    "processes": Torment("kill -9 among several processes", "crashes.run", 1000, CROWD),
    "calls": Torment("faults at every storage call", "calls.run", 10**6, needs="strace"),
    "interrupts": Torment("exceptions out of signal handlers", "interrupts.run", 100_000),
    "full": Torment("a full disk under every operation", "calls.run_without_room", 5),
    "power": Torment("power cuts", "crashes.run_cuts", 100, needs="disks"),
    "copies": Torment("copies of a database under load", "copies.run", 100),
    "replacements": Torment(
        "a database in use that is compacted, moved, removed", "replacements.run", 300
    ),
    "growth": Torment("a million replacements", "growth.run", 10**6),
    "damage": Torment("damaged data files: read, checked, repaired", "damage.run", 2000),
    "mutations": Torment("changed structure of data files", "damage.run", 384, {"aimed": True}),
    "outputs": Torment("kill -9 of commands that write files", "commands.run_killed", 300),
    "deliveries": Torment("kill -9 of dedupe with a database", "deliveries.run", 50),
    "memory": Torment("commands with little address space", "commands.run_short", 300),
    "greedy": Torment("clients of a server that take what they like", "greedy.run", 20),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tools/lab/torture",
        description=__doc__,
        epilog="; ".join(f"{name}: {each.what}" for name, each in TORMENTS.items()),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TORMENTS)}: all")
    parser.add_argument("--rounds", type=int, help="rounds of each: as many as the docs speak of")
    parser.add_argument("--seed", type=int, help="what is random follows from it: the time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work there, and keep the files")
    options = parser.parse_args()
    names = options.names or list(TORMENTS)
    if unknown := set(names) - set(TORMENTS):
        parser.error(f"found {', '.join(sorted(unknown))}, expected {', '.join(TORMENTS)}")
    seed = int(time.time()) if options.seed is None else options.seed
    bad = [name for name in names if not _is_good(name, seed, options.rounds, options.keep)]
    return int(bool(bad))


def missing(name: str) -> str:
    needs = TORMENTS[name].needs
    return str(importlib.import_module(needs).missing()) if needs else ""


def torment(name: str, rounds: int, seed: int, work: Path, **options: Any) -> Figures:
    own, figures = TORMENTS[name], Figures()
    module, _, function = own.run.partition(".")
    run = getattr(importlib.import_module(module), function)
    run(figures, rounds, seed, work, **{**own.options, **options})
    return figures


def _is_good(name: str, seed: int, rounds: int | None, keep: Path | None) -> bool:
    """Do a torment, print its figures, and return whether they are good."""
    if lack := missing(name):
        print(f"{name}: skipped, {lack}", flush=True)
        return True
    rounds = TORMENTS[name].rounds if rounds is None else rounds
    print(f"{name}: {TORMENTS[name].what}; {rounds} rounds, --seed {seed}", flush=True)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # No context manager: what went wrong should be there to be looked at.
    work = Path(tempfile.mkdtemp(prefix=f"torture-{name}-", dir=keep))
    figures = torment(name, rounds, seed, work)
    if figures.good and not keep:
        shutil.rmtree(work)
    else:
        print(f"{name}: the files are in {work}", file=sys.stderr)
    shown = {**asdict(figures), "good": figures.good, "seconds": round(time.monotonic() - began)}
    for what, value in shown.items():
        print(f"{name}: {what} {value}", flush=True)
    return figures.good


if __name__ == "__main__":
    sys.exit(main())
