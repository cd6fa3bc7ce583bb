"""One workload and the sides that take it: answers are checked, then each row is timed in turn."""

import os
import shutil
import statistics
import sys
import time

import numpy as np
import workloads
from contenders import Process, StoppedError
from environments import MissingError

BATCH = 1_000
ADDS = 10  # batches in a round
SINGLES = 2_000
WARM = 1_000
COMPARED = 1_000_000  # up to here a self-join is compared pair by pair, above it is counted
LARGE = 10_000_000
PATIENCE = {False: 600, True: 1_800}  # seconds for one answer, up to LARGE and above
TOO_LONG = 120  # what would take more isn't begun
SLOW = 30  # what took N seconds isn't repeated
FEW = 3  # rounds of what takes longest
BEGIN = time.perf_counter()


class Records(list):
    """What was measured: one dict for each row, side and number of cores."""

    def slot(self, where, row, side, cores="one"):
        """Find or make the record of a row; `where` says which fingerprints, and how many."""
        name = {**where, "row": row, "side": side, "cores": cores}
        for record in self:
            if name.items() <= record.items():
                return record
        self.append({**name, "values": []})
        return self[-1]

    def median(self, where, row, side, cores="one"):
        values = self.slot(where, row, side, cores)["values"]
        return statistics.median(values) if values else None


