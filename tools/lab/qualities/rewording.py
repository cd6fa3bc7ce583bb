"""Measure how many reworded texts fpdb finds, by the share of words that are replaced.

`lab/quality rewording`: of each corpus, 500 texts are stored; a copy of each, in which one word
in N is replaced by a word of other texts, is looked up at a similarity of 0.8. In a last row, the
copy has all sentences of its text in another order.
"""

import random
import statistics
import tempfile
from pathlib import Path

import copies
import corpora
import edits
from published import table

import fpdb

# Each corpus, and the least number of characters of a text.
CORPORA = (("reuters-en", 600), ("news-zh", 300))
STORED = 500
INTERVALS = (100, 50, 33, 25, 20, 10, 5)


def measure(_):
    for name, shortest in CORPORA:
        chance, chinese = random.Random(7), name.endswith("-zh")
        texts = [text for text in corpora.load(name).texts if len(text) >= shortest]
        chance.shuffle(texts)
        stored, others = texts[:STORED], "".join(texts[STORED : STORED + 200])
        words = [word for word in edits.cut(others or texts[0], chinese) if word.isalnum()]
        editor = edits.Editor(edits.Source(chinese, [], words), chance)
        edited = {
            f"one word in {each}": [editor.changed([text], 1 / each) for text in stored]
            for each in INTERVALS
        } | {"sentences shuffled": [shuffled(text, chance) for text in stored]}
        with tempfile.TemporaryDirectory() as folder:
            database = copies.Database(Path(folder) / "db")
            database.store([(text, None) for text in stored])
            yield table([{name: row} | rated(database, stored, own) for row, own in edited.items()])


def shuffled(text, chance):
    sentences = [f"{sentence} " for sentence in edits.sentences(text)]
    chance.shuffle(sentences)
    return "".join(sentences)


def rated(database, stored, edited):
    """Return the median similarity of the copies to their texts, and the share that is found."""
    pairs = zip(stored, edited, strict=True)
    similar = statistics.median(fpdb.compare(*pair).shingle_jaccard for pair in pairs)
    found = [place in database.ask((copy, None)) for place, copy in enumerate(edited)]
    return {"similarity": f"{similar:.2f}", "found at .8": f"{sum(found) / len(found):.3f}"}
