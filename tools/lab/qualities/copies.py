"""Edited copies of real passages: which share of them is found, by similarity, and by whom."""

import random
import re
import tempfile
import unicodedata
from collections import defaultdict
from pathlib import Path

import corpora
import edits
import methods

import fpdb

NAMES = (
    "news-zh",
    "laws-zh",
    "html-zh-articles",
    "reuters-en",
    "manual-html-en",
    "javadoc-en",
    "html-en",
)
PASSAGES = 400
EDGES = (0.8, 0.85, 0.9, 0.95, 1.0)
SIMILARITY, RIGHT = 0.8, 0.7
_SIGN = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_TOKEN = re.compile(rf"[{_SIGN}]|[^\W{_SIGN}]+")


def shingles(text):
    """Cut three words or five Chinese characters in a row: the shingles of the documentation.

    A word counts as much as 5/3 characters do, so a shingle spans 15 units.
    """
    tokens = _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())
    units = [5 if len(token) > 1 or not re.match(f"[{_SIGN}]", token) else 3 for token in tokens]
    found = set()
    for start in range(len(tokens)):
        end, span = start, 0
        while end < len(tokens) and span < 15:
            span += units[end]
            end += 1
        if span < 15:
            break
        found.add(" ".join(tokens[start:end]))
    return frozenset(found)


def jaccard(first, second):
    return len(first & second) / len(first | second) if first and second else 0.0


def measure(name, say):
    """Ask every method for each edited copy of each passage of a corpus."""
    corpus = corpora.load(name)
    chinese = name.partition("-zh")[1] != ""
    origin = edits.source(corpus.texts, chinese=chinese, count=PASSAGES)
    stored = [(text, shingles(text)) for text in map("".join, origin.passages)]
    with tempfile.TemporaryDirectory() as folder:
        asked = {"fpdb": Database(Path(folder) / "db"), **methods.indexes(SIMILARITY)}
        for method in asked.values():
            method.store(stored)
        counts = {label: defaultdict(lambda: [0, 0]) for label in asked}
        reports = {label: [0, 0, 0] for label in asked}
        for number, (edit, change) in enumerate(edits.EDITS.items()):
            editor = edits.Editor(origin, random.Random(number))
            for place, own in enumerate(origin.passages):
                text = change(editor, own)
                sought = shingles(text)
                similar = jaccard(stored[place][1], sought)
                known = {place: similar}
                for label, method in asked.items():
                    answers = method.ask((text, sought))
                    if SIMILARITY <= similar < 1:
                        lower = max(edge for edge in EDGES if edge <= similar)
                        counted = counts[label][edit, lower]
                        counted[0] += 1
                        counted[1] += place in answers
                    for answer in answers:
                        if answer not in known:
                            known[answer] = jaccard(stored[answer][1], sought)
                        reports[label][0] += 1
                        reports[label][1] += known[answer] >= RIGHT
                        reports[label][2] += known[answer] >= SIMILARITY
            say(f"{name}: {edit}")
    return {
        "passages": len(stored),
        "chinese": chinese,
        "reports": {
            label: dict(zip(("reported", "right", "similar"), own, strict=True))
            for label, own in reports.items()
        },
        "edits": [
            {"edit": edit, "from": lower, "pairs": counts["fpdb"][edit, lower][0]}
            | {label: own[edit, lower][1] for label, own in counts.items()}
            for edit in edits.EDITS
            for lower in EDGES[:-1]
        ],
    }


class Database:
    def __init__(self, path, recipe="web"):
        """Create a database for the similarity of a recipe; by default, that is the one here."""
        self._database = fpdb.create(path, recipe=recipe, keys="integer")

    def store(self, documents):
        numbered = (fpdb.Document(key, text) for key, (text, _) in enumerate(documents))
        for _ in self._database.add_many(numbered):
            pass

    def ask(self, document):
        return [match.key for match in self._database.query(document[0])]
