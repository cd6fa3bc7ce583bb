"""Measure sides in turn, each in an environment of its own in `.bench/`, which is made for it."""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from _environment import ROOT

FOLDER = ROOT / ".bench"
SIDES = Path(__file__).parent / "sides"
# The bench sets the number of threads; no library chooses it.
QUIET = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
BEGIN = time.perf_counter()


class MissingError(Exception):
    """A side failed, or its package could not be installed."""


def say(words):
    print(f"[bench] {time.perf_counter() - BEGIN:6.0f} s: {words}", file=sys.stderr, flush=True)


def python(package):
    """Return the Python that has pinned packages, numpy and no more, after installing them."""
    if not package:
        return Path(sys.executable)
    folder = FOLDER / re.sub(r"[^\w-]+", "-", package)
    found, stamp = folder / "bin" / "python", folder / "installed.json"
    wanted = {"package": package, "python": sys.version.split()[0], "folder": str(folder)}
    if not stamp.exists() or json.loads(stamp.read_text("utf-8")) != wanted:
        say(f"installing {package}")
        stamp.unlink(missing_ok=True)
        run([sys.executable, "-m", "venv", "--clear", folder])
        run([found, "-m", "pip", "--no-input", "install", *package.split(), "numpy>=2"])
        stamp.write_text(json.dumps(wanted), "utf-8")
    return found


def environment(**more):
    return {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"} | more


def run(command, timeout=None, **variables):
    """Run a command; return what it printed, or raise an error with the reason."""
    done = subprocess.run(
        list(map(str, command)),
        check=False,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in words if "error" in line.lower()] or words or ["no message"]
        raise MissingError(errors[-1].strip())
    return done.stdout


def answer_of(script, *arguments, package=None, **options):
    """Run a script of a side in its environment; return what it printed last, as JSON."""
    return json.loads(
        run([python(package), SIDES / script, *arguments], **options).splitlines()[-1]
    )


def in_turn(measures, rounds, slow=float("inf")):
    """Measure all sides in turn, so that what disturbs the machine disturbs all of them.

    Return the results of each. A side that fails is left out; one that took `slow` seconds isn't
    repeated.
    """
    found, left = {name: [] for name in measures}, dict(measures)
    for _ in range(rounds):
        for name, measure in list(left.items()):
            begun = time.perf_counter()
            try:
                found[name].append(measure())
            except (MissingError, OSError, subprocess.TimeoutExpired) as why:
                say(f"{name}: {why}")
                del left[name]
            else:
                if time.perf_counter() - begun > slow:
                    del left[name]
    return {name: results for name, results in found.items() if results}


def median(results):
    """Return the median of numbers, or of each number of some dicts."""
    if not isinstance(results[0], dict):
        return statistics.median(results)
    return {
        name: statistics.median(each[name] for each in results) if _is_number(first) else first
        for name, first in results[0].items()
    }


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def timed(work, clock=time.perf_counter):
    started = clock()
    work()
    return clock() - started


def waits(taken):
    taken = sorted(taken)
    p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    return {"seconds": sum(taken), "p50": p50, "p99": p99}


def rounds_of(count):
    return "1 round" if count == 1 else f"{count} rounds"


def written(number):
    """Write a number with three digits, or two below one, and never with an exponent."""
    if number >= 100:
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}"
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"
