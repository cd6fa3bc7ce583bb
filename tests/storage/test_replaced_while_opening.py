"""A database that takes the place of another one while that is opened, and is open here already."""

import subprocess
import sys

import pytest

import fpdb
from fpdb.storage import environment

READERS = """
import lmdb, os, sys
with lmdb.open(sys.argv[1], readonly=True, lib_version=0, max_dbs=64) as environment:
    environment.reader_check()
    print(str(os.getppid()) in environment.readers())
"""


@pytest.mark.process
def test_its_snapshots_are_kept(tmp_path, monkeypatch):
    """LMDB's locks go with any descriptor of the lock file that their process closes."""
    one, other, away = tmp_path / "one.fpdb", tmp_path / "other.fpdb", tmp_path / "away.fpdb"
    for path in (one, other):
        fpdb.create(path, similarity=None).close()
    known = environment.open_lmdb

    def replaced(directory, **options):
        if directory == one and not away.exists():
            one.rename(away)
            other.rename(one)
        return known(directory, **options)

    monkeypatch.setattr(environment, "open_lmdb", replaced)
    with fpdb.open(other) as db, db.snapshot() as snapshot:
        fpdb.open(one).close()  # now the other one is there
        assert away.exists()
        seen = subprocess.run(
            [sys.executable, "-c", READERS, one], check=True, capture_output=True, text=True
        )
        assert seen.stdout.strip() == "True"
        assert len(snapshot) == 0
