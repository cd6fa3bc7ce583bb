"""Measure texts: looked up and added beside peers, and as fingerprints alone.

The texts are mixes of real sentences, from the folder that FPDB_CORPORA names, or of made ones. One
text in five is an earlier one with some sentences replaced, and one of these is known to be similar
if its runs of three words, or of five Chinese characters, are so by Jaccard. Each side runs in an
environment of its own and on one core, in turn with the others; what it finds is judged.
"""

import gzip
import json
import os
import random
import re
import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import paired
from paired import QUIET, in_turn, median, timed, written
from sides.texts_with import SIMILAR, shingles

import fpdb
from fpdb import kernels

DOCUMENTS, LENGTH = 8_000, 3_000
EDITED, MOST_EDITS, RECENT = 5, 6, 2_000
WRONG = 0.7  # to find a text that is less similar is a mistake
SLOW = 10  # what took N seconds isn't repeated
PATIENCE = 180
LANGUAGES = {"en": ("English", "reuters-en"), "zh": ("Chinese", "news-zh")}
# side -> (its label, its package, whether kernels are used)
SIDES = {
    "fpdb bits": ("fpdb, bits, k = 3", None, True),
    "fpdb bits 7": ("fpdb, bits, k = 7", None, True),
    "fpdb": ("fpdb, similarity 0.8", None, True),
    "fpdb without": ("fpdb, similarity 0.8, without kernels", None, False),
    "gaoya SimHash": ("gaoya SimHash, 64 bits, 3 of them differ", "gaoya==0.2.2", True),
    "gaoya MinHash": ("gaoya MinHash", "gaoya==0.2.2", True),
    "rensa": ("rensa MinHash and LSH, shingles cut in Python", "rensa==0.5.0", True),
    "datasketch": ("datasketch MinHash and LSH", "datasketch==2.0.0", True),
    "simhash": ("simhash, k = 3", "simhash==2.1.2", True),
}
# Recipes, and whether texts are sketched, too.
ALONE = [("web", False), ("web", True), ("char-4", False)]
WAYS = ("in batches", "one by one", "with a thread for each core", "without kernels")
ALONE_TEXTS = 1_000
BOTH = "looked up, then added; English / Chinese"


def corpus(name):
    folder = os.environ.get("FPDB_CORPORA")
    path = Path(folder or ".", name, "documents.jsonl.gz")
    if folder and path.exists():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line)["text"] for line in lines], "real"
    return _made_up(chinese=name.endswith("zh")), "made up"


def _made_up(*, chinese):
    """Make texts whose words are as unevenly frequent as those of a language."""
    dice = random.Random(7)
    letters = [chr(number) for number in range(0x4E00, 0x9FA5)] if chinese else "etaoinshrdlu"
    words = [
        "".join(dice.choices(letters, k=dice.randint(2, 3 + 6 * (not chinese))))
        for _ in range(20_000)
    ]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    space, stop = ("", "。") if chinese else (" ", ". ")
    texts = []
    for _ in range(4_000):
        chosen = dice.choices(words, weights, k=dice.randrange(60, 500))
        parts = (chosen[at : at + 11] for at in range(0, len(chosen), 11))
        texts.append("".join(f"{space.join(part)}{stop}" for part in parts))
    return texts


class Mixes:
    """Texts of random sentences; `similar` and `right` have the places of those to be found.

    Those of `right` may be found: they are no less similar than `WRONG` to an earlier text.
    """

    def __init__(self, language, documents):
        dice = random.Random(19)
        name, corpus_name = LANGUAGES[language]
        sources, kind = corpus(corpus_name)
        pattern, between = (
            (r"[^。！？\n]+[。！？]", "") if language == "zh" else (r"\S[^.\n]+\.", " ")
        )
        found = {each for text in sources for each in re.findall(pattern, text)}
        pool = sorted(each for each in found if 30 < len(each.encode()) < 600)
        dice.shuffle(pool)
        self.texts, self.similar, self.right = [], set(), set()
        originals = []
        for number in range(documents):
            if number % EDITED == EDITED - 1:
                # Each is edited once, so that no two others are similar.
                before = originals.pop(dice.randrange(len(originals)))
                sentences = list(before)
                for _ in range(dice.randrange(MOST_EDITS)):
                    sentences[dice.randrange(len(sentences))] = dice.choice(pool)
                own, others = (
                    shingles(between.join(each), language) for each in (sentences, before)
                )
                share = len(own & others) / len(own | others)
                self.similar |= {number} if share >= SIMILAR else set()
                self.right |= {number} if share >= WRONG else set()
            else:
                sentences, size = [], 0
                while size < LENGTH:
                    sentences.append(dice.choice(pool))
                    size += len(sentences[-1].encode())
                originals = [*originals[-RECENT:], sentences]
            self.texts.append(between.join(sentences))
        self.note = f"{name}: {len(pool):,} {kind} sentences"

    def rate(self, found):
        found = set(found)
        recall = len(found & self.similar) / len(self.similar)
        return recall, len(found & self.right) / max(len(found), 1)


