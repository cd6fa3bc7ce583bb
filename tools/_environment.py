"""Keep the project's virtual environment in `.venv/`, for the tools beside this file and their lab.

As a program it starts a script there: `_environment.py GROUP,… SCRIPT ARGUMENT…`.

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
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "installed.json"
# Where the scripts find what they share.
SHARED = [ROOT / "tools", ROOT / "tools" / "lab", ROOT / "tests" / "helpers"]
OLDEST = (3, 11)


def start(script, arguments, *, groups):
    """Run a script of the tools in the environment, with these dependency groups."""
    ensure(groups=groups)
    return run([str(PYTHON), script, *arguments], env=environ(PYTHONPATH=shared_path()))


def shared_path():
    """Return the variable PYTHONPATH under which a script finds what it shares with others."""
    return os.pathsep.join(filter(None, [*map(str, SHARED), os.environ.get("PYTHONPATH")]))


def ensure(*, groups=()):
    """Make or refresh `.venv/` so that it holds these dependency groups."""
    use_a_recent_python()
    import tomllib  # an older Python has ended

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = settings["dependency-groups"]
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
            "project": [settings[table] for table in ("project", "build-system")],
            "kernels": digest(ROOT / "setup.py", *sources),
            "packages": packages,
            # Several tools share the environment: what one of them installed stays for the others.
            "groups": sorted(included({*groups, *before.get("groups", ())}, packages)),
        }
        if wanted != before:
            install(wanted, before)


def included(groups, packages):
    """Return the names of those groups that there are, and of the groups that they include."""
    groups = set(groups) & set(packages)
    entries = [entry for group in groups for entry in packages[group]]
    further = {entry["include-group"] for entry in entries if isinstance(entry, dict)}
    return groups | (included(further, packages) if further else set())


def use_a_recent_python():
    if sys.version_info >= OLDEST:
        return
    for name in ("python3.14", "python3.13", "python3.12", "python3.11"):
        if shutil.which(name):
            os.execvp(name, [name, *sys.argv])
    oldest, this = (".".join(map(str, version[:3])) for version in (OLDEST, sys.version_info))
    sys.exit(f"error: fpdb needs Python {oldest} or newer; this is {this}")


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


def install(wanted, before):
    """Install the project as the stamp describes it, then write the stamp."""
    STAMP.unlink(missing_ok=True)
    say("installing fpdb-store for " + ", ".join(wanted["groups"]))
    entries = [entry for group in wanted["groups"] for entry in wanted["packages"][group]]
    further = [entry for entry in entries if isinstance(entry, str)]
    steps = [[*wanted["project"][0]["dependencies"], *further]]
    if {**before, "groups": wanted["groups"], "packages": wanted["packages"]} != wanted:
        # Builds the kernels, in place, which takes longer than all packages.
        steps.append(["--no-deps", "--editable", "."])
    with ThreadPoolExecutor() as threads:
        list(threads.map(pip, steps))
    # Compiling jieba warns, which would fail the test that imports it first.
    jieba = map(str, VENV.glob("lib/*/site-packages/jieba"))
    run_quietly([str(PYTHON), "-m", "compileall", "-q", *jieba])
    STAMP.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")


def pip(arguments):
    """Install by the environment's pip, which is heard only when it fails."""
    options = ["--disable-pip-version-check", "--no-input", "install"]
    # Bytecode of what is never imported would take a tenth of the time and of the disk.
    done = run_quietly([str(PYTHON), "-m", "pip", *options, "--no-compile", *arguments])
    if done.returncode:
        sys.exit(f"{done.stdout}error: pip could not install what .venv needs; its words are above")


def run(command, **options):
    """Run a command of the environment from the project's root and return its exit code."""
    sys.stdout.flush()
    return subprocess.run(
        command, check=False, cwd=ROOT, **{"env": environ(), **options}
    ).returncode


def environ(**more):
    """Return the variables under which a shell would have activated the environment."""
    path = os.pathsep.join([str(VENV / "bin"), os.environ.get("PATH", os.defpath)])
    variables = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV)}
    # Without bytecode, each of the hundreds of processes of the tests would compile the package.
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**variables, **more}


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


if __name__ == "__main__":
    sys.exit(start(sys.argv[2], sys.argv[3:], groups=sys.argv[1].split(",")))
