"""Measure how many edited titles each recipe for titles finds, and how many others: by length.

`tools/quality titles`: the distinct titles of a corpus are its documents. Of a sample, edited
copies are made; a copy is found if it is within k of its title. All pairs of different titles that
are within k are right if they share .6 of their pairs of characters (Jaccard), wrong below .4.
"""

import random
from dataclasses import dataclass

import corpora
import numpy as np
from published import table

import fpdb
from fpdb.fingerprint.segmentation import CUTS

RIGHT, WRONG = 0.6, 0.4
SAMPLE = 1500
# The largest length of short and of middling titles: in characters, in words.
LENGTHS = {"zh": (10, 20), "en": (4, 7)}
CORPORA = {"zh": "news-zh", "en": "reuters-en"}
SUFFIXES = {"zh": "_新华网", "en": " - Reuters"}
LETTERS = {"zh": "的是在了不和有大这", "en": "etaoinshr"}
_EVERY = [("title", 20), ("title", 16), ("char-4", 3), ("words", 3), ("web", 7)]
RECIPES = {"zh": [*_EVERY[:2], ("tagged-title", 5), *_EVERY[2:]], "en": _EVERY}
EDITS = ("word replaced", "word dropped", "word inserted", "character changed")


@dataclass(frozen=True)
class Titles:
    """The distinct titles of a corpus; `words` cuts one, `space` joins its words again."""

    language: str
    texts: list

    @property
    def space(self):
        return "" if self.language == "zh" else " "

    def words(self, title):
        return CUTS["jieba-hmm"](title) if self.language == "zh" else title.split()

    def band(self, title):
        """0 for a short title, 1 for a middling one, 2 for a long one."""
        size = len(title) if self.language == "zh" else len(title.split())
        short, middling = LENGTHS[self.language]
        return (size > short) + (size > middling)

    def edited(self, title, dice, pool):
        """Return copies of a title by the names of their edits."""
        words, place = self.words(title), dice.randrange(len(self.words(title)))
        head, tail, other = words[:place], words[place + 1 :], dice.choice(pool)
        at = dice.randrange(len(title))
        letter = dice.choice(LETTERS[self.language])
        copies = {
            "word replaced": self.space.join([*head, other, *tail]),
            "word dropped": self.space.join([*head, *tail]),
            "word inserted": self.space.join([*head, other, words[place], *tail]),
            "character changed": title[:at] + letter + title[at + 1 :],
            "suffix added": title + SUFFIXES[self.language],
        }
        return {name: copy for name, copy in copies.items() if copy != title}


def load(language):
    records = corpora.records(CORPORA[language], "documents")
    found = [(record.get("title") or "").strip() for record in records]
    # The headlines of the newswire are in capitals.
    titles = [title if language == "zh" else title.title() for title in found]
    kept = Titles(language, [])
    kept.texts.extend(title for title in dict.fromkeys(titles) if title and kept.words(title))
    return kept


def pairs_of(title):
    letters = "".join(filter(str.isalnum, title.casefold()))
    return {letters[at : at + 2] for at in range(len(letters) - 1)} or {letters}


def jaccard(first, second):
    return len(first & second) / len(first | second)


def apart(first, second):
    counts = np.bitwise_count(first ^ second).astype(int)
    return counts if counts.ndim == 1 else counts.sum(axis=-1)


def recall(recipe, k, titles, copies):
    """Return the shares that are found: of the edits by length, and of the suffixes."""
    first = recipe.batch([title for title, _, _ in copies])
    second = recipe.batch([copy for _, _, copy in copies])
    found = apart(first.fingerprints, second.fingerprints) <= k
    found &= ~(first.short | second.short)
    names = np.array([name for _, name, _ in copies])
    bands = np.array([titles.band(title) for title, _, _ in copies])
    edited = np.isin(names, EDITS)
    shares = [found[edited & (bands == band)].mean() for band in range(3)]
    return [*shares, found[names == "suffix added"].mean()]


def precision(recipe, k, titles):
    batch = recipe.batch(titles.texts)
    places = np.flatnonzero(~batch.short)
    known = batch.fingerprints[places]
    counts = [0, 0, 0]
    letters = [pairs_of(titles.texts[place]) for place in places]
    for place in range(len(known) - 1):
        near = np.flatnonzero(apart(known[place], known[place + 1 :]) <= k)
        for other in near + place + 1:
            share = jaccard(letters[place], letters[other])
            counts[(share < RIGHT) + (share < WRONG)] += 1
    return [*counts, 1 - len(places) / len(titles.texts)]


def measure(_):
    for language, recipes in RECIPES.items():
        titles, dice = load(language), random.Random(16)
        sample = dice.sample(titles.texts, min(SAMPLE, len(titles.texts)))
        pool = [word for title in sample[:500] for word in titles.words(title) if word.strip()]
        copies = [
            (title, name, copy)
            for title in sample
            for name, copy in titles.edited(title, dice, pool).items()
        ]
        rows = []
        for name, k in recipes:
            recipe = fpdb.recipe(name)
            shares = [f"{share:.2f}" for share in recall(recipe, k, titles, copies)]
            *counts, short = precision(recipe, k, titles)
            row = {f"{len(titles.texts):,} titles, {language}": f"{name}, k = {k}"}
            row |= zip(("short", "middling", "long", "suffix"), shares, strict=True)
            row["right / unclear / wrong"] = " / ".join(map(str, counts))
            rows.append(row | {"without fingerprint": f"{short:.2f}"})
        yield table(rows)
