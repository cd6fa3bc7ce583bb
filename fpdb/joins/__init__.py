"""All near-duplicates: pairs and clusters of databases, exact joins, and evaluation of recipes."""

from fpdb.joins.clusters import Clustering, find_clustering, find_clusters
from fpdb.joins.evaluation import evaluate
from fpdb.joins.exact import exact_pairs
from fpdb.joins.pairs import find_pairs

__all__ = [
    "Clustering",
    "evaluate",
    "exact_pairs",
    "find_clustering",
    "find_clusters",
    "find_pairs",
]
