"""What a user decided: verdicts on pairs, kept in a file, and deletions that can be undone."""

import csv
import io
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from fpdb.database import Database
from fpdb.io.tables import read_pairs
from fpdb.models import Key
from fpdb.scratch import draft_file, new_file


class Decisions:
    """Keeps decisions on the documents of a database in files beside its directory."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._pairs = self._beside("pairs.csv")
        self._verdicts: dict[tuple[str, ...], bool] = {}
        if self._pairs.exists():
            for key, other, same in read_pairs(str(self._pairs)):
                self._verdicts[_pair(key, other)] = bool(same)

    def _beside(self, ending: str) -> Path:
        path = self._database.path
        return path.with_name(f"{path.name}-{ending}")

    def judge(self, key: Key, other: Key, *, same: bool | None) -> None:
        """Keep a verdict on two documents in the file, or take it back."""
        with self._lock:
            self._verdicts.pop(_pair(key, other), None)
            if same is not None:
                self._verdicts[_pair(key, other)] = same
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(["key", "other", "same"])
            writer.writerows((*pair, int(kept)) for pair, kept in self._verdicts.items())
            with draft_file(self._pairs) as file:
                file.write(lines.getvalue().encode())

    def verdict(self, key: Key, other: Key) -> bool | None:
        """Return the verdict on two documents, if there is one."""
        return self._verdicts.get(_pair(key, other))

    def delete(self, keys: Sequence[Key]) -> tuple[int, Path]:
        """Delete documents; return how many there were, and the file that brings them back."""
        moment = f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6}"
        path = self._beside(f"deleted-{moment}.fpdb.jsonl")
        try:
            with open(new_file(path), "wb") as file:
                return self._database.delete_many(keys, undo=file), path
        finally:
            if not path.stat().st_size:  # nothing was deleted
                path.unlink()


def _pair(*keys: Key) -> tuple[str, ...]:
    return tuple(sorted(map(str, keys)))
