"""Measure what is found, by fpdb and by others, print the tables, and with --write publish them."""

import argparse
import dataclasses
import json
import platform
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import copies
import corpora
import methods
import noise
import numpy as np
import pages
import passages
import programs
import published
import removed
import report
import rewording
import stories
import submissions
import titles
from _environment import ROOT

import fpdb
from fpdb import Grams, Secret, Thresholds, Weights
from fpdb.joins.evaluation import rate

DOCS = ROOT / "docs" / "explanation"
PAGE, RAW = DOCS / "quality.md", DOCS / "quality.json"
# What other pages quote; each prints its tables.
OTHERS = {
    "noise": noise,
    "pages": pages,
    "passages": passages,
    "programs": programs,
    "removed": removed,
    "rewording": rewording,
    "stories": stories,
    "submissions": submissions,
    "titles": titles,
}
KS = range(13)
LIMITS = Thresholds()
SIMILARITY = 0.8
EDGES = (0.8, 0.85)
DEFAULT = fpdb.recipe("web")
# The preset that is changed, how many words or characters in a row, and the weight.
RECIPES = {"**web**: shingles, 1 + log count": DEFAULT} | {
    shown: fpdb.recipe(name).replace(grams=Grams(n=n, minimum=8), weights=Weights(by=by))
    for shown, name, n, by in (
        ("words, 1 + log count", "words", 1, "log"),
        ("words, count", "words", 1, "count"),
        ("windows of 4 characters, count", "char-4", 4, "count"),
    )
}
HASHES = 5  # of each recipe: a choice must not rest on one


def say(words):
    print(f"[quality] {words}", file=sys.stderr, flush=True)


def measure(name):
    """Evaluate everything on one corpus, equal texts counted once."""
    whole = corpora.load(name)
    listed = whole.check()
    corpus = whole.distinct()
    say(f"{name}: {len(corpus.texts):,} different texts; {listed:,} listed pairs agree")
    truth = corpus.truth
    found = {"true": [int((truth.jaccards[apart(truth)] >= edge).sum()) for edge in EDGES]}
    with tempfile.TemporaryDirectory() as folder:
        pairs = pairs_of(copies.Database(Path(folder) / "db"), corpus)
    found |= {"answers": {"fpdb": rate_pairs(truth, *pairs)}, "recipes": {}}
    for label, recipe in RECIPES.items():
        runs = []
        for seed in range(HASHES):
            hashed = dataclasses.replace(recipe.hash, secret=Secret(bytes([seed]) * 16))
            own = recipe.replace(hash=hashed)
            runs.append(rate(own, corpus.texts, truth, KS, LIMITS).ratings)
        found["recipes"][label] = [spread(ratings) for ratings in zip(*runs, strict=True)]
        say(f"{name}: {label}")
    return found, drawing(corpus)


def drawing(corpus):
    """Draw precision and recall of the default recipe and by similarity, distances, and bits."""
    found = rate(DEFAULT, corpus.texts, corpus.truth, KS, LIMITS, similarity=SIMILARITY)
    true = int((corpus.truth.jaccards[apart(corpus.truth)] >= LIMITS.truth_from).sum())

    def panels(figure):
        figure.suptitle(
            f"{corpus.name}: {len(corpus.texts):,} different texts, {true:,} true pairs\n"
            f"true from {LIMITS.truth_from:g}, right from {LIMITS.right_from:g}, wrong below "
            f"{LIMITS.wrong_below:g}; {found.short:,} texts too short; similar: from "
            f"{SIMILARITY:g}",
            fontsize=10,
        )
        curves, distances, balance = figure.subplots(1, 3)
        for name, colour in (("precision", "#1a5fb4"), ("recall", "#b3261e")):
            curves.plot(KS, [getattr(each, name) for each in found.ratings], c=colour, label=name)
            if (similar := getattr(found.similar, name)) is not None:  # it doesn't depend on k
                curves.axhline(similar, color=colour, linestyle="--", label=f"similar {name}")
        curves.set(xlabel="k", ylim=(0, 1.02))
        curves.legend()
        for name, counts in (
            ("true pairs", found.true_distances),
            ("other pairs, drawn at random", found.other_distances),
        ):
            shares = [count / max(sum(counts), 1) for count in counts]
            distances.bar(range(len(shares)), shares, width=1, alpha=0.55, label=name)
        distances.set(xlabel="distance")
        distances.legend()
        balance.bar(range(found.bits), found.bit_shares, width=1)
        balance.set(xlabel="bit", ylim=(0, 1), title="share of fingerprints with the bit set")

    return published.svg(panels, figsize=(12, 4.4))


