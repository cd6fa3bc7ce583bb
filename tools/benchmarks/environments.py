"""The environments of the sides, in `.bench/`: each has its pinned packages, numpy and no more."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench"


class MissingError(Exception):
    """A package could not be installed."""


def python(name, package):
    """Return the Python that has a package, after installing it if need be."""
    folder = FOLDER / name
    found, stamp = folder / "bin" / "python", folder / "installed.json"
    wanted = {"package": package, "python": sys.version.split()[0], "folder": str(folder)}
    if not _installed(stamp, wanted):
        print(f"[bench] installing {package}", file=sys.stderr, flush=True)
        stamp.unlink(missing_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(found), "-m", "pip", "--no-input", "install", *package.split(), "numpy>=2"])
        stamp.write_text(json.dumps(wanted), "utf-8")
    return found


def _installed(stamp, wanted):
    try:
        return json.loads(stamp.read_text("utf-8")) == wanted
    except (OSError, ValueError):
        return False


def _run(command):
    # A side must see its own environment only, not the one in which the bench runs.
    variables = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        command,
        check=False,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        errors = [line for line in words if "error" in line.lower()] or words or ["no message"]
        raise MissingError(errors[-1].strip())
