"""Measure how many noisy copies each recipe finds, such as of scanned texts, and how many others.

`lab/quality noise`: the texts of a corpus are stored. Of a sample, copies are made in which some
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
import methods
from published import table

import fpdb

shingles = functools.cache(copies.shingles)

NAMES = ("reuters-en", "news-zh", "laws-zh", "javadoc-en", "manual-html-en")
RATES = (0.01, 0.02, 0.03, 0.05, 0.08)
SAMPLE, STORED, SHORTEST = 200, 4000, 300
_WEB, NOISY = fpdb.recipe("web"), fpdb.recipe("noisy")
RECIPES = (
    _WEB,
    _WEB.replace(name="web-hyphens", clean=("hyphens", "unicode")),
    _WEB.replace(similarity=0.5),
    NOISY,
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
    languages = sorted(path.name for path in corpora.folder().glob("noisy-*"))
    for name in (*NAMES, *languages):
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
        with tempfile.TemporaryDirectory() as folder:
            asked = {
                f"{each.name}, {each.similarity}": copies.Database(Path(folder) / str(number), each)
                for number, each in enumerate(RECIPES)
            }
            others = methods.indexes(NOISY.similarity)
            asked |= {f"{peer}, windows": others[peer] for peer in ("datasketch", "rensa")}
            yield table([rated(name, *each, texts, edited) for each in asked.items()])


def cut(text):
    """Return a text with the windows of letters of the recipe, which other packages get too."""
    return text, set(NOISY.features(text))


def rated(name, label, method, texts, edited):
    row = {f"{len(texts):,} texts, {name}": label}
    far = asked = 0
    method.store(list(map(cut, texts)))
    for edit, own in edited.items():
        answers = [set(method.ask(cut(text))) for text in own]
        row[edit] = f"{sum(n in keys for n, keys in enumerate(answers)) / len(own):.3f}"
        for number, keys in enumerate(answers):
            far += sum(
                copies.jaccard(shingles(texts[number]), shingles(texts[key])) < HALF
                for key in keys - {number}
            )
        asked += len(own)
    return row | {"far answers a question": f"{far / asked:.3f}"}