def apart(truth):
    """Mark the pairs whose sets differ."""
    return ~truth.equal(*truth.pairs())


def pairs_of(method, corpus):
    """Return the pairs that a method finds if it is asked for every text."""
    documents = list(zip(corpus.texts, corpus.shingles, strict=True))
    method.store(documents)
    first, second = [], []
    for number, document in enumerate(documents):
        others = [other for other in method.ask(document) if other < number]
        first += others
        second += [number] * len(others)
    return np.array(first, np.int64), np.array(second, np.int64)


def rate_pairs(truth, first, second):
    """Rate pairs that somebody reports; pairs of equal sets are left out."""
    equal = truth.equal(first, second)
    jaccards = truth.look_up(first[~equal], second[~equal])
    return {
        "reported": len(jaccards),
        "right": int((jaccards >= LIMITS.right_from).sum()),
        "found": [int((jaccards >= edge).sum()) for edge in EDGES],
    }


def spread(ratings):
    """Return the mean ratings of one recipe at one k with several hashes."""
    precisions = [each.precision for each in ratings if each.precision is not None]
    recall = sum(each.recall for each in ratings) / len(ratings)
    precision = round(sum(precisions) / len(precisions), 4) if precisions else None
    return {"k": ratings[0].k, "precision": precision, "recall": round(recall, 4)}


def main():
    parser = argparse.ArgumentParser(prog="tools/lab/quality", description=__doc__)
    every = list(dict.fromkeys([*corpora.NAMES, *copies.NAMES]))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="which corpora, all by default; or what other "
        f"pages quote: {', '.join(OTHERS)}",
    )  # fmt: skip
    parser.add_argument("--half", action="store_true", help="only pages no rule was made on")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and its pictures")
    parser.add_argument("--again", action="store_true", help="tables from the figures kept before")
    options = parser.parse_args()
    if unknown := set(options.names) - {*every, *OTHERS}:
        expected = ", ".join([*every, *OTHERS])
        parser.error(f"found {', '.join(sorted(unknown))}, expected {expected}")
    for name, other in OTHERS.items():
        if name in options.names:
            for shown in other.measure(options):
                print(f"{shown}\n", flush=True)
    names = [name for name in options.names if name in every] if options.names else every
    if names:
        publish(names, options)


def publish(names, options):
    before = json.loads(RAW.read_text("utf-8")) if options.again else {}
    raw = {part: before.get(part, {}) for part in ("versions", "corpora", "copies")}
    if not options.again:
        raw["versions"] = [
            *(f"{each} {version(each)}" for each in ("fpdb-store", *methods.PACKAGES, "numpy")),
            f"Python {platform.python_version()}",
        ]
        for name in names:
            if name in copies.NAMES:
                raw["copies"][name] = copies.measure(name, say)
            if name in corpora.NAMES:
                raw["corpora"][name], drawn = measure(name)
                if options.write:
                    (DOCS / f"quality-{name}.svg").write_text(drawn, "utf-8")
    body = report.body(raw)
    print(body)
    if options.write:
        published.keep(RAW, raw)
        published.write(PAGE, "quality", body)


if __name__ == "__main__":
    main()
