"""Measure how many edited titles are found, by length, and how many others: `lab/quality titles`.

The distinct titles of a corpus are halved by their digests. The recipe `title` was chosen on one
half; the other half is stored here, and of a sample edited copies are made. A copy is found if its
title is among the answers. Of the other answers to all titles of the half, those that share .6 of
their pairs of letters (Jaccard) are right, and those below .4 far off.
"""

import hashlib
import random
import tempfile
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import copies
import corpora
import methods
from published import table

from fpdb.fingerprint.segmentation import CUTS

RIGHT, FAR = 0.6, 0.4
SAMPLE = 1500
# The least length of short, middling and long titles: in letters, in words.
LENGTHS = {"zh": (5, 11, 21), "en": (3, 5, 8)}
CORPORA = {"zh": "news-zh", "en": "reuters-en"}
LETTERS = {"zh": "的是在了不和有大这", "en": "etaoinshr"}
RECIPES = {"zh": ("title", "tagged-title", "web"), "en": ("title", "web")}
OTHERWISE = "written otherwise"


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
        """1 for a short title, 2 for a middling one, 3 for a long one."""
        chinese = self.language == "zh"
        size = sum(map(str.isalnum, title)) if chinese else len(title.split())
        return sum(size >= least for least in LENGTHS[self.language])

    def edited(self, title, dice, pool):
        """Return copies of a title by the names of their edits."""
        words = self.words(title)
        place, at = dice.randrange(len(words)), dice.randrange(len(title))
        head, tail, other = words[:place], words[place + 1 :], dice.choice(pool)
        wide = "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in title)
        found = {
            "word replaced": self.space.join([*head, other, *tail]),
            "word dropped": self.space.join([*head, *tail]),
            "word inserted": self.space.join([*head, other, words[place], *tail]),
            "character changed": title[:at] + dice.choice(LETTERS[self.language]) + title[at + 1 :],
            OTHERWISE: f"“{'　'.join(self.words(wide.swapcase()))}！”",
        }
        return {name: copy for name, copy in found.items() if copy != title}


def load(language):
    """Return the half of the titles on which nothing was chosen."""
    records = corpora.records(CORPORA[language], "documents")
    found = [(record.get("title") or "").strip() for record in records]
    # The headlines of the newswire are in capitals.
    titles = [title if language == "zh" else title.title() for title in found]
    kept = Titles(language, [])
    other = [
        title for title in dict.fromkeys(titles) if hashlib.md5(title.encode()).digest()[0] & 1
    ]
    kept.texts.extend(title for title in other if title and kept.words(title))
    return kept


def pairs_of(title):
    plain = unicodedata.normalize("NFKC", title).casefold()
    letters = "".join(filter(str.isalnum, plain))
    return {letters[at : at + 2] for at in range(len(letters) - 1)} or {letters}


def rate(method, titles, edited):
    """Ask for edited copies and for the titles themselves, which are all stored."""
    letters = list(map(pairs_of, titles.texts))
    method.store(list(zip(titles.texts, letters, strict=True)))
    found = defaultdict(list)
    for number, name, copy in edited:
        found[name, titles.band(titles.texts[number])].append(
            number in method.ask((copy, pairs_of(copy)))
        )
    counts = [0, 0, 0]
    for number, own in enumerate(letters):
        for other in set(method.ask((titles.texts[number], own))) - {number}:
            share = copies.jaccard(own, letters[other])
            counts[(share < RIGHT) + (share < FAR)] += 1
    return found, counts


def row(label, titles, found, counts):
    shares = {}
    for band, least in enumerate(LENGTHS[titles.language], 1):
        own = [each for (name, at), some in found.items() if at == band and name != OTHERWISE
               for each in some]  # fmt: skip
        shares[f"from {least}"] = f"{sum(own) / len(own):.3f} of {len(own):,}" if own else ""
    same = [each for (name, band), some in found.items() if name == OTHERWISE for each in some]
    return {
        f"{len(titles.texts):,} titles, {titles.language}": label,
        **shares,
        OTHERWISE: f"{sum(same) / len(same):.3f} of {len(same):,}",
        "right / unclear / far off": " / ".join(map(str, counts)),
    }


def measure(_):
    for language, recipes in RECIPES.items():
        titles, dice = load(language), random.Random(16)
        sample = dice.sample(range(len(titles.texts)), min(SAMPLE, len(titles.texts)))
        texts = [titles.texts[number] for number in sample[:500]]
        pool = [word for title in texts for word in titles.words(title) if word.strip()]
        edited = [
            (number, name, copy)
            for number in sample
            for name, copy in titles.edited(titles.texts[number], dice, pool).items()
        ]
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            asked = {name: copies.Database(Path(folder) / name, name) for name in recipes}
            others = methods.indexes(RIGHT)
            asked |= {f"{name}, pairs of letters": others[name] for name in ("datasketch", "rensa")}
            for label, method in asked.items():
                rows.append(row(label, titles, *rate(method, titles, edited)))
        yield table(rows)
