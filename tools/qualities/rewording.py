"""Measure how many reworded texts fpdb finds, by the share of words that are replaced.

`tools/quality rewording`: of each corpus, 500 texts are stored; a copy of each, in which one word
in N is replaced by a word of other texts, is looked up at a similarity of 0.8. In a last row, the
copy has all sentences of its text in another order.
"""

import random
import re
import statistics
import tempfile
from pathlib import Path

import corpora
from published import table

import fpdb
from fpdb.fingerprint.segmentation import CUTS

# Each corpus, the least number of characters of a text, and what joins its sentences.
CORPORA = (("reuters-en", 600, " "), ("news-zh", 300, ""))
STORED = 500
INTERVALS = (100, 50, 33, 25, 20, 10, 5)
SENTENCE_END = re.compile(r"(?<=[.!?。！？\n])\s*")


def measure(_):
    for name, shortest, space in CORPORA:
        rng = random.Random(7)
        found = [each["text"] or "" for each in corpora.records(name, "documents")]
        texts = [text for text in found if len(text) >= shortest]
        rng.shuffle(texts)
        stored, others = texts[:STORED], texts[STORED : STORED + 200]
        words = [piece for text in others for piece in cut(text) if is_word(piece)]
        copies = {
            f"one word in {interval}": [reworded(text, interval, words, rng) for text in stored]
            for interval in INTERVALS
        } | {"sentences shuffled": [shuffled(text, space, rng) for text in stored]}
        with tempfile.TemporaryDirectory() as folder, fpdb.create(Path(folder) / "db") as db:
            list(db.add_many(fpdb.Document(str(n), text) for n, text in enumerate(stored)))
            yield table([{name: row} | rated(db, stored, own) for row, own in copies.items()])


def cut(text):
    runs = re.findall(r"[\u4e00-\u9fff]+|[^\W\u4e00-\u9fff]+|\W+", text)
    return [piece for run in runs for piece in (CUTS["jieba"](run) if is_word(run) else [run])]


def is_word(piece):
    return re.search(r"\w", piece) is not None


def reworded(text, interval, words, rng):
    pieces = cut(text)
    places = [place for place, piece in enumerate(pieces) if is_word(piece)]
    for place in rng.sample(places, round(len(places) / interval)):
        pieces[place] = rng.choice(words)
    return "".join(pieces)


def shuffled(text, space, rng):
    sentences = [sentence for sentence in SENTENCE_END.split(text) if sentence.strip()]
    rng.shuffle(sentences)
    return space.join(sentences)


def rated(db, stored, copies):
    """Return the median similarity of the copies to their texts, and the share that is found."""
    similar = statistics.median(
        fpdb.compare(text, copy, recipe=db.recipe).shingle_jaccard
        for text, copy in zip(stored, copies, strict=True)
    )
    found = [
        str(n) in {match.key for match in matches}
        for n, matches in enumerate(db.query_many(copies))
    ]
    return {"similarity": f"{similar:.2f}", "found at .8": f"{sum(found) / len(found):.3f}"}
