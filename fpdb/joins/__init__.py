"""All near-duplicates of a database: pairs and clusters, and the evaluation of recipes."""

from fpdb.joins.clusters import Members, find_clusters, find_members
from fpdb.joins.evaluation import evaluate
from fpdb.joins.pairs import find_groups, find_pairs

__all__ = [
    "Members",
    "evaluate",
    "find_clusters",
    "find_groups",
    "find_members",
    "find_pairs",
]
