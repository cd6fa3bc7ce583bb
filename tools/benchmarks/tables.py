"""Make the table of the store from what was measured: cells, ratios, targets, notes."""

import statistics
from dataclasses import dataclass

from contenders import CONTENDERS

MILLION = 1_000_000
MICRO = 1e6
# The targets: (documents, row) -> largest cost, as `Row.cost` counts it.
LOADED_PER_SECOND = {"one": 1.4e6, "all": 2.0e6}  # at 10 M
PLAIN = {MILLION: 40, 10 * MILLION: 60}
PREPARED = {MILLION: 25, 10 * MILLION: 35, 100 * MILLION: 130}
BATCHED = {MILLION: 4, 10 * MILLION: 12}
JOINED = {10 * MILLION: 20, 100 * MILLION: 360}
MEMORY_BYTES = {"load memory": 4 << 30, "join memory": 6 << 30}  # at 100 M
# documents -> (row, how many times as fast as FAISS (64,4,16) on one thread)
FASTER = {
    (10 * MILLION, "single p50"): 3,
    (MILLION, "batch 100k"): 1.6,
    (10 * MILLION, "batch 100k"): 12,
}
GROWTH = 8
BYTES_BULK, BYTES_RANDOM = 45, 75
ADDS_PER_SECOND = 10_000
HOT_TIMES = 2


@dataclass(frozen=True)
class Row:
    """A row: its name, and how a value becomes a cell; less is better in all of them."""

    key: str
    name: str
    show: str
    each: int = 0  # queries or documents that a value is for; 0: as many as are stored
    fpdb_as: str = ""  # the peers' row that fpdb's is compared with, if another

    def text(self, value, documents):
        each = self.each or documents
        return {
            "rate": lambda: f"{each / value / 1e6:.2f} M/s",
            "durable rate": lambda: f"{each / value:,.0f}/s",
            "µs": lambda: f"{figure(value / each * MICRO)} µs",
            "s": lambda: f"{figure(value)} s",
            "ms": lambda: f"{figure(value * 1e3)} ms",
            "bytes": lambda: f"{value / each:.1f}",
            "MB": lambda: f"{value / 1e6:,.0f} MB",
        }[self.show]()


ROWS = [
    Row("load", "bulk load", "rate"),
    Row("load memory", "peak memory of the bulk load, mapped files aside", "MB"),
    Row("adds", "adds of random fingerprints, batches of 1,000", "durable rate", 1_000),
    Row("single p50", "one query, p50", "µs", 1),
    Row("single p99", "one query, p99", "µs", 1),
    Row("prepared p50", "one query, prepared, p50", "µs", 1, "single p50"),
    Row("prepared p99", "one query, prepared, p99", "µs", 1, "single p99"),
    Row("batch 1k", "1 k queries in a batch, each", "µs", 1_000),
    Row("batch 100k", "100 k queries in a batch, each", "µs", 100_000),
    Row("join", "self-join", "s"),
    Row("join memory", "peak memory of the self-join, mapped files aside", "MB"),
    Row("disk", "bytes a document on disk", "bytes"),
    Row("memory", "resident memory after 1,000 queries", "MB"),
    Row("reopen", "reopen to first answer, file cached", "ms"),
    Row("reopen cold", "reopen to first answer, file not cached", "ms"),
]
COLUMNS = [(side, cores) for side in CONTENDERS for cores in ("one", "all")]
COLUMNS = [(side, cores) for side, cores in COLUMNS if cores == "one" or side.all_cores]


class Notes(dict):
    """Numbers for what the table can't say in a cell."""

    def mark(self, why):
        return f"- ({self.setdefault(why, len(self) + 1)})"

    def lines(self):
        return "\n".join(f"{number}. {why}." for why, number in self.items())


