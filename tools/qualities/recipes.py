"""The recipes that are evaluated, each with several hashes: a choice must not rest on one."""

import dataclasses

import fpdb
from fpdb import Grams, Secret, Weights

HASHES = 5
DEFAULT = fpdb.recipe("web")
# The description, the preset that is changed, how many words or characters in a row, the weight.
OTHERS = (
    ("words, 1 + log count", "words", 1, "log"),
    ("words, count", "words", 1, "count"),
    ("words, square root", "words", 1, "sqrt"),
    ("pairs of words, 1 + log count", "words", 2, "log"),
    ("pairs of words, count", "words", 2, "count"),
    ("three words in a row, 1 + log count", "words", 3, "log"),
    ("windows of 3 characters, count", "char-4", 3, "count"),
    ("windows of 4 characters, count", "char-4", 4, "count"),
    ("windows of 4 characters, square root", "char-4", 4, "sqrt"),
)


def candidates():
    others = {
        shown: fpdb.recipe(name).replace(grams=Grams(n=n, minimum=8), weights=Weights(by=by))
        for shown, name, n, by in OTHERS
    }
    return {
        "**web**: shingles, 1 + log count": DEFAULT,
        "shingles, each once": DEFAULT.replace(weights=Weights(by="binary")),
        **others,
    }


def rehashed(recipe):
    secrets = [Secret(bytes([seed]) * 16) for seed in range(HASHES)]
    return [
        recipe.replace(hash=dataclasses.replace(recipe.hash, secret=secret)) for secret in secrets
    ]
