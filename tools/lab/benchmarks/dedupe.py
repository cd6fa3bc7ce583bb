"""Measure how long a corpus takes to clean, beside its peers, and what they drop.

The corpus is made: English sentences of made words, some documents copied as they are, some with
a few words replaced. So it is known which document is how similar to which, by the Jaccard
similarity of their runs of three words: a document should go if it is similar from 0.8 to an
earlier one that stays. Each tool has an environment of its own and all processors, reads one
Parquet file, and writes another; the clock runs from its start to its end.

Texts that are much alike, pages of one template and versions of texts, are cleaned too: of some of
the removed ones, each is compared with all that stay.
"""

import array
import collections
import contextlib
import itertools
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import paired
import pyarrow as pa
import pyarrow.parquet as pq
import templates
from paired import SIDES, MissingError

SIZES = [1_000_000]
SIMILAR, WRONG = 0.8, 0.7
WORDS = (60, 180)
# Of a hundred documents: those that are equal to an earlier one, and those that are edited.
EQUAL, EDITED = 10, 20
EDITS = (1, 12)
# Documents of which copies may follow, at any time.
RECENT = 5000
PEERS = {
    "fpdb": None,
    "rensa, a script": "rensa==0.5.0 pyarrow",
    "text-dedup MinHash": "text-dedup==0.4.0",
    "text-dedup SimHash": "text-dedup==0.4.0",
    "datatrove MinHash": "datatrove[processing]==0.10.1 pyarrow spacy orjson",
}
# The documents that a tool is given at most: more would take hours, or more memory than there is.
MOST = {
    "rensa, a script": 1_000_000,
    "text-dedup MinHash": 1_000_000,
    "text-dedup SimHash": 100_000,
    "datatrove MinHash": 100_000,
}
ROWS = 50_000
# Corpora of texts that are much alike: their records, and the tools that don't take hours.
ALIKE = {"one template": (templates.template, 20_000), "versions": (templates.versions, 20_000)}
TOOLS = ("fpdb", "rensa, a script")
SAMPLE = 200
MEASURED = "records/s", "memory, MB", "disk, MB"
FIGURES = (*MEASURED, "recall", f"precision at {WRONG}", f"precision at {SIMILAR}")


class Corpus:
    """Documents of which it is known which ones are similar."""

    def __init__(self, path, documents):
        self.documents = documents
        dice = random.Random(18)
        vocabulary = [_word(dice) for _ in range(30_000)]
        # Some words are as frequent as in a language, the others are what makes texts differ.
        weights = [1 / (rank + 10) for rank in range(len(vocabulary))]
        pool = dice.choices(vocabulary, weights, k=1 << 20)
        recent = collections.deque()
        self.similar, self.right = array.array("Q"), set()
        schema = pa.schema([("id", pa.string()), ("text", pa.string())])
        with pq.ParquetWriter(path, schema) as writer:
            for first in range(0, documents, ROWS):
                numbers, texts = range(first, min(first + ROWS, documents)), []
                for number in numbers:
                    kind = dice.randrange(100)
                    if recent and kind < EQUAL + EDITED:
                        family = dice.choice(recent)
                        words = list(family[0][1])
                        for _ in range(dice.randint(*EDITS) if kind >= EQUAL else 0):
                            words[dice.randrange(len(words))] = dice.choice(vocabulary)
                        family.append((number, words))
                    else:
                        begin = dice.randrange(len(pool) - WORDS[1])
                        words = pool[begin : begin + dice.randint(*WORDS)]
                        dice.shuffle(words)
                        if kind < EQUAL + EDITED + 20:  # the others are never copied
                            recent.append([(number, words)])
                            if len(recent) > RECENT:  # it gets no more copies
                                self._judge(recent.popleft())
                    texts.append(" ".join(words))
                ids = pa.array(map(str, numbers))
                writer.write_table(pa.table([ids, pa.array(texts)], schema=schema))
        for family in recent:
            self._judge(family)

    def _judge(self, family):
        """Find the documents that are similar, and those that it would be no mistake to drop."""
        family = [(number, _shingles(words)) for number, words in family if len(family) > 1]
        for (first, own), (second, other) in itertools.combinations(family, 2):
            share = _jaccard(own, other)
            if share >= WRONG:
                self.right.update((first, second))
            if share >= SIMILAR:
                self.similar.extend((first, second))

    def surplus(self, kept):
        """Count those that should go: similar to an earlier one, of some, that should stay."""
        gone = set()
        similar = sorted(zip(self.similar[1::2], self.similar[::2], strict=True))
        for number, earlier in similar:
            if number in kept and earlier in kept and earlier not in gone:
                gone.add(number)
        return len(gone)

    def rate(self, kept):
        """Return the recall and the precisions of what was dropped.

        Tools keep different documents of a group. So it counts which of those that were kept should
        still go, and not which ones went. A dropped one may be like any other for the first
        precision, and is like one that was kept for the second.
        """
        kept, similar = set(kept), (self.similar[::2], self.similar[1::2])
        dropped = set(range(self.documents)) - kept
        missed = self.surplus(kept) / self.surplus(range(self.documents))
        pairs = itertools.chain(zip(*similar, strict=True), zip(*similar[::-1], strict=True))
        near = {number for number, other in pairs if other in kept}
        return 1 - missed, *(
            len(dropped & each) / max(len(dropped), 1) for each in (self.right, near)
        )


