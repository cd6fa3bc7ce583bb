"""Random hyperplanes: a feature's hash has its signs, and the distance estimates the angle."""

import hashlib
import json
import math
import random
import statistics
from itertools import count
from pathlib import Path

import pytest

import fpdb

VALUES = json.loads((Path(__file__).parent / "values.json").read_text("utf-8"))["hyperplanes"]


def feature_with(signs):
    """Search a word whose MD5 has these signs in its three lowest bits, the first one highest."""
    wanted = int("".join("1" if sign > 0 else "0" for sign in signs), 2)
    tag = "".join("+" if sign > 0 else "-" for sign in signs)
    words = (f"{tag}{number}" for number in count())
    return next(word for word in words if hashlib.md5(word.encode()).digest()[-1] & 7 == wanted)


@pytest.fixture
def recipe_file(tmp_path):
    file = tmp_path / "planes.toml"
    file.write_text(
        'name = "planes"\nbits = 32\nclean = []\nsegment = "whitespace"\n'
        '[grams]\nminimum = 1\n[hash]\nby = "md5"\n'
    )
    return file


def test_the_worked_example_signs_001(run, recipe_file):
    features = [feature_with(signs) for signs in VALUES["signs"]]
    assert len(set(features)) == 5
    weights = dict(zip(features, VALUES["weights"], strict=True))
    recipe = fpdb.read_recipe(recipe_file)
    assert f"{recipe.fingerprint_features(weights):032b}"[-3:] == VALUES["signature"] == "001"
    assert [*recipe.explain(weights).votes[2::-1]] == VALUES["sums"] == [-4, -2, 6]
    # As a text: each feature as often as it weighs.
    text = " ".join(feature for feature in features for _ in range(weights[feature]))
    arguments = ("fingerprint", "--recipe", recipe_file, "--text", text)
    assert run(*arguments, "--base", "binary").rows[0][0].endswith("001")
    explained = json.loads(run(*arguments, "--explain", "--json").out)
    assert explained["votes"][2::-1] == [-4, -2, 6]


def angle_of(one, other):
    """The angle of two vectors of counted words, in degrees."""
    words = one.keys() | other.keys()
    product = sum(one.get(word, 0) * other.get(word, 0) for word in words)
    return math.degrees(
        math.acos(product / (math.hypot(*one.values()) * math.hypot(*other.values())))
    )


def test_the_distance_estimates_angle_and_cosine(run):
    recipe = fpdb.recipe("news-md5")
    dice, errors = random.Random(12), []
    for _ in range(300):
        one = {f"w{dice.randrange(10**6)}": dice.randint(1, 3) for _ in range(200)}
        other = dict(list(one.items())[dice.randrange(200) :])
        other |= {f"w{dice.randrange(10**6)}": dice.randint(1, 3) for _ in range(50)}
        texts = [
            " ".join(word for word, weight in vector.items() for _ in range(weight))
            for vector in (one, other)
        ]
        shown = fpdb.compare(*texts, recipe=recipe)
        assert shown.angle == pytest.approx(180 * shown.distance / 64)
        assert shown.cosine_estimate == pytest.approx(math.cos(math.radians(shown.angle)))
        true = angle_of(one, other)
        # A plane divides the two with the probability angle / 180, as 64 throws of a coin.
        share = true / 180
        errors.append((shown.distance - 64 * share) / math.sqrt(64 * share * (1 - share)))
    assert abs(statistics.mean(errors)) < 0.25
    assert 0.85 < statistics.pstdev(errors) < 1.15
    printed = run("compare", "--recipe", "news-md5", "--all", *_text_options(texts)).out
    assert f"angle        {shown.angle:.2f} degrees, estimated" in printed
    assert f"{shown.cosine:.4f} exact, {shown.cosine_estimate:.4f} estimated" in printed


def _text_options(texts):
    return [part for text in texts for part in ("--text", text)]
