"""Make the tables of the store from what was measured: figures of fpdb and its peers."""

import statistics
from dataclasses import dataclass

from paired import written

MILLION = 1_000_000
KINDS = ("uniform", "clustered")
FAISS = ("faiss", "faiss-flip")
# The columns of peers: of several sides, the best figure is shown, with its name if they differ.
PEERS = {
    "SQLite": ("sqlite",),
    "FAISS, in memory": FAISS,
    "best of the others, in memory": ("pynear", "simhash", "pybind"),
}


@dataclass(frozen=True)
class Row:
    """A row: its name, and how a cost becomes a figure; the smaller cost is always better.

    A figure is `scale` times the cost or, of a rate, its inverse, for `each` of what the cost
    is for; 0: the number of documents stored. Rows that few readers use aren't on the `page`.
    """

    key: str
    name: str
    scale: float
    each: int = 1
    rate: bool = False
    cores: str = "one"
    peers_key: str = ""  # the peers' row that fpdb's is compared with, if another
    page: bool = True

    def figure(self, cost, documents):
        each = self.each or documents
        return self.scale * (each / cost if self.rate else cost / each)


ROWS = [
    Row("load", "bulk load, M/s", 1e-6, 0, rate=True),
    Row("load", "bulk load, all cores, M/s", 1e-6, 0, rate=True, cores="all", page=False),
    Row("adds", "adds by the 1,000, a second", 1, 1_000, rate=True),
    Row("single p50", "query, p50, µs", 1e6),
    Row("single p99", "query, p99, µs", 1e6),
    Row("prepared p50", "prepared, p50, µs", 1e6, peers_key="single p50", page=False),
    Row("prepared p99", "prepared, p99, µs", 1e6, peers_key="single p99", page=False),
    Row("batch 1k", "each of a batch of 1,000, µs", 1e6, 1_000),
    Row("batch 1k", "the same, all cores, µs", 1e6, 1_000, cores="all", page=False),
    Row("batch 100k", "each of a batch of 100,000, µs", 1e6, 100_000),
    Row("join", "self-join, s", 1),
    Row("disk", "bytes a document on disk", 1, 0),
    Row("memory", "resident memory, MB", 1e-6),
    Row("reopen", "reopen, ms", 1e3),
    Row("reopen cold", "the same, file not cached, ms", 1e3, page=False),
]


class Table:
    """The records, as rows of tables."""

    def __init__(self, records):
        self.records = [r for r in records if r["values"] or "stopped" in r]
        self.found = {
            (r["data"], r["documents"], r["row"], r["side"], r["cores"]): r for r in self.records
        }

    def cost(self, data, documents, row, side="fpdb", cores="one"):
        record = self.found.get((data, documents, row, side, cores), {"stopped": ""})
        return None if "stopped" in record else statistics.median(record["values"])

    def tables(self, *, page=False):
        """Return all tables, or for the page the ones and the rows that readers use."""
        groups = {}
        for record in self.records:
            if record["data"] in (KINDS[:1] if page else KINDS):
                groups.setdefault(record["documents"], {})[record["data"]] = True
        return [self.sized(documents, list(kinds), page) for documents, kinds in groups.items()]

    def sized(self, documents, kinds, page):
        rows, size = [], short(documents)
        for row in (row for row in ROWS if row.page or not page):
            mine = [self.cost(data, documents, row.key, cores=row.cores) for data in kinds]
            if any(mine):
                figures = [written(row.figure(cost, documents)) if cost else "-" for cost in mine]
                cells = {f"{size} documents": row.name, "fpdb": both(figures)}
                for heading, sides in PEERS.items():
                    cells[heading] = self.best(row, documents, kinds, mine, sides)
                rows.append(cells)
        return rows

    def best(self, row, documents, kinds, mine, sides):
        """Write the best figures of some peers, in bold those that are better than fpdb's."""
        figures, names = [], []
        for data, own in zip(kinds, mine, strict=True):
            costs = [
                (self.cost(data, documents, row.peers_key or row.key, side, row.cores), side)
                for side in sides
            ]
            cost, side = min((each for each in costs if each[0]), default=(None, ""))
            shown = written(row.figure(cost, documents)) if cost else "-"
            figures.append(f"**{shown}**" if cost and own and cost < own else shown)
            names.append(f" {side}" if cost and sides not in (FAISS, ("sqlite",)) else "")
        if set(figures) == {"-"}:
            return "-"
        if len(set(names)) > 1:
            return " / ".join(figure + name for figure, name in zip(figures, names, strict=True))
        return both(figures) + names[0]


def both(figures):
    """Write the figures of all kinds of fingerprints, or one if they are equal."""
    return " / ".join(figures if len(set(figures)) > 1 else figures[:1])


def short(documents):
    if documents % MILLION == 0:
        return f"{documents // MILLION} M"
    return f"{documents // 1000} k" if documents % 1000 == 0 else f"{documents:,}"
