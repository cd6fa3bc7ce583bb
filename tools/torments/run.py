"""Torment databases: kill, cut off, fill up and damage what writes them, and count what is lost."""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from figures import heed_interrupts

TORMENTS = {
    "kills": "kill -9 of one writer at random moments",
    "processes": "kill -9 among three writers and two readers",
    "calls": "a kill, EIO and ENOSPC at every storage system call",
    "interrupts": "exceptions out of signal handlers at any moment",
    "full": "a full disk, four ways",
    "power": "power cuts",
    "copies": "copies of a database under load",
    "swaps": "swaps, moves and removals of a database in use",
    "mounts": "torn copies in the place of a database, on several file systems",
    "growth": "a million replacements",
    "damage": "damaged data files: read, checked, repaired",
    "mutations": "changes aimed at the structure of a data file: noticed when, or not",
    "arrow": "Parquet and Arrow files with changed bytes",
    "outputs": "kill -9 of commands that write files",
    "deliveries": "kill -9 of dedupe with a database, and all ways to go on",
    "memory": "commands with little address space",
    "greedy": "clients of a server that send and take what they like",
}


def main() -> int:
    """Run what the command line asks for; give 1 if anything was lost or wrong."""
    parser = argparse.ArgumentParser(
        prog="tools/torture",
        description=__doc__,
        epilog="; ".join(f"{name}: {what}" for name, what in TORMENTS.items()),
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(TORMENTS)}: all")
    parser.add_argument("--rounds", type=int, help="rounds of each: as many as the docs speak of")
    parser.add_argument("--seed", type=int, help="what is random follows from it: the time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work there, and keep the files")
    parser.add_argument(
        "--scale",
        type=int,
        default=1,
        metavar="N",
        help="transactions N times as large, in kills, processes, copies and full",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    options = parser.parse_args()
    names = options.names or list(TORMENTS)
    if unknown := set(names) - set(TORMENTS):
        parser.error(f"found {', '.join(sorted(unknown))}, expected {', '.join(TORMENTS)}")
    seed = int(time.time()) if options.seed is None else options.seed
    os.environ["TORTURE_SCALE"] = str(options.scale)
    heed_interrupts()
    results = {}
    for name in names:
        if result := _torment(name, seed, options.rounds, options.keep):
            results[name] = result
        if options.json:  # an hour of work shouldn't hang on the last minute
            options.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    return 0 if all(result["good"] for result in results.values()) else 1


def _torment(name: str, seed: int, rounds: int | None, keep: Path | None) -> dict[str, Any] | None:
    torment = importlib.import_module(name)
    if missing := torment.missing():
        print(f"{name}: skipped, {missing}", flush=True)
        return None
    rounds = torment.ROUNDS if rounds is None else rounds
    print(f"{name}: {TORMENTS[name]}; {rounds} rounds, --seed {seed}", flush=True)
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # No context manager: what went wrong should be there to be looked at.
    work = Path(tempfile.mkdtemp(prefix=f"torture-{name}-", dir=keep))
    figures = torment.run(rounds, seed, work)
    seconds = round(time.monotonic() - began, 1)
    if figures.good and not keep:
        _remove(work)
    else:
        print(f"{name}: the files are in {work}", file=sys.stderr)
    result = {**figures._asdict(), "good": figures.good, "seed": seed, "seconds": seconds}
    for what, value in result.items():
        print(f"{name}: {what} {value}", flush=True)
    return result


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
