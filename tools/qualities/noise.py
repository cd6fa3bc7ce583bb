"""Measure how many noisy copies each recipe finds, such as of scanned texts, and how many others.

`tools/quality noise`: the texts of a corpus are stored. Of a sample, copies are made in which some
letters are misread, or in which half of the lines end in a hyphen. An answer is far if fewer than
half of its shingles are those of the stored text. Folders `noisy-LANGUAGE` beside the corpora are
measured too.
"""

import functools
import random
import tempfile
from pathlib import Path

import copies
import corpora
from published import table

import fpdb

shingles = functools.cache(copies.shingles)

NAMES = ("reuters-en", "news-zh", "laws-zh", "javadoc-en", "manual-html-en")
RATES = (0.01, 0.02, 0.03, 0.05, 0.08)
SAMPLE, STORED, SHORTEST = 200, 4000, 300
_WEB = fpdb.recipe("web")
RECIPES = (
    _WEB,
    _WEB.replace(name="web-hyphens", clean=("hyphens", "unicode")),
    _WEB.replace(similarity=0.5),
    fpdb.recipe("noisy"),
)
WIDTH, HALF = 60, 0.5


def misread(text, rate, dice, pool):
    """Replace letters by others; of ten, one is dropped and one doubled by another."""
    read = []
    for letter in text:
        if letter.isalnum() and dice.random() < rate:
            other = dice.choice(pool)
            read.append(dice.choice([*[other] * 8, "", letter + other]))
        else:
            read.append(letter)
    return "".join(read)


def hyphenated(text, dice):
    """Break a text into lines, half of which end within a word."""
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) > WIDTH and len(word) > 3 and dice.random() < HALF:
            at = dice.randrange(2, len(word) - 1)
            lines, line = [*lines, f"{line}{word[:at]}-"], f"{word[at:]} "
        elif len(line) + len(word) > WIDTH:
            lines, line = [*lines, line], f"{word} "
        else:
            line += f"{word} "
    return "\n".join([*lines, line])


def measure(_):
    others = sorted(path.name for path in corpora.folder().glob("noisy-*"))
    for name in (*NAMES, *others):
        found = [text for text in dict.fromkeys(corpora.load(name).texts) if text]
        dice = random.Random(9)
        texts = [text for text in found if len(text) >= SHORTEST]
        dice.shuffle(texts)
        del texts[STORED:]
        texts.reverse()  # the recipes were chosen on the other end
        sample = texts[:SAMPLE]
        pool = [letter for text in sample for letter in text if letter.isalnum()]
        edited = {f"{rate:.0%}": [misread(t, rate, dice, pool) for t in sample] for rate in RATES}
        if not name.endswith("-zh"):
            edited["hyphens"] = [hyphenated(text, dice) for text in sample]
        yield table([rated(name, each, texts, edited) for each in RECIPES])


def rated(name, recipe, texts, edited):
    row = {f"{len(texts):,} texts, {name}": f"{recipe.name}, {recipe.similarity}"}
    far = asked = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        fpdb.create(Path(folder) / "db", recipe=recipe, keys="integer") as db,
    ):
        list(db.add_many(map(fpdb.Document, range(len(texts)), texts)))
        for edit, own in edited.items():
            answers = [{match.key for match in each} for each in db.query_many(own)]
            row[edit] = f"{sum(n in keys for n, keys in enumerate(answers)) / len(own):.3f}"
            for number, keys in enumerate(answers):
                far += sum(
                    copies.jaccard(shingles(texts[number]), shingles(texts[key])) < HALF
                    for key in keys - {number}
                )
            asked += len(own)
    return row | {"far answers a question": f"{far / asked:.3f}"}
