"""fpdb: a persistent, embedded fingerprint database that finds near-duplicate documents.

The folders are the architecture, and imports point down:

    cli            the command line; nothing that the library can't do
    io             readers of texts
    fingerprint    text -> bits: recipes and their stages
    models         frozen values
    errors         the exception tree
"""

from fpdb.errors import FpdbError, InputError, RecipeError, ShortTextError
from fpdb.fingerprint import (
    Grams,
    Hash,
    IdfTable,
    Recipe,
    Secret,
    Weights,
    compare,
    distance,
    read_recipe,
)
from fpdb.fingerprint import preset as recipe
from fpdb.models import Batch, Comparison

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Comparison",
    "FpdbError",
    "Grams",
    "Hash",
    "IdfTable",
    "InputError",
    "Recipe",
    "RecipeError",
    "Secret",
    "ShortTextError",
    "Weights",
    "__version__",
    "compare",
    "distance",
    "read_recipe",
    "recipe",
]
