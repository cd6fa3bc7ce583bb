"""Pages to look at: the duplicates of a corpus, with their texts and what differs in them."""

from fpdb.report.assessment import report_evaluation
from fpdb.report.corpus import Reported, report

__all__ = ["Reported", "report", "report_evaluation"]