class Alike:
    """Documents of which many are like each other."""

    def __init__(self, path, make, documents):
        self.texts = list(make(random.Random(1), documents))
        pq.write_table(pa.table({"id": map(str, range(documents)), "text": self.texts}), path)

    def rate(self, kept):
        """Return which share of some dropped documents is similar to one that was kept."""
        kept = set(kept)
        dropped = [number for number in range(len(self.texts)) if number not in kept]
        sets = {number: _shingles(self.texts[number].split()) for number in kept}
        sample = random.Random(1).sample(dropped, min(SAMPLE, len(dropped)))
        right = 0
        for number in sample:
            own = _shingles(self.texts[number].split())
            right += any(_jaccard(own, other) >= SIMILAR for other in sets.values())
        return right / max(len(sample), 1)


def _word(dice):
    return "".join(dice.choice("bcdfghklmnprstvw") + dice.choice("aeiou") for _ in range(3))


def _shingles(words):
    return set(zip(words, words[1:], words[2:], strict=False))


def _jaccard(some, others):
    common = len(some & others)
    return common / (len(some) + len(others) - common)


class Watch(threading.Thread):
    """Watches the memory of a process and its children, and the bytes of a folder.

    Mapped files are counted apart: the system takes their pages back when memory is short.
    """

    def __init__(self, pid, folder):
        super().__init__(daemon=True)
        self.memory = self.mapped = self.disk = 0
        self._pid, self._folder = pid, folder
        self._over = threading.Event()

    def run(self):
        while not self._over.wait(0.5):
            memory, mapped = map(sum, zip(*map(_memory, _tree(self._pid)), strict=True))
            self.memory, self.mapped = max(self.memory, memory), max(self.mapped, mapped)
            self.disk = max(self.disk, _size(self._folder))

    def end(self):
        self._over.set()
        self.join()


def _tree(pid):
    pids = [pid]
    for each in pids:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                pids += map(int, task.read_text("ascii").split())
            except OSError:
                continue
    return pids


def _memory(pid):
    """Return the memory of a process and its mapped files; what several share counts in parts."""
    found = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]:
            name, size, *_ = line.split()
            found[name] = int(size) << 10
    mapped = found.get("Pss_File:", 0)
    return found.get("Pss:", 0) - mapped, mapped


def _size(folder):
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_blocks * 512
        except OSError:
            continue
    return size


