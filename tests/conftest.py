"""What all tests share: the settings of hypothesis, and Spark, which is started once."""

import signal
import sys
from pathlib import Path

import javas
import pytest
from hypothesis import settings

settings.register_profile("fpdb", deadline=None, derandomize=True, database=None)
settings.load_profile("fpdb")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep what needs Spark in one worker, so that there is one Spark and not several."""
    from xdist.scheduler import LoadScopeScheduling

    class OneForSpark(LoadScopeScheduling):
        """Hands all these tests to one worker, before the others, and every other by itself."""

        def _split_scope(self, nodeid):
            return "spark" if "spark" in nodeid else nodeid

    return OneForSpark(config, log)


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    """Let Spark find Java, also where the machine has none."""
    with pytest.MonkeyPatch.context() as patch:
        if not javas.usable_java():
            home = tmp_path_factory.mktemp("java") / "home"
            patch.setenv("JAVA_HOME", javas.packaged_home(home))
        yield


@pytest.fixture(scope="session")
def spark(java, tmp_path_factory):
    """A real Spark: a driver and two workers, processes of their own with one core each."""
    import pyspark
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    # Workers write into the directory of Spark itself, so this is one of its own.
    home = folder / "home"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
        # So little memory for rows that the larger tests sort on disk.
        "spark.memory.fraction": "0.05",
        # What a killed worker had is given up soon, and made again.
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "1s",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.checkpoint.dir": str(folder / "checkpoints"),
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("fpdb tests")
    handler = signal.getsignal(signal.SIGINT)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "PYSPARK_PYTHON": sys.executable,
        }.items():
            patch.setenv(name, value)
        session = builder.config(map=settings).getOrCreate()
    signal.signal(signal.SIGINT, handler)  # Spark has put one of its own in its place
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
