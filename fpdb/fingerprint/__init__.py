"""Text to bits: recipes, the stages they are made of, and the comparison of two texts.

clean, segment, features, weights and hashing each hold one stage's choices; windows hashes
character windows as arrays; engine runs a recipe over batches; recipe is the description itself,
presets the ones that come with fpdb, toml their form as a file.
"""

from fpdb.fingerprint.compare import compare, distance
from fpdb.fingerprint.grams import Grams
from fpdb.fingerprint.hashing import Hash, Secret
from fpdb.fingerprint.minhash import estimate as sketch_jaccard
from fpdb.fingerprint.presets import DESCRIPTIONS, PRESETS, preset
from fpdb.fingerprint.recipe import WIDTHS, Recipe, id_of, to_int
from fpdb.fingerprint.toml import read_recipe, write_recipe
from fpdb.fingerprint.weights import IdfTable, Weights

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
    "compare",
    "distance",
    "id_of",
    "preset",
    "read_recipe",
    "sketch_jaccard",
    "to_int",
    "write_recipe",
]
