"""Keep the project's virtual environment in `.venv/`, for the tools beside this file.

The tools start with whatever `python3` there is, so this file uses nothing but the standard library
and no syntax that an older Python rejects before it can print the reason.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
OLDEST = (3, 11)


def start(script, arguments, *, groups):
    """Run a script of the tools in the environment, with these dependency groups."""
    ensure(groups=groups)
    return run([str(PYTHON), str(ROOT / "tools" / script), *arguments])


def ensure(*, groups=()):
    """Make or refresh `.venv/` so that it holds these dependency groups."""
    use_a_recent_python()
    with locked():
        before = read_stamp()
        version = usable_version(before)
        if version is None:
            make()
            before, version = {}, usable_version({})
        sources = sorted((ROOT / "fpdb" / "kernels").glob("*.p?[dx]"))
        wanted = {
            "root": str(ROOT),
            "python": version,
            "pyproject": digest(ROOT / "pyproject.toml"),
            # Installing builds the kernels too, in place.
            "kernels": digest(ROOT / "setup.py", *sources),
            # Several tools share the environment: what one of them installed stays for the others.
            "groups": sorted({*groups, *before.get("groups", ())}),
        }
        if wanted != before:
            install(wanted)


def use_a_recent_python():
    if sys.version_info < OLDEST:
        oldest, this = (".".join(map(str, each[:3])) for each in (OLDEST, sys.version_info))
        found = [name for name in ("python3.13", "python3.12", "python3.11") if shutil.which(name)]
        cure = f"; run {found[0]} {sys.argv[0]}" if found else ""
        sys.exit(f"error: fpdb needs Python {oldest} or newer; this is {this}{cure}")


@contextmanager
def locked():
    """Hold a lock, so that one tool at a time changes the environment."""
    # The lock is on a file that is there anyway, so `.venv/` can be made anew under it.
    with (ROOT / "pyproject.toml").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another tool to finish with .venv")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_stamp():
    """Return what the last finished install left behind, or an empty dict."""
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def digest(*files):
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def usable_version(stamp):
    """Return the version of the environment's Python, or None if it can't be used."""
    # A tree that was copied or moved still imports the package from where it was.
    if not PYTHON.exists() or stamp.get("root", str(ROOT)) != str(ROOT):
        return None
    done = run_quietly(
        [str(PYTHON), "-c", "import pip, sys; print(*sys.version_info[:3], sep='.')"]
    )
    version = done.stdout.strip()
    if done.returncode or tuple(map(int, version.split("."))) < OLDEST:
        return None
    return version


def make():
    """Make an empty environment, in place of a broken one if there is one."""
    say("replacing a .venv that can't be used" if VENV.exists() else "making .venv")
    done = run_quietly([sys.executable, "-m", "venv", "--clear", str(VENV)])
    if done.returncode:
        # Debian and Ubuntu split venv and ensurepip off their Python.
        missing = "ensurepip" in done.stdout or "No module named venv" in done.stdout
        cure = "; `apt-get install python3-venv` brings what is missing" if missing else ""
        sys.exit(f"{done.stdout}error: could not make .venv{cure}")


def install(wanted):
    """Install the project as the stamp describes it, then write the stamp."""
    STAMP.unlink(missing_ok=True)
    pip("install", "pip>=25.1")  # the first that knows --group
    say("installing " + ", ".join(["fpdb-store", *wanted["groups"]]))
    pip("install", "--editable", ".", *(f"--group={group}" for group in wanted["groups"]))
    STAMP.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def pip(*arguments):
    """Run the environment's pip, which is heard only when it fails."""
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    done = run_quietly(command)
    if done.returncode:
        sys.exit(f"{done.stdout}error: pip could not install what .venv needs; its words are above")


def run(command, **options):
    """Run a command of the environment from the project's root and return its exit code."""
    sys.stdout.flush()
    return subprocess.run(command, check=False, cwd=ROOT, env=environ(), **options).returncode


def environ():
    """Return the variables under which a shell would have activated the environment."""
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])
    variables = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV)}
    # Without bytecode, each of the hundreds of processes of the tests would compile the package.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def run_quietly(command):
    return subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def say(words):
    print("[env] " + words, flush=True)
