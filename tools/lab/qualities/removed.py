"""Measure how similar what `fpdb dedupe` removes is to what it keeps: `lab/quality removed`."""

import random
from collections import defaultdict

import copies
import corpora
import templates
from published import table

import fpdb

LIMITS = (0.8, 0.9)
RECORDS = 500


def forms(chance, count):
    """Make forms of 400 words, of which up to 20 in different places are filled in."""
    words = [f"word{number}" for number in range(20_000)]
    form = chance.choices(words, k=400)
    places = chance.sample(range(400), 20)
    for _ in range(count):
        filled = list(form)
        for place in chance.sample(places, chance.randint(2, 20)):
            filled[place] = chance.choice(words)
        yield " ".join(filled)


MADE = {"a template": templates.template, "forms": forms, "versions": templates.versions}


def texts_of(name):
    if name in MADE:
        return list(MADE[name](random.Random(1), RECORDS))
    return corpora.load(name).texts


def shares(texts, limit):
    """Count the removed texts that are equal but for white space; give the others' similarity."""
    removed = []
    records = [{"key": str(number), "text": text} for number, text in enumerate(texts)]
    for _ in fpdb.dedupe(records, similarity=limit, on_removed=removed.append):
        pass
    equal, similar = 0, []
    for one in removed:
        pair = [texts[int(key)] for key in (one.key, one.kept_key)]
        if "".join(pair[0].split()) == "".join(pair[1].split()):
            equal += 1
        else:
            similar.append(copies.jaccard(*map(copies.shingles, pair)))
    return equal, similar


def removed_exactly(texts, limit):
    """Count what is removed if all texts are compared exactly, in their order."""
    earlier = defaultdict(list)
    documents = [fpdb.Document(number, text) for number, text in enumerate(texts)]
    for pair in fpdb.exact_pairs(documents, limit):
        earlier[pair.other].append(pair.key)
    gone = set()
    for number in range(len(texts)):
        if any(other not in gone for other in earlier[number]):
            gone.add(number)
    return len(gone)


def measure(_):
    for limit in LIMITS:
        rows = []
        for name in [*corpora.NAMES, *MADE]:
            texts = texts_of(name)
            equal, similar = shares(texts, limit)
            right = sum(share >= limit for share in similar) / len(similar) if similar else 1.0
            exact = removed_exactly(texts, limit)
            recall = (equal + len(similar)) / exact if exact else 1.0
            row = {
                f"removed at {limit}": name,
                "equal": f"{equal:,}",
                "others": f"{len(similar):,}",
            }
            row[f"of these from {limit} on"] = f"{right:.3f}"
            row["the least similar one"] = f"{min(similar, default=1.0):.3f}"
            rows.append(row | {"of what exact comparison removes": f"{recall:.3f}"})
        yield table(rows)
