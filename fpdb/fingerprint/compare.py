"""Compare two texts: what their fingerprints estimate, beside what their features say exactly."""

import math
from collections.abc import Mapping

from fpdb.errors import InputError
from fpdb.fingerprint.minhash import estimate, standard_error
from fpdb.fingerprint.recipe import Recipe, to_int
from fpdb.fingerprint.shingles import exact_jaccard
from fpdb.models import Comparison


def distance(first: int, second: int) -> int:
    """Count the bits in which two fingerprints differ."""
    if first < 0 or second < 0:
        raise InputError("found a negative number, expected two fingerprints")
    return (first ^ second).bit_count()


def compare(recipe: Recipe, first: str, second: str) -> Comparison:
    """Compare two texts under a recipe."""
    batch = recipe.batch([first, second], sketches=True)
    left, right = (to_int(fingerprint) for fingerprint in batch.fingerprints)
    features, others = recipe.features(first), recipe.features(second)
    apart = distance(left, right)
    exact = exact_jaccard(recipe.shingles(first), recipe.shingles(second))
    estimated = None
    if exact is not None and batch.sketches is not None:
        estimated = float(estimate(batch.sketches[0], batch.sketches[1]))
    turn = math.pi * apart / recipe.bits
    return Comparison(
        distance=apart,
        similarity=1 - apart / recipe.bits,
        angle=math.degrees(turn),
        cosine_estimate=math.cos(turn),
        cosine=_cosine(features, others),
        jaccard=_jaccard(features, others),
        value_ratio=min(left, right) / max(left, right) if left != right else 1.0,
        shingle_jaccard=exact,
        sketch_jaccard=estimated,
        sketch_error=None if estimated is None else standard_error(estimated),
        short=bool(batch.short.any()),
        equal=features == others,
    )


def _cosine(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    if not first or not second:
        return float(first == second)
    product = math.fsum(
        weight * second[shared] for shared, weight in first.items() if shared in second
    )
    norms = (math.hypot(*features.values()) for features in (first, second))
    scale = math.prod(norms)
    return min(product / scale, 1.0) if scale else 0.0


def _jaccard(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    union = len(first.keys() | second.keys())
    return len(first.keys() & second.keys()) / union if union else 1.0
