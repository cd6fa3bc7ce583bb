"""Documents over the tables: found by key and id, looked up by nearness, written together.

catalog keeps what is stored of each document, text_keys and integer_keys for the two kinds of
keys; lookup turns near
fingerprints into matches; intake checks and fingerprints what is to be added; writing collects the
changes of one transaction.
"""

from fpdb.documents.catalog import Catalog, Stored, View, digest_of
from fpdb.documents.intake import BATCH, LOAD, Intake, Prepared, Preparer, take
from fpdb.documents.layout import (
    CATALOGS,
    SKETCHES,
    layout,
    new_database,
    new_header,
    read_layout,
    replanned,
)
from fpdb.documents.lookup import CANDIDATES, Ask, Lookup, to_document, unpack_meta
from fpdb.documents.verify import Known, Texts, Verifier, side_of
from fpdb.documents.writing import Candidate, Writer, at_places

__all__ = [
    "BATCH",
    "CANDIDATES",
    "CATALOGS",
    "LOAD",
    "SKETCHES",
    "Ask",
    "Candidate",
    "Catalog",
    "Intake",
    "Known",
    "Lookup",
    "Prepared",
    "Preparer",
    "Stored",
    "Texts",
    "Verifier",
    "View",
    "Writer",
    "at_places",
    "digest_of",
    "layout",
    "new_database",
    "new_header",
    "read_layout",
    "replanned",
    "side_of",
    "take",
    "to_document",
    "unpack_meta",
]
