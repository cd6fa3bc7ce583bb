"""Measure which copied parts are found, by length and edits, how well shares are estimated, and
what is found of plagiarism of four kinds.

`lab/quality passages`: a thousand texts of a corpus are kept apart, and the others are stored.
Parts of stored texts are looked up alone, joined, edited, and within texts that aren't stored.
"""

import random
import re
import tempfile
from pathlib import Path

import corpora
import edits
import numpy as np
from published import table

import fpdb

CORPORA = {"reuters-en": 120, "news-zh": 200}  # with the least length of texts that are joined
APART, COPIES, PASSAGES = 1000, 400, 600
LENGTHS = (10, 15, 20, 25, 28, 30, 50)
RATES = (50, 20, 10)
BINS = (60, 100, 200, 400)
ALIKE = 0.5
WEB = fpdb.recipe("web")
_LETTERS = "abcdefghijklmnop"
_CLAUSE = re.compile(r"(?<=[,;:，；：、])")


class Corpus:
    """The texts of a corpus, most of which are stored; `cut` and `join` are of its words."""

    def __init__(self, name, path):
        self.name, self.chinese = name, name.endswith("-zh")
        self.dice = random.Random(name)
        texts = sorted(set(corpora.load(name).texts) - {""})
        self.dice.shuffle(texts)
        self.apart, self.stored = texts[:APART], texts[APART:]
        self.long = [at for at, text in enumerate(self.stored) if self.size(text) >= CORPORA[name]]
        self.words = [word for text in self.apart for word in self.cut(text)]
        self.database = fpdb.create(path, passages=True, similarity=ALIKE, keys="integer")
        list(self.database.add_many(map(fpdb.Document, range(len(self.stored)), self.stored)))

    def size(self, text):
        return len(WEB.placed_shingles(text)[1].starts)

    def cut(self, text):
        return [each for each in text if not each.isspace()] if self.chinese else text.split()

    def join(self, words):
        return ("" if self.chinese else " ").join(words)

    def part(self, text, size):
        """Take a passage of N words anywhere from a text."""
        text, placed = WEB.placed_shingles(text)
        at = self.dice.randrange(len(placed.starts) - size + 1)
        return text[placed.starts[at] : placed.stops[at + size - 1]]

    def within(self, text):
        """Put a text into the middle of one that isn't stored."""
        words = self.cut(self.dice.choice(self.apart))
        half, most = len(words) // 2, len(self.cut(text))
        middle = [self.join(words[:half][-most:]), text, self.join(words[half:][:most])]
        return self.join(middle)

    def changed(self, text, rate):
        """Replace about one word in N by another of the texts that aren't stored."""
        words = self.cut(text)
        dice = self.dice
        return self.join(dice.choice(self.words) if dice.random() * rate < 1 else w for w in words)

    def found(self, text):
        return {match.key: match for match in self.database.passages(text)}

    def halves(self):
        """Join the halves of two stored texts."""
        first, second = self.dice.sample(self.long, 2)
        one, two = (self.cut(self.stored[each]) for each in (first, second))
        return first, second, self.join(one[: len(one) // 2]), self.join(two[len(two) // 2 :])


def lengths(corpus):
    """Return the shares of passages that are found, by their lengths, alone and in other texts."""
    rows = []
    for put in (lambda text: text, corpus.within):
        shares = []
        for size in LENGTHS:
            found = 0
            for _ in range(PASSAGES):
                key = corpus.dice.choice(corpus.long)
                found += key in corpus.found(put(corpus.part(corpus.stored[key], size)))
            shares.append(found / PASSAGES)
        rows.append(shares)
    return rows


def joined(corpus):
    """Return the shares of texts of two halves whose sources are first, and found when edited."""
    first = edited = 0
    for _ in range(COPIES):
        one, two, *parts = corpus.halves()
        text = corpus.join(parts)
        order = list(corpus.found(text))
        near = (corpus.database.query(corpus.stored[key]) for key in (one, two))
        alike = {each.key for matches in near for each in matches}
        others = [key for key in order if key in {one, two} or key not in alike]
        first += set(others[:2]) == {one, two}
        edited += {one, two} <= corpus.found(corpus.changed(text, 20)).keys()
    return first / COPIES, edited / COPIES


def contained(corpus):
    """Return the shares of whole texts and of edited halves that are found in other texts."""
    whole, halves = 0, [0] * len(RATES)
    for _ in range(COPIES):
        key = corpus.dice.choice(corpus.long)
        whole += key in corpus.found(corpus.within(corpus.stored[key]))
        words = corpus.cut(corpus.stored[key])
        half = corpus.join(words[: len(words) // 2])
        for at, rate in enumerate(RATES):
            halves[at] += key in corpus.found(corpus.within(corpus.changed(half, rate)))
    return [each / COPIES for each in (whole, *halves)]


def errors(corpus):
    """Return the mean errors of both shares of texts of two halves, by their lengths."""
    some = [at for at, text in enumerate(corpus.stored) if corpus.size(text) >= BINS[0] // 2]
    of = {least: ([], []) for least in BINS}
    for _ in range(4 * COPIES):
        first, second = corpus.dice.sample(some, 2)
        one, two = (corpus.cut(corpus.stored[each]) for each in (first, second))
        half = corpus.join(one[: len(one) // 2])
        text = corpus.join([half, corpus.join(two[len(two) // 2 :])])
        match, size = corpus.found(text).get(first), corpus.size(half)
        shares = (match.share, match.other_share) if match else (0, 0)
        for own, share, whole in zip((0, 1), shares, (text, corpus.stored[first]), strict=True):
            length = corpus.size(whole)
            if length >= BINS[0]:
                of[max(each for each in BINS if each <= length)][own].append(
                    abs(share - size / length)
                )
    return [[float(np.mean(each[own])) for each in of.values()] for own in (0, 1)]


def chance(corpus):
    """Return how many texts of random letters have a source, and texts that aren't stored."""
    fresh = sum(
        bool(
            corpus.found(" ".join("".join(corpus.dice.choices(_LETTERS, k=6)) for _ in range(200)))
        )
        for _ in range(PASSAGES)
    )
    found = [corpus.database.passages(text) for text in corpus.apart]
    fifth = sum(any(max(each.share, each.other_share) >= 0.2 for each in one) for one in found)
    return fresh, sum(map(bool, found)), fifth


def kinds(corpus):
    """Return the shares found of near copies, light and heavy revisions, and of other texts.

    Of each also the mean of the estimated share of the text that its source has.
    """
    rows = {}
    for kind in (near_copy, light_revision, heavy_revision, None):
        found, shares = 0, []
        for place in range(COPIES):
            key = corpus.dice.choice(corpus.long)
            text = kind(corpus, corpus.stored[key]) if kind else corpus.apart[place]
            match = corpus.found(text).get(key)
            found += match is not None
            shares.append(match.share if match else 0)
        rows[kind.__name__.replace("_", " ") if kind else "none"] = found / COPIES, np.mean(shares)
    return rows


def near_copy(corpus, text):
    """Keep four sentences of five, one word in 50 changed."""
    kept = [each for each in edits.sentences(text) if corpus.dice.random() < 0.8]
    return corpus.changed("".join(kept) or text, 50)


def light_revision(corpus, text):
    """Change one word in eight, and the order of two sentences of three."""
    sentences = edits.sentences(text)
    moved = [at for at in range(len(sentences)) if corpus.dice.random() < 2 / 3]
    order = list(range(len(sentences)))
    for at, other in zip(moved, corpus.dice.sample(moved, len(moved)), strict=True):
        order[at] = other
    return corpus.changed(corpus.join(sentences[at] for at in order), 8)


def heavy_revision(corpus, text):
    """Change one word in three, and the order of all clauses."""
    clauses = [each for part in edits.sentences(text) for each in _CLAUSE.split(part)]
    corpus.dice.shuffle(clauses)
    return corpus.changed(corpus.join(clauses), 3)


def measure(_):
    """Yield the tables."""
    found, edited, wrong, copied = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for name in CORPORA:
            corpus = Corpus(name, Path(folder) / name)
            for put, row in zip(("alone", "in another"), lengths(corpus), strict=True):
                found.append({"passage": f"{name}, {put}"} | shown(LENGTHS, row))
            names = "halves first", "1 in 20", "whole", *(f"half, 1 in {rate}" for rate in RATES)
            row = [*joined(corpus), *contained(corpus)]
            edited.append({"copies": name} | shown(names, row))
            for whose, row in zip(("query", "document"), errors(corpus), strict=True):
                wrong.append({"mean error": f"{name}, share of the {whose}"} | shown(BINS, row))
            for kind, row in kinds(corpus).items():
                copied.append({"kind": f"{name}, {kind}"} | shown(("found", "mean share"), row))
            fresh, others, fifth = chance(corpus)
            yield (
                f"{name}: {len(corpus.stored):,} stored; of {PASSAGES} random texts {fresh} have a "
                f"source, of {APART} others {others}, {fifth} a fifth"
            )
            corpus.database.close()
    yield from map(table, (found, edited, wrong, copied))


def shown(names, numbers):
    written = (f"{each:.3f}".lstrip("0") if each < 1 else "1" for each in numbers)
    return dict(zip(map(str, names), written, strict=True))
