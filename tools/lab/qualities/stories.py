"""Measure the groups of streams of news in order of time: `lab/quality stories`.

Among the texts of a corpus come versions of some of its passages, each edited in a known way, and
chains of nine versions, each about .85 like the one before. A pair of different documents should
be in one group if its exact similarity is at least .8, and may be from .7 on.
"""

import random
import tempfile
import time
from itertools import combinations
from pathlib import Path

import copies
import corpora
import edits
import numpy as np
from peers import Datasketch
from published import table

import fpdb

NAMES = ("reuters-en", "news-zh")
TEXTS, PASSAGES, CHAINS, LENGTH, LIKE, MIRRORS = 3000, 300, 20, 9, 0.85, 1000
SIMILARITY, RIGHT = 0.8, 0.7


def chain(text, cut, pool, dice, chinese):
    """Yield versions of a text, in each of which words are replaced until it is as similar."""
    words = edits.cut(text, chinese)
    for _ in range(LENGTH):
        yield "".join(words)
        before = cut("".join(words))
        while copies.jaccard(before, cut("".join(words))) > LIKE:
            words[dice.randrange(len(words))] = dice.choice(pool)


def stream(name):
    """Return texts in order: of the corpus, versions after their original, chains in turn."""
    corpus, chinese = corpora.load(name).distinct(), name.endswith("-zh")
    dice = random.Random(7)
    cut = corpora.characters if chinese else corpora.words
    origin = edits.source(corpus.texts, chinese=chinese, count=PASSAGES + CHAINS)
    editor = edits.Editor(origin, dice)
    placed = list(zip(np.linspace(0, 1, TEXTS), corpus.texts, strict=False))
    for passage in origin.passages[:PASSAGES]:
        first = dice.random()
        chosen = dice.sample(list(edits.EDITS.values()), dice.randint(1, 4))
        texts = ["".join(passage), *(change(editor, passage) for change in chosen)]
        placed += [(first + place * (1 - first) / 8, text) for place, text in enumerate(texts)]
    for passage in origin.passages[PASSAGES:]:
        first = dice.random() / 2
        versions = chain("".join(passage), cut, origin.words, dice, chinese)
        placed += [(first + place / 20, text) for place, text in enumerate(versions)]
    texts = [text for _, text in sorted(placed, key=lambda entry: entry[0])]
    return corpora.Corpus(name, [str(place) for place in range(len(texts))], texts, texts)


def by_fpdb(texts):
    """Return the groups that a database keeps, and those of its clusters."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for together in (1, 7, 1000):
            path = Path(folder) / str(together)
            with fpdb.create(path, keys="integer", groups=True) as db:
                documents = map(fpdb.Document, range(len(texts)), texts)
                added = db.add_many(documents, transaction=together)
                found.append([own.group for own in added])
        if found[0] != found[1] or found[0] != found[2]:
            raise SystemExit("batches of 1, 7 and 1,000 have different groups")
        answers = {"**groups**": found[0]}
        with fpdb.open(path) as db:
            for label, chains in (("`clusters`", False), ("`clusters --chains`", True)):
                answers[label] = list(range(len(texts)))
                for cluster in db.clusters(chains=chains):
                    for key in cluster.duplicates:
                        answers[label][key] = cluster.representative
    return answers


def by_datasketch(corpus):
    """Return groups of a single pass: the first that is found, of those that found nothing."""
    index, groups = Datasketch(SIMILARITY), []
    for place, shingles in enumerate(corpus.shingles):
        sketch = index.sketch(sorted(shingles))
        found = index.find(sketch) if shingles else []
        groups.append(min(found, default=place))
        if not found and shingles:
            index.add(place, sketch)
    return groups


def rated(groups, truth):
    """Return the shares of the pairs that should be together, and of those that may be."""
    first, second = truth.pairs()
    groups = np.array(groups)
    wanted = truth.jaccards >= SIMILARITY
    together = groups[first] == groups[second]
    order = np.argsort(groups, kind="stable")
    members = np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)
    pairs = np.array([pair for own in members for pair in combinations(own.tolist(), 2)])
    pairs = np.sort(pairs, axis=1).reshape(-1, 2)
    right = truth.look_up(pairs[:, 0], pairs[:, 1]) >= RIGHT
    right |= truth.equal(pairs[:, 0], pairs[:, 1])
    return (wanted & together).sum() / wanted.sum(), right.mean(), len(members)


def mirrors(text):
    """Return how many groups a thousand mirrors of a page have, and what each addition takes."""
    with tempfile.TemporaryDirectory() as folder, fpdb.create(f"{folder}/db", groups=True) as db:
        pages = [f"{text}\n{place} {place}" for place in range(MIRRORS)]
        start = time.process_time()
        added = list(db.add_many(fpdb.Document(f"{n}", page) for n, page in enumerate(pages)))
        took = time.process_time() - start
    return len({own.group for own in added}), took / MIRRORS


def measure(_):
    rows, labels = [], {}
    for name in NAMES:
        corpus = stream(name)
        answers = by_fpdb(corpus.texts) | {"datasketch, one pass": by_datasketch(corpus)}
        wanted = int((corpus.truth.jaccards >= SIMILARITY).sum())
        labels[name] = f"{name}: {len(corpus.texts):,} texts, {wanted:,} pairs"
        for label, groups in answers.items():
            recall, precision, count = rated(groups, corpus.truth)
            rows.append((label, name, f"{recall:.3f} / {precision:.3f}, {count:,} groups"))
        count, took = mirrors(max(corpus.texts[:50], key=len))
        rows.append((f"{MIRRORS:,} mirrors", name, f"{count} group, {took * 1e3:.2f} ms each"))
    cells = {(label, name): cell for label, name, cell in rows}
    yield table(
        [
            {"": label} | {labels[name]: cells[label, name] for name in NAMES}
            for label in dict.fromkeys(label for label, _, _ in rows)
        ]
    )