def size_of(texts):
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def look_and_add(name, language, path):
    _, package, kernel = SIDES[name]
    variables = QUIET | ({} if kernel else {"FPDB_KERNELS": "0"})
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        words = [name.removesuffix(" without"), language, path, folder]
        return paired.answer_of(
            "texts_with.py", *words, package=package, timeout=PATIENCE, **variables
        )


def beside_peers(mixes, rounds):
    with tempfile.TemporaryDirectory(prefix="fpdb-bench-") as folder:
        measures = {}
        for language, mix in mixes.items():
            path = Path(folder) / f"{language}.jsonl"
            path.write_text("".join(f"{json.dumps(text)}\n" for text in mix.texts), "utf-8")
            for name in SIDES:
                measures[name, language] = partial(look_and_add, name, language, path)
        return in_turn(measures, rounds, SLOW)


def rows_of_peers(mixes, answers):
    rates = {
        (name, language): len(mixes[language].texts)
        / statistics.median(each["seconds"] for each in taken)
        for (name, language), taken in answers.items()
    }
    rows = []
    for name, (label, *_) in SIDES.items():
        cells = {column: [] for column in ("a second", "recall", "precision")}
        for language, mix in mixes.items():
            rate = rates.get((name, language))
            shares = mix.rate(answers[name, language][0]["found"]) if rate else ()
            shown = [f"{rate:,.0f}" if rate else "-"]
            shown += [f"{share:.3f}" for share in shares] or ["-", "-"]
            for cell, figure in zip(cells.values(), shown, strict=True):
                cell.append(figure)
        rows.append({BOTH: label} | {column: " / ".join(own) for column, own in cells.items()})
    return rows


def ways_of(recipe, texts, pool, *, sketched):
    batch = partial(fpdb.recipe(recipe).batch, sketches=sketched)
    threads = len(os.sched_getaffinity(0))
    parts = [texts[at::threads] for at in range(threads)]

    def without_kernels():
        before, kernels.enabled = kernels.enabled, False
        try:
            batch(texts)
        finally:
            kernels.enabled = before

    batch(texts[:20])  # loads dictionaries and fills caches
    return {
        "in batches": lambda: batch(texts),
        "one by one": lambda: [batch([text]) for text in texts],
        "with a thread for each core": lambda: list(pool.map(batch, parts)),
        "without kernels": without_kernels,
    }


def alone(mixes, rounds):
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        measures = {
            (recipe, sketched, language, way): partial(timed, work)
            for language, mix in mixes.items()
            for recipe, sketched in ALONE
            for way, work in ways_of(
                recipe, mix.texts[:ALONE_TEXTS], pool, sketched=sketched
            ).items()
        }
        found = in_turn(measures, rounds, SLOW)
    return {
        where: size_of(mixes[where[2]].texts[:ALONE_TEXTS]) / median(taken) / 1e6
        for where, taken in found.items()
    }


def rows_alone(speeds):
    rows = []
    for recipe, sketched in ALONE:
        own = {way: [speeds[recipe, sketched, each, way] for each in LANGUAGES] for way in WAYS}
        cells = {way: " / ".join(map(written, found)) for way, found in own.items()}
        name = {"MB/s, English / Chinese": f"{recipe}{' and sketch' if sketched else ''}"}
        rows.append(name | cells)
    return rows


def run(options):
    documents, rounds = (options.sizes or [DOCUMENTS])[0], options.rounds
    mixes = {language: Mixes(language, documents) for language in LANGUAGES}
    speeds = alone(mixes, rounds)
    answers = beside_peers(mixes, rounds)
    versions = {each["version"] for taken in answers.values() for each in taken}
    named = ", ".join(sorted(version for version in versions if not version.startswith("fpdb")))
    similar = sum(len(mix.similar) for mix in mixes.values()) / documents / len(mixes)
    note = (
        f"{documents:,} texts of {LENGTH:,} bytes in each language; "
        f"{'; '.join(mix.note for mix in mixes.values())}. {similar:.1%} of the texts are "
        f"similar to an earlier one. {named}; kernels {'' if kernels.available else '**not** '}"
        f"built. Medians of {paired.rounds_of(rounds)}; what took {SLOW} s isn't repeated."
    )
    return {"note": note, "tables": [rows_of_peers(mixes, answers), rows_alone(speeds)]}
