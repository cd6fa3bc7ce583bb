"""Work over whole databases: counting what is in one, checking that it agrees, rebuilding it."""

from fpdb.corpus.check import check
from fpdb.corpus.compact import compact
from fpdb.corpus.stats import stats

__all__ = ["check", "compact", "stats"]
