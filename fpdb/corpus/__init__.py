"""Work over whole databases: counting what is in one, and checking that everything agrees."""

from fpdb.corpus.check import check
from fpdb.corpus.stats import stats

__all__ = ["check", "stats"]
