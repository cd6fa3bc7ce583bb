"""Pages to look at: the duplicates of a corpus, with their texts and what differs in them."""

from fpdb.report.corpus import Reported, report

__all__ = ["Reported", "report"]
