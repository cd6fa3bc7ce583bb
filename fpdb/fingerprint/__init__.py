"""Text to bits: recipes, the stages they are made of, and sketches.

segmentation cleans and cuts, features makes and weighs features, hashing hashes them, sketches
samples shingles; stages runs all of them over texts; recipe describes them and compares texts;
passages finds those that two texts share; presets has the recipes that come with fpdb, and their
form as a file; digits reads and writes fingerprints.
"""

from fpdb.fingerprint.features import Grams, IdfTable, Weights
from fpdb.fingerprint.hashing import Hash, Secret
from fpdb.fingerprint.passages import overlap
from fpdb.fingerprint.presets import DESCRIPTIONS, PRESETS, preset, read_recipe, write_recipe
from fpdb.fingerprint.recipe import WIDTHS, Recipe, canonical, compare, distance
from fpdb.fingerprint.sketches import doubtful_estimates, least_estimate, sketch_jaccard
from fpdb.fingerprint.stages import to_int

__all__ = [
    "DESCRIPTIONS",
    "PRESETS",
    "WIDTHS",
    "Grams",
    "Hash",
    "IdfTable",
    "Recipe",
    "Secret",
    "Weights",
    "canonical",
    "compare",
    "distance",
    "doubtful_estimates",
    "least_estimate",
    "overlap",
    "preset",
    "read_recipe",
    "sketch_jaccard",
    "to_int",
    "write_recipe",
]
