"""Measure how long a corpus takes to clean, beside its peers, and what they drop.

The corpus is made: English sentences of made words, some documents copied as they are, some with
a few words replaced. So it is known which document is how similar to which, by the Jaccard
similarity of their runs of three words: a document should go if it is similar from 0.8 to an
earlier one that stays. Each tool has an environment of its own and all processors, reads one
Parquet file, and writes another; the clock runs from its start to its end.
"""

import array
import collections
import contextlib
import itertools
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import environments
import pyarrow as pa
import pyarrow.parquet as pq

SCRIPTS = Path(__file__).parent / "sides"
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
FIGURES = ("records/s", "memory, MB", "disk, MB", "recall", "precision")


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
        """Return the recall and the precision of what was dropped.

        Tools keep different documents of a group. So it counts which of those that were kept should
        still go, and not which ones went.
        """
        dropped = set(range(self.documents)).difference(kept)
        missed = self.surplus(set(kept)) / self.surplus(range(self.documents))
        return 1 - missed, len(dropped & self.right) / max(len(dropped), 1)


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
    """Return a process and all its children."""
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
    """Return what cleans a file with a tool, and what lists the ids that it keeps."""
    if PEERS[name] is None:
        output = folder / "out.parquet"
        clean = [sys.executable, "-m", "fpdb", "dedupe", source, "-o", output, "--jobs", "0"]
        return [*clean, "--key-field", "id", "--quiet"], [
            sys.executable,
            SCRIPTS / "kept.py",
            output,
        ]
    python = environments.python(re.split(r"[=\[]", PEERS[name])[0], PEERS[name])
    if name.startswith("text-dedup"):
        output = folder / "out"
        usual = ["--path", "parquet", "--data_files", source, "--split", "train"]
        usual += ["--cache_dir", folder / "cache", "--output", output, "--column", "text"]
        own = ["--ngram", "3", "--threshold", str(SIMILAR), "--hash_func", "xxh3"]
        method = "minhash" if name.endswith("MinHash") else "simhash"
        clean = [
            python,
            "-m",
            f"text_dedup.{method}",
            *usual,
            *(own if method == "minhash" else []),
        ]
        return clean, [python, SCRIPTS / "kept.py", output]
    script = SCRIPTS / f"dedupe_with_{name.partition(',')[0].split()[0]}.py"
    output = folder / "out"
    return [python, script, source, output], [python, SCRIPTS / "kept.py", output]


def run(documents, rounds, names):
    """Return a row for each tool, and what is to be said of the corpus."""
    rows = []
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "corpus.parquet"
        corpus = Corpus(source, documents)
        size = source.stat().st_size / 1e6
        share = corpus.surplus(range(documents)) / documents
        note = f"{documents:,} documents, {size:,.0f} MB of Parquet; {share:.1%} of them should go."
        for name in names:
            if documents > MOST.get(name, documents):
                continue
            seconds, memory, mapped, disk = [], [], [], []
            for _ in range(rounds):
                folder = Path(place) / "work"
                folder.mkdir()
                clean, listed = command(name, source, folder)
                if taken := measure(name, clean, folder):
                    for values, value in zip((seconds, memory, mapped, disk), taken, strict=True):
                        values.append(value)
                    found = subprocess.run(listed, check=True, capture_output=True, text=True)
                    kept = set(map(int, found.stdout.split()))
                shutil.rmtree(folder)
            row = {"documents": f"{documents:,}", "tool": name, **dict.fromkeys(FIGURES, "-")}
            if seconds:
                middle = statistics.median(seconds)
                shares = [f"{share:.3f}" for share in corpus.rate(kept)]
                own, mapped, disk = (f"{max(each) / 1e6:,.0f}" for each in (memory, mapped, disk))
                shown = [f"{documents / middle:,.0f}", f"{own} + {mapped}", disk, *shares]
                row |= zip(FIGURES, shown, strict=True)
            rows.append(row)
            print(f"[bench] {' '.join(row.values())}", file=sys.stderr, flush=True)
    return rows, note


def measure(name, clean, folder):
    """Run a tool; return its seconds, memory, mapped files and disk, or None if it failed."""
    variables = {each: value for each, value in os.environ.items() if each != "VIRTUAL_ENV"}
    variables |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder)}
    log = folder / "log.txt"
    with log.open("wb") as output:
        started = time.perf_counter()
        process = subprocess.Popen(
            clean, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder
        )
        watch = Watch(process.pid, folder)
        watch.start()
        code = process.wait()
        seconds = time.perf_counter() - started
    watch.end()
    if code:
        tail = log.read_text("utf-8", "replace")[-2000:]
        print(f"[bench] {name} failed: {tail}", file=sys.stderr, flush=True)
        return None
    return seconds, watch.memory, watch.mapped, watch.disk
