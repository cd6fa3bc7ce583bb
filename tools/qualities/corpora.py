"""The four corpora: their texts, the shingles of their truth, and the pairs that came with them."""

import gzip
import html
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fpdb.corpus.evaluation import classes
from fpdb.corpus.truth import exact_truth

FLOOR = 0.5
_COMMENT = re.compile("<!--.*?-->", re.DOTALL)
# A script of this type is no script: pages of the manual keep all of their text in one.
_HIDDEN = re.compile(
    r"<style[^>]*>.*?</style>|<script(?![^>]*handlebars)[^>]*>.*?</script>",
    re.DOTALL | re.IGNORECASE,
)
_TAG = re.compile(r"<[^>]+>")


@dataclass
class Corpus:
    """Documents, and the exact similarity of all pairs that reach .5."""

    name: str
    keys: list
    texts: list
    chinese: bool
    raw: list

    def shingles(self):
        """Give the shingles of each text: 5 characters without white space, or 3 words."""
        cut = characters if self.chinese else words
        return [cut(text) for text in self.texts]

    def truth(self):
        """Compute the similarity of all pairs."""
        names = {}
        sets = [
            [names.setdefault(shingle, len(names)) for shingle in own] for own in self.shingles()
        ]
        flat = np.array([number for own in sets for number in own], np.uint64)
        counts = np.array([len(own) for own in sets], np.int64)
        return exact_truth(flat, counts, FLOOR, classes(self.texts))


def characters(text, n=5):
    """Cut windows of characters, without white space."""
    text = "".join(text.split())
    return {text[at : at + n] for at in range(len(text) - n + 1)}


def words(text, n=3):
    """Cut runs of words, in lower case."""
    found = re.findall(r"\w+", text.lower())
    return {" ".join(found[at : at + n]) for at in range(len(found) - n + 1)}


def extracted(page):
    """Take the text of a page, with that which hides in templates."""
    return html.unescape(_TAG.sub(" ", _HIDDEN.sub(" ", _COMMENT.sub(" ", page))))


def folder():
    """Give the folder of the corpora."""
    return Path(os.environ["FPDB_CORPORA"])


def load(name):
    """Read a corpus."""
    keys, texts = [], []
    for path in sorted((folder() / name).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for record in map(json.loads, file):
                keys.append(str(record["id"]))
                texts.append(record["html"] if name == "manual-html-en" else record["text"])
    raw = texts
    if name == "manual-html-en":
        texts = [extracted(page) for page in raw]
    return Corpus(name, keys, texts, name.endswith("-zh"), raw)


def listed(name):
    """Read the pairs that a corpus comes with, and the similarity of each."""
    lines = (folder() / name / "pairs.tsv").read_text("utf-8").splitlines()[1:]
    return [
        (one, other, float(value)) for one, other, value in (line.split("\t") for line in lines)
    ]
