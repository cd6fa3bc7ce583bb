"""Measure how similar what `fpdb dedupe` removes is to what it keeps: `lab/quality removed`."""

import copies
import corpora
from published import table

import fpdb

LIMITS = (0.8, 0.76, 0.7)


def shares(texts):
    """Count the removed texts that are equal but for white space; give the others' similarity."""
    removed = []
    records = [{"key": str(number), "text": text} for number, text in enumerate(texts)]
    for _ in fpdb.dedupe(records, on_removed=removed.append):
        pass
    equal, similar = 0, []
    for each in removed:
        pair = [texts[int(key)] for key in (each.key, each.kept_key)]
        if "".join(pair[0].split()) == "".join(pair[1].split()):
            equal += 1
        else:
            similar.append(copies.jaccard(*map(copies.shingles, pair)))
    return equal, similar


def measure(_):
    rows = []
    for name in corpora.NAMES:
        equal, similar = shares(corpora.load(name).texts)
        row = {"corpus": name, "equal": f"{equal:,}", "others": f"{len(similar):,}"}
        for limit in LIMITS:
            row[f"from {limit}"] = f"{sum(own >= limit for own in similar) / len(similar):.3f}"
        rows.append(row | {"least": f"{min(similar):.3f}"})
    yield table(rows)
