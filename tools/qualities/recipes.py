"""The recipes that are evaluated: the candidates for the default, one choice changed at a time."""

import fpdb
from fpdb import Grams, Hash, Secret, Weights

SEEDS = 5
WINDOWS = {2: ("count", "log"), 3: ("count", "log", "sqrt"), 4: ("count", "sqrt"), 5: ("count",)}
DEFAULT = fpdb.recipe("web")


def candidates(texts):
    """Return the recipes by their description; an idf table is that of the corpus itself."""
    words = {by: DEFAULT.replace(weights=Weights(by=by)) for by in ("count", "sqrt", "binary")}
    windows = {
        f"windows of {n} characters, {by}": fpdb.recipe("char-4").replace(
            grams=Grams(n=n, minimum=8), weights=Weights(by=by)
        )
        for n, choices in WINDOWS.items()
        for by in choices
    }
    table = fpdb.IdfTable.from_documents(map(DEFAULT.features, texts))
    return {
        "**web**: words, 1 + log count": DEFAULT,
        **{f"words, {by}": recipe for by, recipe in words.items()},
        "words, 1 + log count, HMM": DEFAULT.replace(segment="jieba-hmm"),
        "words of two letters and more, 1 + log count": DEFAULT.replace(
            grams=Grams(minimum=8, min_length=2)
        ),
        "words, square root, idf of the corpus": DEFAULT.replace(
            weights=Weights(by="sqrt", idf=table)
        ),
        "pairs of words, count": DEFAULT.replace(
            grams=Grams(n=2, minimum=8), weights=Weights(by="count")
        ),
        "pairs of words, 1 + log count": DEFAULT.replace(grams=Grams(n=2, minimum=8)),
        **windows,
        "words, 1 + log count, md5": DEFAULT.replace(hash=Hash(by="md5")),
    }


def wide():
    """Return the default with twice the bits, for twice the distance."""
    return fpdb.recipe("web-128")


def rehashed():
    """Return a few candidates, each with several hashes, which show what is chance."""
    chosen = {
        "**web**: words, 1 + log count": DEFAULT,
        "words, square root": DEFAULT.replace(weights=Weights(by="sqrt")),
        "words, count": DEFAULT.replace(weights=Weights(by="count")),
        "windows of 3 characters, count": fpdb.recipe("char-4").replace(
            grams=Grams(n=3, minimum=8)
        ),
        "windows of 4 characters, count": fpdb.recipe("char-4"),
    }
    return {
        name: [
            recipe.replace(hash=Hash(secret=Secret(bytes([seed]) * 16))) for seed in range(SEEDS)
        ]
        for name, recipe in chosen.items()
    }
