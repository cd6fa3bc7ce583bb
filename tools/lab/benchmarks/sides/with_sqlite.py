"""What one would make oneself: SQLite, with four blocks in indexed columns.

By the pigeonhole two fingerprints within 3 bits have one of four 16-bit blocks in common.
"""

import sqlite3

from side import CHUNK, K, Side, main

COLUMNS = ("a", "b", "c", "d")
ALL = (1 << 64) - 1
CANDIDATES = " UNION ".join(f"SELECT id, fp FROM documents WHERE {name} = ?" for name in COLUMNS)
INSERT = "INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)"


def blocks(number):
    return (number >> 48, number >> 32 & 0xFFFF, number >> 16 & 0xFFFF, number & 0xFFFF)


def signed(number):
    return number - (1 << 64) if number >> 63 else number


class Sqlite(Side):
    version = f"SQLite {sqlite3.sqlite_version}"
    connection = None

    def open(self):
        self.connection = sqlite3.connect(self.folder / "blocks.sqlite", isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")

    def load(self, data):
        self.open()
        run = self.connection.execute
        run("BEGIN")
        run("CREATE TABLE documents (id INTEGER PRIMARY KEY, fp, a, b, c, d)")
        for begin in range(0, len(data), CHUNK):
            part = data[begin : begin + CHUNK].tolist()
            self.insert(range(begin, begin + len(part)), part)
        for name in COLUMNS:
            run(f"CREATE INDEX by_{name} ON documents ({name})")
        run("COMMIT")

    def insert(self, ids, numbers):
        rows = (
            (place, signed(number), *blocks(number))
            for place, number in zip(ids, numbers, strict=True)
        )
        self.connection.executemany(INSERT, rows)

    def one(self, argument):
        candidates = self.connection.execute(CANDIDATES, blocks(argument))
        return [place for place, number in candidates if (number & ALL ^ argument).bit_count() <= K]

    def save(self):
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def add(self, ids, fingerprints):
        self.connection.execute("BEGIN")
        self.insert(ids.tolist(), fingerprints.tolist())
        self.connection.execute("COMMIT")

    def close(self):
        if self.connection is not None:
            self.connection.close()


if __name__ == "__main__":
    main(Sqlite)
