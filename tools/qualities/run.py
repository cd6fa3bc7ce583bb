"""Measure what is found, by fpdb and by others, print the tables, and with --write publish them."""

import argparse
import json
import platform
import re
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import copies
import corpora
import numpy as np
import peers
import picture
import recipes
import report

from fpdb import Thresholds
from fpdb.joins.evaluation import rate

DOCS = Path(__file__).parents[2] / "docs" / "explanation"
PAGE, RAW = DOCS / "quality.md", DOCS / "quality.json"
KS = range(13)
LIMITS = Thresholds()
SIMILARITY = 0.8
EDGES = (0.8, 0.85)


def say(words):
    print(f"[quality] {words}", file=sys.stderr, flush=True)


def measure(name):
    """Evaluate everything on one corpus, equal texts counted once."""
    whole = corpora.load(name)
    listed = whole.check()
    corpus = whole.distinct()
    say(f"{name}: {len(corpus.texts):,} different texts; {listed:,} listed pairs agree")
    truth = corpus.truth
    true = [int((truth.jaccards[apart(truth)] >= edge).sum()) for edge in EDGES]
    found = {
        "documents": len(whole.texts),
        "different": len(corpus.texts),
        "true": true,
        "answers": {},
        "recipes": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        methods = {"fpdb": copies.Database(Path(folder) / "db"), **peers.indexes(SIMILARITY)}
        for label, method in methods.items():
            started = time.process_time()
            found["answers"][label] = rate_pairs(truth, *pairs_of(method, corpus))
            say(f"{name}: {label}, {time.process_time() - started:.1f} s")
        found["failed"] = methods["simhash"].failed
    for label, recipe in recipes.candidates().items():
        started = time.process_time()
        runs = [
            rate(each, corpus.texts, truth, KS, LIMITS).ratings for each in recipes.rehashed(recipe)
        ]
        found["recipes"][label] = [spread(ratings) for ratings in zip(*runs, strict=True)]
        say(f"{name}: {label}, {time.process_time() - started:.1f} s")
    if whole.raw is not whole.texts:
        tags = recipes.DEFAULT.replace(name="web-tags", clean=("tags", "unicode"))
        short = [
            rate(each, texts, whole.truth, [3], LIMITS).short
            for each, texts in ((tags, whole.raw), (recipes.DEFAULT, whole.texts))
        ]
        found["tags"] = dict(zip(("pages", "texts"), short, strict=True))
    return found, drawing(corpus)


def drawing(corpus):
    """Draw precision and recall of the default recipe, and what is found by similarity."""
    default = rate(recipes.DEFAULT, corpus.texts, corpus.truth, KS, LIMITS, similarity=SIMILARITY)
    true = int((corpus.truth.jaccards[apart(corpus.truth)] >= LIMITS.truth_from).sum())
    counted = f"{corpus.name}: {len(corpus.texts):,} different texts, {true:,} true pairs"
    limits = (
        f"true from {LIMITS.truth_from:g}, right from {LIMITS.right_from:g}, wrong below "
        f"{LIMITS.wrong_below:g}; {default.short:,} texts too short; similar: from {SIMILARITY:g}"
    )
    return picture.draw([counted, limits], default)


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
        "similar": int((jaccards >= SIMILARITY).sum()),
        "found": [int((jaccards >= edge).sum()) for edge in EDGES],
    }


def spread(ratings):
    """Sum up the ratings of one recipe at one k with several hashes."""
    precisions = [each.precision for each in ratings if each.precision is not None]
    recalls = [each.recall for each in ratings]
    shown = {
        "precision": sum(precisions) / len(precisions) if precisions else None,
        "worst": min(precisions, default=None),
        "recall": sum(recalls) / len(recalls),
        "least": min(recalls),
        "most": max(recalls),
    }
    rounded = {name: None if each is None else round(each, 4) for name, each in shown.items()}
    return {"k": ratings[0].k, **rounded}


def keep(raw):
    """Write what was measured as JSON, each rating on one line."""
    shown = json.dumps(raw, indent=1, ensure_ascii=False)
    shown = re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), shown)
    RAW.write_text(shown + "\n", "utf-8")


def write(body):
    """Replace what is between the marks of the page."""
    begin, end = "<!-- quality -->", "<!-- end quality -->"
    page = PAGE.read_text("utf-8")
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(page):
        sys.exit(f"{PAGE} has no marks")
    PAGE.write_text(pattern.sub(lambda _: f"{begin}\n{body}\n{end}", page), "utf-8")


def main():
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="tools/quality", description=__doc__)
    every = list(dict.fromkeys([*corpora.NAMES, *copies.NAMES]))
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help="which, default all")
    parser.add_argument("--copies", action="store_true", help="measure edited copies only")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and its pictures")
    parser.add_argument("--again", action="store_true", help="tables from the figures kept before")
    options = parser.parse_args()
    names = options.corpora or every
    if unknown := set(names) - set(every):
        parser.error(f"found {', '.join(sorted(unknown))}, expected {', '.join(every)}")
    before = json.loads(RAW.read_text("utf-8")) if options.again or options.copies else {}
    raw = {part: before.get(part, {}) for part in ("versions", "corpora", "copies")}
    if not options.again:
        raw["versions"] = [
            *(f"{each} {version(each)}" for each in ("fpdb-store", *peers.PACKAGES, "numpy")),
            f"Python {platform.python_version()}",
        ]
        for name in names:
            if name in copies.NAMES:
                raw["copies"][name] = copies.measure(name, say)
            if name in corpora.NAMES and not options.copies:
                raw["corpora"][name], drawn = measure(name)
                if options.write:
                    (DOCS / f"quality-{name}.svg").write_text(drawn, "utf-8")
    body = report.body(raw)
    print(body)
    if options.write:
        keep(raw)
        write(body)


if __name__ == "__main__":
    main()
