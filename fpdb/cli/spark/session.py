"""Start Spark for one command and stop it again; or take the one that runs already.

Settings of this module never take the place of what a user has configured: they are handed to Java
as properties, which Spark overrides by its own files and by what is given on the command line.
"""

import contextlib
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

import fpdb
from fpdb.cli import render
from fpdb.cli.databases import require
from fpdb.cli.spark.failures import explained
from fpdb.cli.spark.options import Engine

_OLDEST_JAVA = 17
_JAVA_HINT = "install a Java of 17 or later, as openjdk-17-jre-headless, or set JAVA_HOME"
_LOGGING = Path(__file__).with_name("log4j2.properties")
# Where the driver listens if all of Spark is on this machine.
_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_HOSTNAME": "localhost"}


@contextlib.contextmanager
def started(engine: Engine) -> Iterator[tuple[SparkSession, bool]]:
    """Give a session for a block, and whether it is one of its own, which is then stopped."""
    running = SparkSession.getActiveSession()
    if running is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        given = ", ".join(engine.settings)
        require(not given, f"Spark runs already, give it to spark-submit: {given}")
    with warnings.catch_warnings():
        # What it is used for, Arrow batches, has nothing to do with pandas.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support", FutureWarning)
        if running is not None:
            with explained():
                yield running, False
            return
        # Python says by itself that it was interrupted, in so many lines, if nothing is set up.
        logging.getLogger().addHandler(logging.NullHandler())
        session = _start(engine)
        try:
            with explained():
                yield session, True
        finally:
            _stop(session)


def _start(engine: Engine) -> SparkSession:
    builder = SparkSession.builder.appName("fpdb").config(map=dict(engine.settings))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        _require_java()
        master = engine.settings.get("spark.master") or _configured().get("spark.master")
        if (master or os.environ.get("MASTER") or "local").startswith("local"):
            for name, value in _LOOPBACK.items():
                os.environ.setdefault(name, value)
        os.environ["SPARK_SUBMIT_OPTS"] = _options()
    with explained():
        return builder.getOrCreate()


def _options() -> str:
    """Say how Spark is to be, unless its own configuration says otherwise."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(render.shows_progress()).lower(),
    }
    if not (_configuration() / "log4j2.properties").exists():
        settings["log4j2.configurationFile"] = str(_LOGGING)
    own = [shlex.quote(f"-D{name}={value}") for name, value in settings.items()]
    return " ".join([*own, os.environ.get("SPARK_SUBMIT_OPTS", "")])


def _configuration() -> Path:
    """Give the directory where Spark's own configuration is, if there is any."""
    home = os.environ.get("SPARK_HOME", "")
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))


def _configured() -> dict[str, str]:
    """Read what Spark is configured with."""
    try:
        lines = (_configuration() / "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    found = (re.match(r"\s*(spark\.[^\s=]+)[\s=]+(\S+)", line) for line in lines)
    return {each[1]: each[2] for each in found if each}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    if java is None:
        where = f"in JAVA_HOME, which is {home}" if home else "on PATH, and no JAVA_HOME"
        raise fpdb.MissingExtraError(f"Spark needs Java, found none {where}", hint=_JAVA_HINT)
    done = subprocess.run(  # noqa: S603 - the Java that Spark would run
        [java, "-version"], check=False, capture_output=True, text=True
    )
    version = re.search(r'version "(\d+)[^"]*"', done.stderr)
    if version and int(version[1]) < _OLDEST_JAVA:
        raise fpdb.MissingExtraError(
            f"Spark needs Java {_OLDEST_JAVA} or later, found {version[0]} in {java}",
            hint=_JAVA_HINT,
        )


def _stop(session: SparkSession) -> None:
    """Stop Spark; its Java ends with this process. Nothing interrupts that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        # Whatever went wrong with it was an error before.
        with contextlib.suppress(Exception):
            session.stop()
    finally:
        signal.signal(signal.SIGINT, before)