def command(name, source, folder):
    """Return what cleans a file with a tool, and where it writes what it keeps."""
    python, output = paired.python(PEERS[name]), folder / "out"
    if name == "fpdb":
        output = folder / "out.parquet"
        clean = [python, "-m", "fpdb", "dedupe", source, "-o", output, "--jobs", "0"]
        return [*clean, "--key-field", "id", "--quiet"], output
    if name.startswith("text-dedup"):
        method = name.split()[1].lower()
        clean = [python, "-m", f"text_dedup.{method}", "--path", "parquet", "--data_files", source]
        clean += ["--split", "train", "--cache_dir", folder / "cache", "--output", output]
        own = ["--ngram", "3", "--threshold", str(SIMILAR), "--hash_func", "xxh3"]
        return [*clean, "--column", "text", *(own if method == "minhash" else [])], output
    script = SIDES / f"dedupe_with_{re.split(r'[ ,]', name)[0]}.py"
    return [python, script, source, output], output


def run(options):
    found = [measured(size, options.rounds) for size in options.sizes or SIZES]
    rows = [row for rows, _ in found for row in rows]
    alike = [row for name in ALIKE for row in rows_alike(name, options.rounds)]
    return {"note": " ".join(note for _, note in found), "tables": [rows, alike]}


def rows_alike(corpus_name, rounds, names=TOOLS):
    make, documents = ALIKE[corpus_name]
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "corpus.parquet"
        corpus = Alike(source, make, documents)
        measures = {name: partial(measure, name, source, Path(place) / "work") for name in names}
        return [
            {
                "documents": f"{documents:,}, {corpus_name}",
                "tool": name,
                **figures(documents, [own for own, _ in results]),
                "removed": f"{1 - len(results[-1][1]) / documents:.1%}",
                f"precision at {SIMILAR}": f"{corpus.rate(results[-1][1]):.3f}",
            }
            for name, results in paired.in_turn(measures, rounds).items()
        ]


def figures(documents, taken):
    """Return the speed, the memory and the disk of a tool."""
    seconds, own, mapped, disk = zip(*taken, strict=True)
    most = [f"{max(each) / 1e6:,.0f}" for each in (own, mapped, disk)]
    shown = f"{documents / statistics.median(seconds):,.0f}", f"{most[0]} + {most[1]}", most[2]
    return dict(zip(MEASURED, shown, strict=True))


def measured(documents, rounds, names=PEERS):
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "corpus.parquet"
        corpus = Corpus(source, documents)
        share = corpus.surplus(range(documents)) / documents
        note = (
            f"{documents:,} documents, {source.stat().st_size / 1e6:,.0f} MB of Parquet; "
            f"{share:.1%} of them should go."
        )
        measures = {
            name: partial(measure, name, source, Path(place) / "work")
            for name in names
            if documents <= MOST.get(name, documents)
        }
        rows = []
        for name, results in paired.in_turn(measures, rounds).items():
            shares = [f"{share:.3f}" for share in corpus.rate(results[-1][1])]
            row = {"documents": f"{documents:,}", "tool": name}
            row |= figures(documents, [own for own, _ in results])
            rows.append(row | dict(zip(FIGURES[len(MEASURED) :], shares, strict=True)))
    return rows, note


def measure(name, source, folder):
    folder.mkdir()
    clean, output = command(name, source, folder)
    quiet = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder)}
    log = folder / "log.txt"
    with log.open("wb") as said:
        started = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, clean)),
            env=paired.environment(**quiet),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=folder,
        )
        watch = Watch(process.pid, folder)
        watch.start()
        code = process.wait()
        seconds = time.perf_counter() - started
    watch.end()
    try:
        if code:
            raise MissingError(log.read_text("utf-8", "replace")[-2000:])
        kept = paired.run([paired.python(PEERS[name]), SIDES / "kept.py", output])
        return (seconds, watch.memory, watch.mapped, watch.disk), set(map(int, kept.split()))
    finally:
        shutil.rmtree(folder)