class Table:
    """The records, as cells."""

    def __init__(self, records):
        self.records = [r for r in records if r["values"] or "stopped" in r]
        self.found = {
            (r["data"], r["documents"], r["row"], r["side"], r["cores"]): r for r in self.records
        }
        self.missing = {r["side"]: r["stopped"] for r in self.records if r["row"] == "install"}
        self.notes = Notes()
        there = {r["side"] for r in self.records}
        self.columns = [column for column in COLUMNS if column[0].name in there]

    def value(self, data, documents, row, side="fpdb", cores="one"):
        """Return the median of a row, or None."""
        record = self.found.get((data, documents, row, side, cores))
        if record is None or "stopped" in record or not record["values"]:
            return None
        if row == "memory":
            return sum(record["values"])
        return statistics.median(record["values"])

    def why(self, data, documents, row, side, cores):
        """Return why there is no value."""
        row = row.removesuffix(" memory")  # no figure of the work, none of its memory
        for key in (row, "all"):
            for who in (cores, "one"):
                record = self.found.get((data, documents, key, side.name, who), {})
                if "stopped" in record:
                    return f"{side.label}: {record['stopped']}"
        if side.name in self.missing:
            return self.missing[side.name]
        return side.cannot.get(row)

    def cell(self, data, documents, row, side, cores):
        """Write a value and, beside a peer's, how many times as good fpdb is."""
        if cores == "all" and row.key not in side.all_cores:
            return ""
        key = row.fpdb_as if row.fpdb_as and side.name != "fpdb" else row.key
        value = self.value(data, documents, key, side.name, cores)
        if value is None:
            why = self.why(data, documents, key, side, cores)
            return self.notes.mark(why) if why else "-"
        text = row.text(value, documents)
        if row.key == "memory":
            own, mapped = self.found[data, documents, key, side.name, cores]["values"]
            text = f"{own / 1e6:,.0f} + {mapped / 1e6:,.0f} MB"
        mine = self.value(data, documents, row.key, "fpdb", cores)
        if side.name == "fpdb" or not mine:
            return text
        return f"{text} ({ratio(value / mine)})"

    def rows(self):
        """Make all rows, those of one size and workload together."""
        groups = []
        for record in self.records:
            group = record["documents"], record["data"]
            if record["data"] in ("uniform", "clustered") and group not in groups:
                groups.append(group)
        rows = []
        for documents, data in groups:
            for row in ROWS:
                if self.value(data, documents, row.key) is None and row.key.startswith("prepared"):
                    continue
                cells = [self.cell(data, documents, row, *column) for column in self.columns]
                name = f"{short(documents)} {data}"
                rows.append([name, row.name, *cells, *self.target(data, documents, row.key)])
        return rows + self.growth() + self.own()

    def target(self, data, documents, row):
        """Return fpdb's target in a row, and whether it is reached."""
        value = self.value(data, documents, row)
        wanted = []
        if data != "uniform" or value is None:
            return "-", "-"
        if row == "load" and documents == 10 * MILLION:
            for cores, rate in LOADED_PER_SECOND.items():
                taken = self.value(data, documents, row, cores=cores)
                name = "one core" if cores == "one" else "all cores"
                wanted.append(
                    (f"{rate / 1e6} M/s on {name}", bool(taken) and documents / taken >= rate)
                )
        if row == "adds" and documents == MILLION:
            wanted.append((f"{ADDS_PER_SECOND:,}/s", 1_000 / value >= ADDS_PER_SECOND))
        for key, limits, each, unit in (
            ("single p50", PLAIN, 1 / MICRO, "µs"),
            ("prepared p50", PREPARED, 1 / MICRO, "µs"),
            ("batch 100k", BATCHED, 1e5 / MICRO, "µs"),
            ("join", JOINED, 1, "s"),
        ):
            if row == key and documents in limits:
                limit = limits[documents]
                wanted.append((f"{limit} {unit}", value / each <= limit))
        if (documents, row) in FASTER:
            times = FASTER[documents, row]
            peer = self.value(data, documents, row, "faiss")
            if peer:
                name = f"{times} times as fast as FAISS (64,4,16) on one thread"
                wanted.append((name, peer / value >= times))
        if row in MEMORY_BYTES and documents == 100 * MILLION:
            wanted.append((f"{MEMORY_BYTES[row] >> 30} GiB", value <= MEMORY_BYTES[row]))
        return verdict(wanted)

    def growth(self):
        """Compare the batched query at the largest size with that at the smallest."""
        sizes = sorted({r["documents"] for r in self.records if r["data"] == "uniform"})
        if len(sizes) < 2:
            return []
        first, last = sizes[0], sizes[-1]
        cells, own = [], None
        for side, cores in self.columns:
            costs = [
                self.value("uniform", n, "batch 100k", side.name, cores) for n in (first, last)
            ]
            times = costs[1] / costs[0] if all(costs) else None
            own = times if (side.name, cores) == ("fpdb", "one") else own
            cells.append(f"{times:.1f} times" if times else "-")
        asked = (first, last) == (MILLION, 100 * MILLION)
        target = verdict([(f"less than {GROWTH} times", own < GROWTH)] if asked and own else [])
        name = "what 100 k queries in a batch cost, compared with the smallest size"
        return [[f"{short(first)} to {short(last)} uniform", name, *cells, *target]]

    def own(self):
        """Make the rows of fpdb alone."""
        rows = []

        def add(where, name, shown, *wanted):
            rows.append([where, name, shown, *[""] * (len(self.columns) - 1), *verdict(wanted)])

        for (data, documents, row, _, _), record in self.found.items():
            value = record["values"][0] if record["values"] else None
            where = f"{short(documents)} {data}"
            if value is None:
                if row in ("random inserts", "hot bucket", "seek", "used"):
                    add(where, row, self.notes.mark(f"fpdb: {record['stopped']}"))
            elif row == "used":
                limit = (f"{BYTES_BULK}", value <= BYTES_BULK)
                add(where, "bytes a document in use, loaded", f"{value:.1f}", limit)
            elif row == "seek":
                other, halves = (
                    self.value(data, documents, way) * MICRO for way in ("interpolation", "binary")
                )
                target = f"as fast as an interpolation search of one array, {other:.1f} µs"
                shown = f"{value * MICRO:.1f} µs"
                add(where, "find where a prefix begins", shown, (target, value * MICRO <= other))
                add(where, "the same by binary search of one array", f"{halves:.1f} µs")
            elif row == "random inserts":
                where = f"{short(documents)}, batches of 1,000"
                used = value["used"]
                shown = f"{used:.1f}, {value['file']:.1f} in the file"
                limit = (f"{BYTES_RANDOM} in use", used <= BYTES_RANDOM)
                add(where, "bytes a document in use, random adds", shown, limit)
            elif row == "hot bucket":
                for line in hot_rows(value):
                    add(f"{short(documents)} copies, {short(documents)} random", *line)
        return rows

    def markdown(self):
        """Write the table and its notes."""
        heads = ["fingerprints", "row"]
        for side, cores in self.columns:
            place = "" if side.persistent else "in memory: "
            heads.append(f"{place}{side.label}{', all cores' if cores == 'all' else ''}")
        lines = [[*heads, "target", "reached"], ["---"] * (len(heads) + 2), *self.rows()]
        table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        return f"{table}\n\nNotes on the table:\n\n{self.notes.lines()}" if self.notes else table


