"""The statistics of a database, which may be another user's."""

import fpdb


def test_describe_reads_what_stats_reads(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        db.add("a", "one two three four five six seven eight nine ten")
        assert fpdb.describe(db.path) == db.stats()
    (tmp_path / "db" / "lock.mdb").unlink()
    assert fpdb.describe(tmp_path / "db").documents == 1
