"""Run fuzz targets in parallel and report what they found; exit with 1 if there is anything."""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _environment import ROOT

TARGETS = (
    *("readers", "pages", "packed", "columns", "portable", "recipes", "stored", "texts", "kernels"),
    *("commands", "visits"),
)
HERE = Path(__file__).parent
KEPT = ROOT / ".fuzz"
_GRACE_SECONDS = 120


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tools/lab/fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=60, help="how long each runs; default 60")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where inputs are kept")
    parser.add_argument("--plant", default="", help="a defect that must be found")
    given = parser.parse_args(arguments)
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"found {min(unknown)}, expected some of {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is None:
        print("[fuzz] skipped: atheris isn't installed; it needs Linux and Python 3.11 to 3.14")
        return 0
    with ThreadPoolExecutor(given.jobs) as pool:
        found = list(
            pool.map(
                lambda target: fuzz(target, given.seconds, given.keep, given.plant),
                given.targets or TARGETS,
            )
        )
    return int(any(found))


def fuzz(target, seconds, keep, plant):
    start = time.monotonic()
    command = [sys.executable, HERE / "target.py", target, str(seconds), keep / target, plant]
    try:
        done = subprocess.run(
            list(map(str, command)),
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds + _GRACE_SECONDS,
        )
        code, output = done.returncode, (done.stdout + done.stderr).decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        code, output = -1, (error.stderr or b"").decode(errors="replace") + "\nit did not end"
    runs = re.findall(r"number_of_executed_units: (\d+)", output)
    outcome = "nothing" if not code else f"something, kept in {keep / target}"
    took = f"{time.monotonic() - start:.0f} s, {int(runs[-1]) if runs else 0:,} inputs"
    print(f"[fuzz] {target}: {outcome}; {took}", flush=True)
    if code:
        found = output.partition("Uncaught Python exception")[1:]
        print("".join(found)[:3000] or output[-3000:], flush=True)
    return bool(code)


if __name__ == "__main__":
    sys.exit(main())
