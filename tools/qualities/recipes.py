"""The recipes that are evaluated, each with several hashes: a choice must not rest on one."""

import fpdb
from fpdb import Grams, Hash, Secret, Weights

HASHES = 5
DEFAULT = fpdb.recipe("web")


def candidates():
    """Return the recipes by their description."""
    words = {
        f"words, {shown}": DEFAULT.replace(grams=Grams(minimum=8), weights=Weights(by=by))
        for by, shown in (("log", "1 + log count"), ("count", "count"), ("sqrt", "square root"))
    }
    pairs = {
        f"pairs of words, {shown}": DEFAULT.replace(
            grams=Grams(n=2, minimum=8), weights=Weights(by=by)
        )
        for by, shown in (("log", "1 + log count"), ("count", "count"))
    }
    triples = DEFAULT.replace(grams=Grams(n=3, minimum=8), weights=Weights(by="log"))
    windows = {
        f"windows of {n} characters, {shown}": fpdb.recipe("char-4").replace(
            grams=Grams(n=n, minimum=8), weights=Weights(by=by)
        )
        for n, by, shown in (
            (3, "count", "count"),
            (4, "count", "count"),
            (4, "sqrt", "square root"),
        )
    }
    every = words | pairs | {"three words in a row, 1 + log count": triples} | windows
    return {
        f"**web**: {label}" if recipe.id == DEFAULT.id else label: recipe
        for label, recipe in every.items()
    }


def rehashed(recipe):
    """Return the recipe with several other hashes."""
    return [recipe.replace(hash=Hash(secret=Secret(bytes([seed]) * 16))) for seed in range(HASHES)]
