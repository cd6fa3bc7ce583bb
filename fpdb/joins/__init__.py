"""All near-duplicates: pairs and clusters of databases, exact joins, and evaluation of recipes."""

from fpdb.joins.clusters import find_clusters
from fpdb.joins.evaluation import evaluate
from fpdb.joins.exact import exact_pairs
from fpdb.joins.pairs import find_pairs

__all__ = [
    "evaluate",
    "exact_pairs",
    "find_clusters",
    "find_pairs",
]
