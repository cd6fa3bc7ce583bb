"""Make the tables of the store from what was measured: figures of fpdb and its peers, targets."""

import statistics
from dataclasses import dataclass, field

from paired import met, written

MILLION = 1_000_000
KINDS = ("uniform", "clustered")
FAISS = ("faiss", "faiss-flip")
# The columns of peers: of several sides, the best figure is shown, with its name if they differ.
PEERS = {
    "SQLite": ("sqlite",),
    "FAISS, in memory": FAISS,
    "best of the others, in memory": ("pynear", "simhash", "pybind"),
}
BYTES_RANDOM = 75
HOT_TIMES = 2


@dataclass(frozen=True)
class Row:
    """A row: its name, and how a cost becomes a figure; the smaller cost is always better.

    A figure is `scale` times the cost or, of a rate, its inverse, for `each` of what the cost
    is for; 0: the number of documents stored. `targets` are the figures that fpdb should reach
    with uniform fingerprints, by the number of documents in millions, `faster` how many times as
    fast as FAISS it should be. Rows that few readers use aren't on the `page`.
    """

    key: str
    name: str
    scale: float
    each: int = 1
    rate: bool = False
    cores: str = "one"
    peers_key: str = ""  # the peers' row that fpdb's is compared with, if another
    targets: dict = field(default_factory=dict)
    faster: dict = field(default_factory=dict)
    page: bool = True

    def figure(self, cost, documents):
        each = self.each or documents
        return self.scale * (each / cost if self.rate else cost / each)


ROWS = [
    Row("load", "bulk load, M/s", 1e-6, 0, rate=True, targets={10: 1.4}),
    Row("load memory", "its peak memory, MB", 1e-6, targets={100: 4_295}, page=False),
    Row(
        *("load", "bulk load, all cores, M/s", 1e-6, 0),
        rate=True,
        cores="all",
        targets={10: 2.0},
        page=False,
    ),
    Row("adds", "adds by the 1,000, a second", 1, 1_000, rate=True, targets={1: 10_000}),
    Row("single p50", "query, p50, µs", 1e6, targets={1: 40, 10: 60}, faster={10: 3}),
    Row("single p99", "query, p99, µs", 1e6),
    Row(
        *("prepared p50", "prepared, p50, µs", 1e6),
        peers_key="single p50",
        targets={1: 25, 10: 35, 100: 130},
        page=False,
    ),
    Row("prepared p99", "prepared, p99, µs", 1e6, peers_key="single p99", page=False),
    Row("batch 1k", "each of a batch of 1,000, µs", 1e6, 1_000),
    Row("batch 1k", "the same, all cores, µs", 1e6, 1_000, cores="all", page=False),
    Row(
        *("batch 100k", "each of a batch of 100,000, µs", 1e6, 100_000),
        targets={1: 4, 10: 12},
        faster={1: 1.6, 10: 12},
    ),
    Row("join", "self-join, s", 1, targets={10: 20, 100: 360}),
    Row("join memory", "its peak memory, MB", 1e-6, targets={100: 6_442}, page=False),
    Row("disk", "bytes a document on disk", 1, 0, targets={1: 45, 10: 45}),
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
        found = [self.sized(documents, list(kinds), page) for documents, kinds in groups.items()]
        return found if page else [*found, *filter(None, [self.own()])]

    def sized(self, documents, kinds, page):
        rows, size = [], short(documents)
        for row in (row for row in ROWS if row.page or not page):
            mine = [self.cost(data, documents, row.key, cores=row.cores) for data in kinds]
            if any(mine):
                figures = [written(row.figure(cost, documents)) if cost else "-" for cost in mine]
                cells = {f"{size} documents": row.name, "fpdb": both(figures)}
                for heading, sides in PEERS.items():
                    cells[heading] = self.best(row, documents, kinds, mine, sides)
                rows.append(cells | {"target": self.target(row, documents)})
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

    def target(self, row, documents):
        mine = self.cost("uniform", documents, row.key, cores=row.cores)
        if mine is None:
            return ""
        wanted, figure = [], row.figure(mine, documents)
        if limit := row.targets.get(documents / MILLION):
            reached = figure >= limit if row.rate else figure <= limit
            wanted.append(f"{limit:,}: {met(reached)}")
        faiss = list(filter(None, (self.cost("uniform", documents, row.key, s) for s in FAISS)))
        if faiss and (times := row.faster.get(documents / MILLION)):
            wanted.append(f"{times} times as fast as FAISS: {met(min(faiss) >= times * mine)}")
        return ", ".join(wanted)

    def own(self):
        rows = []
        for (_, documents, row, _, _), record in self.found.items():
            size = short(documents)
            if row == "random inserts":
                [value] = record["values"]
                shown = f"{value['used']:.1f}, {value['file']:.1f} in the file"
                target = f"{BYTES_RANDOM} in use: {met(value['used'] <= BYTES_RANDOM)}"
                name = f"{size} in batches of 1,000: bytes a document in use"
                rows.append({"fpdb alone": name, "figure": shown, "target": target})
            elif row == "hot bucket":
                for name, *figures in hot_rows(*record["values"]):
                    first = {"fpdb alone": f"{size} copies, {size} random: {name}"}
                    rows.append(first | dict(zip(("figure", "target"), figures, strict=True)))
        return rows


def hot_rows(value):
    medians = {name: statistics.median(taken) for name, taken in value["adds"].items()}
    usual = medians["uniform random"]
    for kind, name in (("copies", "copies"), ("random", "random ones")):
        taken = medians[f"hot {kind}"]
        shown = f"{taken * 1e3:.1f} ms, {taken / usual:.2f} times as long as without copies"
        yield f"add 1,000 {name}", shown, f"{HOT_TIMES} times: {met(taken <= HOT_TIMES * usual)}"
    seconds = statistics.median(value["query"])
    complete = "" if value["complete"] else ", cut by its budget"
    yield "query the copies", f"{seconds * 1e3:.1f} ms, {value['matches']:,} matches{complete}", ""


def both(figures):
    """Write the figures of all kinds of fingerprints, or one if they are equal."""
    return " / ".join(figures if len(set(figures)) > 1 else figures[:1])


def short(documents):
    if documents % MILLION == 0:
        return f"{documents // MILLION} M"
    return f"{documents // 1000} k" if documents % 1000 == 0 else f"{documents:,}"
