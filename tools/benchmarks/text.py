"""How fast texts become fingerprints, beside the PyPI package simhash, and a cold start."""

import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import fpdb
from fpdb.fingerprint.segmentation import jieba_tokenizer

ENGLISH = "A short text about ten plain words that someone typed today"
# (recipe, corpus, the megabytes a second to reach, how many times as fast as simhash)
ROWS = [
    ("web", "news-zh", 8, 5),
    ("words", "news-zh", None, None),
    ("char-4", "news-zh", 20, 12),
    ("web", "reuters-en", 15, None),
    ("words", "reuters-en", None, None),
    ("char-4", "reuters-en", None, None),
    ("web-128", "news-zh", None, None),
]
PEER_BYTES = 1_500_000
COLD_START = 0.4


def corpus(name):
    """Read a corpus, or make one up when it isn't there."""
    folder = os.environ.get("FPDB_CORPORA")
    path = Path(folder or ".", name, "documents.jsonl.gz")
    if folder and path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line)["text"] for line in lines], "real"
    return _made_up(chinese=name.endswith("zh")), "made up"


def _made_up(*, chinese):
    """Make texts whose words are as unevenly frequent as those of a language."""
    generator = random.Random(7)
    if chinese:
        frequencies = jieba_tokenizer().FREQ
        words = sorted((word for word in frequencies if frequencies[word]), key=frequencies.get)
        words = words[:-30_000:-1]
        space, stop = "", "。"
    else:
        syllables = [a + b for a in "bcdfghlmnprst" for b in ("a", "e", "i", "o", "u", "en", "or")]
        words = ["".join(generator.choices(syllables, k=1 + n % 4)) for n in range(20_000)]
        space, stop = " ", ". "
    weights = [1 / (rank + 3) for rank in range(len(words))]
    texts = []
    for _ in range(4_000):
        chosen = generator.choices(words, weights, k=generator.randrange(60, 500))
        texts.append(
            stop.join(space.join(chosen[at : at + 11]) for at in range(0, len(chosen), 11))
        )
    return texts


def _size(texts):
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _sample(texts, size):
    """Take texts from all over the corpus that make up a number of bytes: the peer is slow."""
    every = max(_size(texts) // size, 1)
    return texts[::every]


def _timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _cold_start():
    command = [sys.executable, "-m", "fpdb", "fingerprint", "--text", ENGLISH]
    return _timed(lambda: subprocess.run(command, check=True, capture_output=True))


def run(rounds):
    """Measure all rows, each contender once in every round."""
    from simhash import Simhash

    texts, kinds = {}, {}
    for name in {row[1] for row in ROWS}:
        texts[name], kinds[name] = corpus(name)
    samples = {name: _sample(texts[name], PEER_BYTES) for name in texts}
    works = {}
    for recipe, name, *_ in ROWS:
        chosen = fpdb.recipe(recipe)
        for part, source in (("all", texts[name]), ("sample", samples[name])):
            works[recipe, name, part] = lambda chosen=chosen, source=source: chosen.batch(source)
    for name, sample in samples.items():
        works["simhash", name, "sample"] = lambda sample=sample: [
            Simhash(text).value for text in sample
        ]
    works["cold start"] = _cold_start
    seconds = {work: [] for work in works}
    for work in works.values():
        work()  # loads dictionaries and fills caches
    for _ in range(rounds):
        for work, function in works.items():
            seconds[work].append(function() if function is _cold_start else _timed(function))

    def speed(recipe, name, part):
        size = _size((texts if part == "all" else samples)[name])
        return size / statistics.median(seconds[recipe, name, part]) / 1e6

    rows = []
    for recipe, name, target, times in ROWS:
        own, peer = speed(recipe, name, "all"), speed("simhash", name, "sample")
        ratio = speed(recipe, name, "sample") / peer
        reached = (not target or own >= target) and (not times or ratio >= times)
        rows.append(
            {
                "row": f"{recipe}, {name}",
                "fpdb": f"{own:.1f} MB/s",
                "simhash": f"{peer:.2f} MB/s",
                "ratio": f"{ratio:.1f}",
                "target": f"{target or '-'} MB/s, {times or '-'} times",
                "reached": "yes" if reached else "**no**",
            }
        )
    cold = statistics.median(seconds["cold start"])
    rows.append(
        {
            "row": "cold start of fpdb fingerprint, one short English text",
            "fpdb": f"{cold:.2f} s",
            "simhash": "-",
            "ratio": "-",
            "target": f"{COLD_START} s",
            "reached": "yes" if cold < COLD_START else "**no**",
        }
    )
    sources = ", ".join(
        f"{name} {kinds[name]}, {_size(texts[name]) / 1e6:.1f} MB" for name in sorted(texts)
    )
    notes = (
        f"One core, one process; corpora: {sources}; the ratio is that of a sample of about "
        "1.5 MB, the same texts for both."
    )
    return (
        rows,
        {
            " ".join(work) if isinstance(work, tuple) else work: taken
            for work, taken in seconds.items()
        },
        notes,
    )
