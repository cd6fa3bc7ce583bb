"""fpdb on Apache Spark: fingerprints, pairs, matches and clusters of DataFrames.

`fingerprints` computes the column of fingerprints and reads it back, `near` joins and compares
documents, `matches` answers the questions, and `dedupe` drops rows.
"""

import fpdb

try:
    from fpdb.integrations.spark.dedupe import dedupe
    from fpdb.integrations.spark.fingerprints import fingerprint
    from fpdb.integrations.spark.matches import clusters, pairs, query
except ImportError as error:
    raise fpdb.MissingExtraError(
        f"this is for Apache Spark; {error.name or 'a part of it'} isn't installed",
        hint="pip install 'fpdb-store[spark]'",
    ) from None

__all__ = ["clusters", "dedupe", "fingerprint", "pairs", "query"]
