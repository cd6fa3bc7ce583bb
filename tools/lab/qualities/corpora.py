"""The corpora: their texts, and the exact similarity of all pairs."""

import gzip
import html
import json
import os
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from fpdb.joins.evaluation import exact_truth
from fpdb.joins.exact import sets_of

NAMES = ("news-zh", "laws-zh", "reuters-en", "manual-html-en", "javadoc-en")
FLOOR = 0.5
TEXTS = ("article_body", "html", "text")
# The similarities that a corpus comes with are rounded to four places.
ROUNDING = 5.1e-5
_COMMENT = re.compile("<!--.*?-->", re.DOTALL)
# A script of this type is no script: pages of the manual keep all of their text in one.
_HIDDEN = re.compile(
    r"<style[^>]*>.*?</style>|<script(?![^>]*handlebars)[^>]*>.*?</script>",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<[^>]+>")


@dataclass(frozen=True)
class Corpus:
    name: str
    keys: list
    texts: list
    raw: list

    @cached_property
    def shingles(self):
        """Return the shingles of each text: 5 characters without white space, or 3 words."""
        cut = characters if self.name.endswith("-zh") else words
        return [cut(text) for text in self.texts]

    @cached_property
    def truth(self):
        """Return the similarity of all pairs that reach .5."""
        names = {}
        sets = [[names.setdefault(each, len(names)) for each in own] for own in self.shingles]
        flat = np.array([number for own in sets for number in own], np.int64)
        counts = np.array([len(own) for own in sets], np.int64)
        bare = ["".join(text.split()) for text in self.texts]
        return exact_truth(sets_of(flat, counts, bare), FLOOR)

    def distinct(self):
        """Return the corpus with one text for all that are equal but for white space."""
        places = {}
        for place, text in enumerate(self.texts):
            places.setdefault("".join(text.split()), place)
        kept = list(places.values())
        texts = [self.texts[place] for place in kept]
        return Corpus(self.name, [self.keys[place] for place in kept], texts, texts)

    def check(self):
        """Compare the similarities of the pairs that the corpus comes with; give their number."""
        if not (folder() / self.name / "pairs.tsv").exists():
            return 0
        number = {key: place for place, key in enumerate(self.keys)}
        lines = (folder() / self.name / "pairs.tsv").read_text("utf-8").splitlines()[1:]
        rows = [line.split("\t") for line in lines]
        first, second = (np.array([number[row[side]] for row in rows]) for side in (0, 1))
        given = np.array([float(row[2]) for row in rows])
        own = self.truth.look_up(first, second)
        own[self.truth.equal(first, second)] = 1
        # The corpora count two texts without shingles as equal.
        bare = np.array([not shingles for shingles in self.shingles])
        own[bare[first] & bare[second]] = 1
        wrong = (np.abs(own - given) > ROUNDING) & ((given >= FLOOR) | (own > 0))
        if wrong.any():
            sys.exit(f"{self.name}: {wrong.sum()} pairs of pairs.tsv have another similarity")
        return len(rows)


def characters(text, n=5):
    """Cut windows of characters, without white space."""
    text = "".join(text.split())
    return {text[at : at + n] for at in range(len(text) - n + 1)}


def words(text, n=3):
    found = re.findall(r"\w+", text.lower())
    return {" ".join(found[at : at + n]) for at in range(len(found) - n + 1)}


def extracted(page):
    """Take the text of a page, with that which hides in templates."""
    return html.unescape(_TAG.sub(" ", _HIDDEN.sub(" ", _COMMENT.sub(" ", page))))


def folder():
    try:
        return Path(os.environ["FPDB_CORPORA"])
    except KeyError:
        sys.exit("set FPDB_CORPORA to the folder of the corpora")


def records(name, files="*"):
    paths = sorted((folder() / name).glob(f"{files}.jsonl.gz"))
    if not paths:
        sys.exit(f"{folder() / name} has no documents ({files}.jsonl.gz)")
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def load(name):
    found = list(records(name))
    # Where there is the text of an article as a person took it, it is used.
    raw = [next(record[each] for each in TEXTS if each in record) for record in found]
    texts = [extracted(page) for page in raw] if name.startswith("manual-html") else raw
    return Corpus(name, [str(record["id"]) for record in found], texts, raw)
