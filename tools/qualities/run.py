"""Evaluate the candidates and the peers, print the tables, and with --write publish them."""

import argparse
import json
import platform
import re
import sys
import time
from importlib.metadata import version
from pathlib import Path

import corpora
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
SURE = Thresholds(truth_from=0.85)
SIMILARITY = 0.8


def say(words):
    print(f"[quality] {words}", file=sys.stderr, flush=True)


def measure(name, *, hashes):
    """Evaluate everything on one corpus."""
    corpus = corpora.load(name)
    listed = corpus.check()
    truth = corpus.truth
    say(f"{name}: {len(corpus.texts):,} documents; {listed:,} listed pairs agree")
    first, second = truth.pairs()
    apart = truth.jaccards[~truth.equal(first, second)]
    found = {
        "documents": len(corpus.texts),
        "listed": listed,
        "true": int((apart >= LIMITS.truth_from).sum()),
        "equal": truth.equal_pairs(),
        "recipes": {},
        "wide": [],
        "hashes": {},
        "peers": {},
    }
    for label, recipe in recipes.candidates(corpus.texts).items():
        started = time.process_time()
        quality = rate(recipe, corpus.texts, truth, KS, LIMITS)
        say(f"{name}: {label}, {time.process_time() - started:.1f} s")
        found["recipes"][label] = [rating._asdict() for rating in quality.ratings]
    wide = rate(recipes.wide(), corpus.texts, truth, range(25), LIMITS)
    found["wide"] = [rating._asdict() for rating in wide.ratings]
    default = rate(recipes.DEFAULT, corpus.texts, truth, KS, LIMITS, similarity=SIMILARITY)
    sure = rate(recipes.DEFAULT, corpus.texts, truth, KS, SURE, similarity=SIMILARITY)
    found["short"] = default.short
    found["similar"] = default.similar._asdict()
    found["sure"] = sure.similar._asdict()
    if hashes:
        for label, same in recipes.rehashed().items():
            ratings = [rate(each, corpus.texts, truth, [3], LIMITS) for each in same]
            found["hashes"][label] = [each.ratings[0]._asdict() for each in ratings]
            say(f"{name}: {label}, {len(same)} hashes")
    if corpus.raw is not corpus.texts:
        tags = recipes.DEFAULT.replace(name="web-tags", clean=("tags", "unicode"))
        found["tags"] = rated_tags(tags, corpus)
    near, found["failed"] = peers.simhash_pairs(corpus.texts)
    pairs = {"simhash": near, "datasketch": peers.datasketch_pairs(corpus.shingles)}
    found["peers"] = {peer: rate_pairs(truth, *own) for peer, own in pairs.items()}
    say(f"{name}: peers")
    counted = (
        f"{name}: {found['documents']:,} documents, {found['true']:,} true pairs, "
        f"{found['equal']:,} pairs of equal texts left out; {default.short:,} texts too short"
    )
    limits = (
        f"true from {LIMITS.truth_from:g}, right from {LIMITS.right_from:g}, wrong below "
        f"{LIMITS.wrong_below:g}; similar: what a database finds from {SIMILARITY:g} on"
    )
    return found, picture.draw([counted, limits], default)


def rated_tags(recipe, corpus):
    """Rate a recipe that drops tags itself, on the pages as they are."""
    quality = rate(recipe, corpus.raw, corpus.truth, [3], LIMITS)
    return {"short": quality.short, **quality.ratings[0]._asdict()}


def rate_pairs(truth, first, second):
    """Rate pairs that somebody else found."""
    equal = truth.equal(first, second)
    jaccards = truth.look_up(first[~equal], second[~equal])
    counts = {
        "equal": int(equal.sum()),
        "reported": len(jaccards),
        "right": int((jaccards >= LIMITS.right_from).sum()),
        "wrong": int((jaccards < LIMITS.wrong_below).sum()),
        "found": int((jaccards >= LIMITS.truth_from).sum()),
        "sure": int((jaccards >= SURE.truth_from).sum()),
    }
    known = ~truth.equal(*truth.pairs())
    true = int((known & (truth.jaccards >= LIMITS.truth_from)).sum())
    rated = counts["right"] + counts["wrong"]
    return counts | {
        "precision": counts["right"] / rated if rated else None,
        "recall": counts["found"] / true if true else None,
    }


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
    parser.add_argument("corpora", nargs="*", metavar="CORPUS", help="which, default all four")
    parser.add_argument("--no-hashes", action="store_true", help="measure with one hash each")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} and its pictures")
    parser.add_argument("--again", action="store_true", help="tables from the figures kept before")
    options = parser.parse_args()
    python = f"Python {platform.python_version()}"
    names = options.corpora or list(corpora.NAMES)
    if unknown := set(names) - set(corpora.NAMES):
        parser.error(f"found {', '.join(sorted(unknown))}, expected {', '.join(corpora.NAMES)}")
    if options.again:
        raw = json.loads(RAW.read_text("utf-8"))
    else:
        packages = ("fpdb", "simhash", "datasketch", "numpy")
        raw = {
            "versions": [*(f"{each} {version(each)}" for each in packages), python],
            "corpora": {},
        }
        for name in names:
            raw["corpora"][name], drawn = measure(name, hashes=not options.no_hashes)
            if options.write:
                (DOCS / f"quality-{name}.svg").write_text(drawn, "utf-8")
    body = report.body(raw)
    print(body)
    if options.write:
        keep(raw)
        write(body)


if __name__ == "__main__":
    main()
