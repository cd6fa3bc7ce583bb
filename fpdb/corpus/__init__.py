"""Work over whole databases: counting, checking, rebuilding, and all near-duplicates in one.

`join` finds the near fingerprints of a database, with `groups` as its innermost loop; `pairs` and
`clusters` turn them into documents. `check` reads a database by `reading` and compares its parts by
`agreement`; `identities`, `lookups` and `header_check` are steps of it. `repair`
reads a damaged one by `salvaging`, and `rejoin` brings the rows of integer keys together.
`merge` writes several databases into one: `origins` reads them, and `winners` decides which of them
keeps a document.
`evaluation` rates recipes against
`truth`, and `picture` draws what it found; both know no database.
"""

from fpdb.corpus.check import check
from fpdb.corpus.clusters import Members, clusters, members
from fpdb.corpus.compact import compact
from fpdb.corpus.evaluation import evaluate
from fpdb.corpus.merge import begun, merge
from fpdb.corpus.origins import Origin
from fpdb.corpus.pairs import grouped, pairs
from fpdb.corpus.picture import evaluation_html, evaluation_svg
from fpdb.corpus.repair import repair
from fpdb.corpus.soundness import require_sound
from fpdb.corpus.stats import stats
from fpdb.corpus.winners import RULES

__all__ = [
    "RULES",
    "Members",
    "Origin",
    "begun",
    "check",
    "clusters",
    "compact",
    "evaluate",
    "evaluation_html",
    "evaluation_svg",
    "grouped",
    "members",
    "merge",
    "pairs",
    "repair",
    "require_sound",
    "stats",
]