def hot_rows(value):
    """Make the rows of the hot bucket: name, figure, target."""
    medians = {name: statistics.median(taken) for name, taken in value["adds"].items()}
    usual = medians["uniform random"]
    for kind, name in (("copies", "copies of the hot one"), ("random", "random ones")):
        taken = medians[f"hot {kind}"]
        shown = f"{taken * 1e3:.1f} ms, {taken / usual:.2f} times as long as without"
        target = (f"{HOT_TIMES} times", taken <= HOT_TIMES * usual)
        yield f"durable add of 1,000 {name}", shown, target
    seconds = statistics.median(value["query"])
    complete = "" if value["complete"] else ", cut by its budget"
    shown = f"{seconds * 1e3:.1f} ms, {value['matches']:,} matches{complete}"
    yield "one query for the hot fingerprint", shown


def verdict(wanted):
    """Write what is to be reached, and whether it is: each on its own if there are several."""
    if not wanted:
        return "-", "-"
    reached = ["yes" if done else "**no**" for _, done in wanted]
    if len(set(reached)) == 1:
        reached = reached[:1]
    return ", ".join(name for name, _ in wanted), ", ".join(reached)


def ratio(times):
    """Write how many times as good fpdb is; bold where it loses."""
    return f"**{figure(times)}**" if times < 1 else figure(times)


def figure(number):
    """Write a number with three digits, or two below one, and never with an exponent."""
    if number >= 100:
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}"
    return f"{number:.2f}" if number >= 0.1 else f"{number:.2g}"


def short(documents):
    """Write a number of documents as people say it."""
    if documents % MILLION == 0:
        return f"{documents // MILLION} M"
    return f"{documents // 1000} k" if documents % 1000 == 0 else f"{documents:,}"
