"""fpdb on Apache Spark: fingerprints, pairs, matches and clusters of DataFrames.

`fingerprints` makes the column of fingerprints, `joining` finds what is near, `verifying` compares
sketches, `finding` asks all that of documents, and `components` makes clusters of pairs.
`columns` knows what a column of fingerprints looks like.
"""

import fpdb

try:
    from fpdb.integrations.spark.components import clusters
    from fpdb.integrations.spark.finding import pairs, plan, query
    from fpdb.integrations.spark.fingerprints import fingerprint
except ImportError as error:
    raise fpdb.MissingExtraError(
        f"this is for Apache Spark, of which {error.name or 'a part'} isn't installed",
        hint="pip install 'fpdb[spark]'",
    ) from None

__all__ = ["clusters", "fingerprint", "pairs", "plan", "query"]
