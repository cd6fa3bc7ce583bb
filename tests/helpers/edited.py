"""Texts that are edited copies of each other, and which of them stay by the definition."""

import random
from functools import cache

import fpdb

WORDS = [f"word{number}" for number in range(400)]
WEB = fpdb.recipe("web")
SITES, LANGUAGES = ["a", "b", "c", None], ["en", 1, 1.0, "1", None]


def window(start, count=60):
    """Words in a row, of which two of the shingles end with the last two words."""
    return " ".join(WORDS[start : start + count])


def records_of(seed, count=150):
    """Texts, and parts, extensions, edited and equal copies of them, with some fields."""
    dice, texts = random.Random(seed), []
    for _ in range(count):
        words = dice.choice(texts).split() if texts and dice.random() < 0.6 else []
        kind = dice.choice(["equal", "part", "longer", "edited", "edited"])
        if not words or kind == "longer":
            words += dice.sample(WORDS, dice.randint(3, 60) if not words else dice.randint(1, 9))
        elif kind == "part":
            words = words[: len(words) - dice.randint(1, 5)] or words
        elif kind == "edited":
            words[dice.randrange(len(words))] = dice.choice(WORDS)
        texts.append(" ".join(words))
    return [
        {"id": str(number), "text": text, "site": dice.choice(SITES)}
        | {"lang": dice.choice(LANGUAGES), "n": dice.randrange(5)}
        for number, text in enumerate(texts)
    ]


@cache
def shingles_of(text):
    """Return the shingles of a text, or None if it has too few words."""
    short = WEB.batch([text]).short[0]
    return None if short else frozenset(WEB.shingles(text).tolist())


def expected_ids(records, prefer, similarity, lose=None, within=None):
    """Keep each record, in the order of preference, unless it may go for one that is kept."""
    kept = []

    def goes(own, other):
        # Of the fields, 1 and 1.0 are equal, as in JSON.
        if within and own[within] != other[within]:
            return False
        first, second = shingles_of(own["text"]), shingles_of(other["text"])
        if first is None or second is None:
            return own["text"] == other["text"]
        both = len(first & second)
        alike = both / len(first | second) >= similarity
        lost = (len(first) - both) / len(first)
        return alike and (lose is None or lost <= lose)

    for record in sorted(records, key=prefer):
        if not any(goes(record, other) for other in kept):
            kept.append(record)
    stay = {record["id"] for record in kept}
    return [record["id"] for record in records if record["id"] in stay]
