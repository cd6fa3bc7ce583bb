"""Bring records into a database part by part, and keep count of what became of them."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import typer

import fpdb
from fpdb.cli import render
from fpdb.cli.flow import Flow
from fpdb.cli.sources import Rejects
from fpdb.cli.values import jaccard_cells, near_dict
from fpdb.errors import InputError
from fpdb.io import Part
from fpdb.preparing import Taken, Taker

_PROGRESS_SECONDS = 0.1
_PASSED = {"status": "another status than 200", "type": "another type"}


class Loader:
    """One run of ingest."""

    def __init__(
        self,
        rejects: Rejects,
        *,
        skip_duplicates: bool,
        min_jaccard: float | None,
        as_json: bool,
        watched: bool,
        total: int | None,
    ) -> None:
        self._rejects = rejects
        self._skip_duplicates = skip_duplicates
        self._min_jaccard = min_jaccard
        self._as_json = as_json
        self._watched = watched
        self._total = total
        self._bytes = self._read = self._replaced_bytes = 0
        self._statuses: Counter[str] = Counter()
        self._passed: Counter[str] = Counter()
        self._database: fpdb.Database | None = None
        self._started = self._shown = time.monotonic()

    def read_bytes(self, count: int) -> None:
        """Take note of how many bytes were read."""
        self._bytes += count

    def is_stored(self, key: str, meta: Mapping[str, Any]) -> bool:
        """Tell whether this very record of an archive is stored: its key with its metadata."""
        if self._database is None or self._database.keys != "text":
            return False
        try:
            stored = self._database.get(key)
        except InputError:  # no key, as will be said when it is to be added
            return False
        return stored is not None and meta.items() <= (stored.meta or {}).items()

    def pass_over(self, why: str) -> None:
        """Take note of a record of an archive that isn't read."""
        if why == "known":
            self._read += 1
            self._statuses["unchanged"] += 1
        else:
            self._passed[why] += 1
        self._show()

    def load(self, database: fpdb.Database, parts: Iterable[Part], flow: Flow[Taken]) -> None:
        """Add all records; those before an error or an interrupt are stored, or not read yet."""
        self._database = database
        taker = Taker(database.preparer, database.keys, self._rejects.strict)
        flow.run(parts, taker, partial(self._store, database))

    def _store(self, database: fpdb.Database, taken: Taken) -> None:
        """Add the documents of a part; a record that can't be added costs only itself."""
        self._read += taken.read
        self._replaced_bytes += taken.replaced
        for added in database.add_prepared(
            taken.prepared, skip_duplicates=self._skip_duplicates, min_jaccard=self._min_jaccard
        ):
            self._count(added)
        for refused in taken.refused:
            self._rejects.add(refused.source, refused.reason, refused.hint)
        self._show()

    def _count(self, added: fpdb.Added) -> None:
        self._statuses[added.status] += 1
        if added.status != "duplicate":
            return
        try:
            if self._as_json:
                render.record(
                    {
                        "key": added.key,
                        "status": added.status,
                        "matches": list(map(near_dict, added.matches)),
                    }
                )
            else:
                nearest = added.matches[0]
                render.row(added.key, nearest.key, nearest.distance, *jaccard_cells(nearest))
        except typer.Exit:
            # Whoever read the duplicates has enough of them; the documents still are to be added.
            return

    def _show(self) -> None:
        now = time.monotonic()
        if not self._watched or now - self._shown < _PROGRESS_SECONDS:
            return
        self._shown = now
        share = f", {min(self._bytes / self._total, 1):.0%} of the bytes" if self._total else ""
        rate = self._read / (now - self._started)
        render.progress(f"{self._read:,} documents{share}, {rate:,.0f} documents/s")

    def summarise(self) -> None:
        """Say what became of the records."""
        seconds = time.monotonic() - self._started
        names = {name: name for name in ("added", "replaced", "unchanged")}
        names |= {"duplicates": "duplicate", "short": "short"}
        counts = [f"read {self._read:,}"]
        counts += [f"{name} {self._statuses[status]:,}" for name, status in names.items()]
        counts.append(f"bad {self._rejects.count:,}")
        rate = self._statuses.total() / seconds if seconds else 0
        render.note(f"{', '.join(counts)}; {seconds:.2f} s, {rate:,.0f} documents/s")
        if self._passed:
            named = [f"{_PASSED.get(why, why)} {n:,}" for why, n in sorted(self._passed.items())]
            render.note(f"records of archives that hold no page: {', '.join(named)}")
        if self._replaced_bytes:
            render.note(
                f"documents with bytes that are no UTF-8, replaced by U+FFFD: "
                f"{self._replaced_bytes:,}"
            )
