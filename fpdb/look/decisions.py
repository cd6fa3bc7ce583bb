"""What a user decided: verdicts on pairs, kept in a file, and deletions that can be undone."""

import csv
import io
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fpdb.database import Database
from fpdb.io.tables import read_pairs
from fpdb.models import Key
from fpdb.scratch import draft_file, new_file

PairOfKeys = tuple[str, str]


@dataclass
class Decisions:
    """Keeps decisions on the documents of a database in files beside its directory."""

    database: Database
    verdicts: dict[PairOfKeys, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.pairs = self._beside("pairs.csv")
        if self.pairs.exists():
            for key, other, same in read_pairs(str(self.pairs)):
                self.verdicts[str(key), str(other)] = bool(same)

    def _beside(self, ending: str) -> Path:
        path = self.database.path
        return path.with_name(f"{path.name}-{ending}")

    def judge(self, key: str, other: str, *, same: bool | None) -> None:
        """Keep a verdict on two documents in the file, or take it back."""
        with self._lock:
            for pair in ((key, other), (other, key)):
                self.verdicts.pop(pair, None)
            if same is not None:
                self.verdicts[key, other] = same
            lines = io.StringIO()
            writer = csv.writer(lines, lineterminator="\n")
            writer.writerow(["key", "other", "same"])
            writer.writerows((*pair, int(kept)) for pair, kept in self.verdicts.items())
            with draft_file(self.pairs) as file:
                file.write(lines.getvalue().encode())

    def verdict(self, key: Key, other: Key) -> bool | None:
        """Return the verdict on two documents, if there is one."""
        pair = str(key), str(other)
        return self.verdicts.get(pair, self.verdicts.get(pair[::-1]))

    def delete(self, keys: Sequence[Key]) -> tuple[int, Path]:
        """Delete documents; return how many there were, and the file that brings them back."""
        path = self._beside(f"deleted-{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() % 10**6}")
        path = path.with_name(f"{path.name}.fpdb.jsonl")
        descriptor = new_file(path)
        try:
            with open(descriptor, "wb") as file:
                return self.database.delete_many(keys, undo=file), path
        finally:
            if not path.stat().st_size:  # nothing was deleted
                path.unlink()
