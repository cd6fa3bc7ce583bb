"""A Spark for the tests, started once for all of them."""

import signal
import sys
from pathlib import Path

import pytest
from tiers import TIER

# The other tiers have no pyspark to import.
collect_ignore_glob = [] if TIER == "full" else ["test_*.py"]


@pytest.fixture(scope="session")
def spark(java, tmp_path_factory):
    """Start Spark: a driver and two workers, each a process with one core."""
    import pyspark
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    # Workers write into Spark's own directory, so give it one of links.
    home = folder / "home"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "4",
        # Little enough memory for the larger tests to sort on disk.
        "spark.memory.fraction": "0.05",
        # Give up the data of a killed worker soon, and compute it again.
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
    signal.signal(signal.SIGINT, handler)  # Spark has replaced it
    yield session
    gateway = session.sparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(60)