class Group:
    """One workload, at one size, and all sides that take it."""

    def __init__(self, records, workload, sides, rounds, pairs):
        self.records = records
        self.workload = workload
        self.where = {"data": workload.data, "documents": workload.documents}
        self.sides = {side.name: side for side in sides}
        self.rounds = rounds
        self.pairs = pairs
        self.patience = PATIENCE[workload.documents > LARGE]
        self.running = {}
        self.versions = {}

    def folder(self, name):
        return self.workload.folder / name

    def start(self, name):
        side = self.sides[name]
        self.folder(name).mkdir(exist_ok=True)
        options = self.workload.most if name == "pynear" else side.options
        process = Process(side, self.workload.folder, self.folder(name), options)
        self.versions[name] = process.version
        self.running[name] = process
        return process

    def finish(self, name):
        process = self.running.pop(name, None)
        if process:
            process.close()

    def stop(self, row, name, why, cores="one"):
        say(f"{name}, {row}: {why}")
        self.records.slot(self.where, row, name, cores)["stopped"] = why

    def leave(self, name, why):
        """Take a side out of this group altogether."""
        self.stop("all", name, why)
        self.sides.pop(name)
        self.finish(name)

    def slow(self, row, name, cores):
        record = self.records.slot(self.where, row, name, cores)
        return "stopped" in record or sum(record["values"]) > SLOW

    def ask(self, row, name, cores, do, **order):
        """Measure a row with a side; without a value, its record has the reason."""
        try:
            answer = self.running[name].ask(self.patience, do, cores=cores, **order)
        except StoppedError as why:
            self.stop(row, name, str(why), cores)
            if self.running[name].running.poll() is not None:
                self.leave(name, f"{row}: {why}")
            return None
        return answer

    def able(self, row):
        return [name for name, side in self.sides.items() if row not in side.cannot]

    def keep(self, row, name, cores, *values):
        figures = [figure if isinstance(figure, int) else rounded(figure) for figure in values]
        self.records.slot(self.where, row, name, cores)["values"] += figures

    def timed(self, row, names, rounds, do, cores="one", **order):
        """Measure sides in turn, round by round, and keep their seconds."""
        for _ in range(rounds):
            for name in names:
                if name in self.running and not self.slow(row, name, cores):
                    answer = self.ask(row, name, cores, do, **order)
                    if answer:
                        self.keep(row, name, cores, answer["seconds"])

    # The rows, in the order in which they are measured

    def measure(self):
        """Measure all rows."""
        try:
            self.loads()
            self.check()
            self.singles()
            self.batches()
            self.disk()
            self.joins()
            for name in list(self.running):
                self.finish(name)
            self.reopens()
            self.adds()
        finally:
            for name in list(self.running):
                self.finish(name)

    def loads(self):
        """Load into a new index in a new process, each round; the last of them stay."""
        say("load")
        loading = self.able("load")
        for _ in range(min(self.rounds, FEW)):
            for name in loading:
                if name not in self.sides or self.slow("load", name, "one"):
                    continue  # the process of a slow round is still there
                self.finish(name)
                shutil.rmtree(self.folder(name), ignore_errors=True)
                self.load(name, "one")
            if "fpdb" in self.sides:
                self.load_with_all_cores()
        if "pybind" in self.sides:
            self.start("pybind")

    def load(self, name, cores):
        try:
            process = self.start(name)
        except (MissingError, StoppedError) as why:
            self.leave(name, str(why))
            return
        answer = self.ask("load", name, cores, "load")
        if answer:
            self.keep("load", name, cores, answer["seconds"])
            self.keep("load memory", name, cores, process.peak)
        elif name in self.sides:
            self.leave(name, f"load: {self.records.slot(self.where, 'load', name)['stopped']}")

    def load_with_all_cores(self):
        """Load fpdb once more, elsewhere, with all cores."""
        elsewhere = self.folder("fpdb-all")
        elsewhere.mkdir()
        process = Process(self.sides["fpdb"], self.workload.folder, elsewhere, None)
        try:
            answer = process.ask(self.patience, "load", cores="all")
            self.keep("load", "fpdb", "all", answer["seconds"])
        except StoppedError as why:
            self.stop("load", "fpdb", str(why), "all")
        finally:
            process.close()
        shutil.rmtree(elsewhere)

    def check(self):
        """Who answers otherwise than the truth isn't timed."""
        say("check")
        path = self.workload.folder
        for name in list(self.running):
            if "batch 1k" in self.sides[name].cannot:
                continue
            ways = {"one": path / f"{name}-one.npy"}
            if name == "fpdb" and self.prepare():
                ways["prepared"] = path / f"{name}-prepared.npy"
            many = path / f"{name}-many.npy"
            order = {"ways": ways, "many": many, "singles": 200}
            if self.ask("check", name, "one", "check", **order) is None:
                if name in self.sides:
                    self.leave(name, self.records.slot(self.where, "check", name)["stopped"])
                continue
            for file in (many, *ways.values()):
                why = difference(np.load(file), self.workload.answers, file != many)
                if why and name in self.sides:
                    self.leave(name, why)

    def prepare(self):
        """Open the snapshot of fpdb that its prepared queries use."""
        return self.ask("prepared p50", "fpdb", "one", "extra", what="way") is not None

    def singles(self):
        say("single queries")
        for _ in range(self.rounds):
            for name in list(self.running):
                ways = {"one": "single"}
                if name == "fpdb" and (self.workload.folder / "fpdb-prepared.npy").exists():
                    ways["prepared"] = "prepared"
                for way, row in ways.items():
                    if "single p50" in self.sides[name].cannot or self.slow(row, name, "one"):
                        continue
                    answer = self.ask(row, name, "one", "single", count=SINGLES, way=way)
                    for part in answer or ():
                        self.keep(f"{row} {part}", name, "one", answer[part])
        if "fpdb" in self.running:
            self.ask("prepared p50", "fpdb", "one", "extra", what="leave")

    def batches(self):
        say("batches of queries")
        for count, row, before in ((BATCH, "batch 1k", None), (100 * BATCH, "batch 100k", "1k")):
            for cores in ("one", "all"):
                names = [name for name in self.running if self.takes(row, name, cores)]
                if before:
                    names = [
                        name for name in names if self.worth(row, name, cores, 100, "batch 1k")
                    ]
                self.timed(row, names, self.rounds, "batch", cores, count=count)

    def takes(self, row, name, cores):
        side = self.sides[name]
        return row not in side.cannot and (cores == "one" or row in side.all_cores)

    def worth(self, row, name, cores, times, known):
        """Don't begin what would take too long, judged by a shorter measurement."""
        seconds = self.records.median(self.where, known, name, cores)
        if seconds is None or times * seconds <= TOO_LONG:
            return True
        guess = times * seconds
        shown = f"{guess / 60:.0f} minutes" if guess < 7200 else f"{guess / 3600:.1f} hours"
        self.stop(row, name, f"not begun: it would take about {shown}", cores)
        return False

    def disk(self):
        say("bytes on disk")
        for name in list(self.running):
            if "reopen" in self.sides[name].cannot:
                continue
            answer = self.ask("disk", name, "one", "save")
            if answer and "disk" not in self.sides[name].cannot:
                size = sum(
                    file.stat().st_size
                    for file in self.folder(name).rglob("*")
                    if file.is_file() and file.name != "stderr.txt"
                )
                self.keep("disk", name, "one", size)
            if answer:
                self.keep("save", name, "one", answer["seconds"])
        if "fpdb" in self.running:
            answer = self.ask("used", "fpdb", "one", "extra", what="used")
            if answer:
                self.keep("used", "fpdb", "one", answer["used"])

    def joins(self):
        """Find all pairs; who finds other pairs, or another number of them, isn't timed."""
        say("self-join")
        times = self.workload.documents / (100 * BATCH)
        joining = [
            (name, cores)
            for cores in ("one", "all")
            for name in self.running
            if self.takes("join", name, cores)
            and (name in ("fpdb", "pybind") or self.join_is_short(name, cores, times))
        ]
        for name in list(self.running):
            if all(name != able for able, _ in joining):
                self.finish(name)  # so that its memory is free
        for turn in range(min(self.rounds, FEW)):
            for name, cores in joining:
                if name in self.running and not self.slow("join", name, cores):
                    self.join(name, cores, compare=turn == 0 and cores == "one")

    def join_is_short(self, name, cores, times):
        stopped = self.records.slot(self.where, "batch 100k", name, cores).get("stopped")
        if stopped:
            self.stop("join", name, "not begun: 100 k queries are too many already", cores)
        return not stopped and self.worth("join", name, cores, times, "batch 100k")

    def join(self, name, cores, *, compare):
        distinct = self.sides[name].distinct
        compare = compare and self.workload.documents <= COMPARED
        path = self.workload.folder / f"{name}-pairs.npy"
        order = {"distinct": distinct, "keep": path if compare else None}
        answer = self.ask("join", name, cores, "join", **order)
        if not answer:
            return
        expected = self.pairs["distinct" if distinct else "documents"]
        if answer["count"] != expected:
            self.stop("join", name, f"found {answer['count']} pairs, not {expected}", cores)
            return
        if compare:
            found = workloads.in_order(np.load(path))
            if not distinct:  # pairs of documents: each of fingerprints may come often
                found = found[found[:, 0] != found[:, 1]]
                new = np.concatenate([[True], (found[1:] != found[:-1]).any(axis=1)])
                found = found[new[: len(found)]]
            if not np.array_equal(found, np.load(self.workload.folder / "pairs.npy")):
                self.stop("join", name, "found other pairs", cores)
                return
        self.keep("join", name, cores, answer["seconds"])
        self.keep("join memory", name, cores, self.running[name].peak)

    def reopens(self):
        """Open in a new process and answer; the file is in the page cache, or out of it."""
        say("reopen")
        for _ in range(self.rounds):
            for row in ("reopen", "reopen cold"):
                for name in self.able(row):
                    if self.slow(row, name, "one"):
                        continue
                    if row == "reopen cold":
                        forget(self.folder(name))
                    self.start(name)
                    warm = WARM if row == "reopen" else 0
                    answer = self.ask(row, name, "one", "open", warm=warm)
                    if answer:
                        self.keep(row, name, "one", answer["seconds"])
                        if warm:
                            memory = [answer["RssAnon"], answer["RssFile"]]
                            self.records.slot(self.where, "memory", name)["values"] = memory
                    self.finish(name)

    def adds(self):
        say("adds")
        for name in self.able("adds"):
            if self.ask_open(name) is None:
                self.finish(name)
        first = self.workload.documents
        for _ in range(self.rounds):
            for name in list(self.running):
                order = {"first": first, "batches": ADDS, "size": BATCH}
                answer = self.ask("adds", name, "one", "adds", **order)
                if answer:
                    self.keep("adds", name, "one", *answer["taken"])
            first += ADDS * BATCH

    def ask_open(self, name):
        self.start(name)
        return self.ask("adds", name, "one", "open", warm=0)


def difference(found, expected, first):
    """Return where answers differ from the truth, if they do; `first` if not all were asked."""
    found = workloads.in_order(found)
    if first:
        expected = expected[expected[:, 0] < 200]
    if np.array_equal(found, expected):
        return ""
    wrong = set(map(tuple, found.tolist())) ^ set(map(tuple, expected.tolist()))
    query, document = min(wrong) if wrong else found[0]
    return (
        f"different answers: {len(found)} matches, {len(expected)} expected; "
        f"the first that differs is document {document} of check query {query}"
    )


def forget(folder):
    """Ask the system to drop files from its page cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rounded(figure):
    """Leave out the digits that no clock knows."""
    return float(f"{figure:.5g}")


def say(words):
    print(f"[bench] {time.perf_counter() - BEGIN:6.0f} s: {words}", file=sys.stderr, flush=True)
