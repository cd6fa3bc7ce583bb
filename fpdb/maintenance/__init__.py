"""Work over a whole stored database: check, repair, merge, compact, statistics."""

from fpdb.maintenance.check import check
from fpdb.maintenance.compact import compact
from fpdb.maintenance.merge import begun, merge
from fpdb.maintenance.origins import Origin
from fpdb.maintenance.repair import repair
from fpdb.maintenance.soundness import require_sound
from fpdb.maintenance.stats import stats
from fpdb.maintenance.winners import RULES

__all__ = [
    "RULES",
    "Origin",
    "begun",
    "check",
    "compact",
    "merge",
    "repair",
    "require_sound",
    "stats",
]
