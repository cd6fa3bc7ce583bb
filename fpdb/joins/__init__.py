"""All near-duplicates of a database: pairs and clusters, and the evaluation of recipes."""

from fpdb.joins.clusters import Members, clusters, members
from fpdb.joins.evaluation import evaluate
from fpdb.joins.pairs import grouped, pairs
from fpdb.joins.picture import evaluation_html, evaluation_svg

__all__ = [
    "Members",
    "clusters",
    "evaluate",
    "evaluation_html",
    "evaluation_svg",
    "grouped",
    "members",
    "pairs",
]
