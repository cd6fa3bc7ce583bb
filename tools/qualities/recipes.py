"""The recipes that are evaluated, each with several hashes: a choice must not rest on one."""

import dataclasses

import fpdb
from fpdb import Grams, Secret, Weights

HASHES = 5
DEFAULT = fpdb.recipe("web")
WORDS = fpdb.recipe("words")


def candidates():
    """Return the recipes by their description."""
    shingles = {
        "**web**: shingles, 1 + log count": DEFAULT,
        "shingles, each once": DEFAULT.replace(weights=Weights(by="binary")),
    }
    words = {
        f"words, {shown}": WORDS.replace(grams=Grams(minimum=8), weights=Weights(by=by))
        for by, shown in (("log", "1 + log count"), ("count", "count"), ("sqrt", "square root"))
    }
    pairs = {
        f"pairs of words, {shown}": WORDS.replace(
            grams=Grams(n=2, minimum=8), weights=Weights(by=by)
        )
        for by, shown in (("log", "1 + log count"), ("count", "count"))
    }
    triples = WORDS.replace(grams=Grams(n=3, minimum=8), weights=Weights(by="log"))
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
    return shingles | words | pairs | {"three words in a row, 1 + log count": triples} | windows


def rehashed(recipe):
    """Return the recipe with several other hashes."""
    secrets = [Secret(bytes([seed]) * 16) for seed in range(HASHES)]
    return [
        recipe.replace(hash=dataclasses.replace(recipe.hash, secret=secret)) for secret in secrets
    ]
