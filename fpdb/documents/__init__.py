"""Documents over the tables: found by key and id, looked up by nearness, written together.

catalog keeps what is stored of each document, for both kinds of keys; lookup turns near
fingerprints into matches; intake checks and fingerprints what is to be added; writing collects the
changes of one transaction.
"""

from fpdb.documents.catalog import CATALOGS, Catalog, Stored
from fpdb.documents.intake import BATCH, Intake, take
from fpdb.documents.lookup import CANDIDATES, Lookup, to_document
from fpdb.documents.writing import Candidate, Writer

__all__ = [
    "BATCH",
    "CANDIDATES",
    "CATALOGS",
    "Candidate",
    "Catalog",
    "Intake",
    "Lookup",
    "Stored",
    "Writer",
    "take",
    "to_document",
]
