"""Documents over the tables: found by key and id, looked up by nearness, written together.

`catalog` is what is stored of each document, with `text_keys` and `integer_keys` for the two kinds
of keys, and `layout` what a header names of all that. `prepare` checks and fingerprints what is to
be added, `writer` collects the changes of one transaction, `lookup` turns near fingerprints into
matches, and `similarity` verifies them.
"""

from fpdb.documents.catalog import Catalog, Stored, View, digest_of
from fpdb.documents.layout import (
    CATALOGS,
    SKETCHES,
    layout,
    new_database,
    new_header,
    read_layout,
    replanned,
)
from fpdb.documents.lookup import (
    CANDIDATES,
    Questions,
    Search,
    answers,
    hits,
    near,
    same_text,
    to_document,
    unpack_meta,
)
from fpdb.documents.prepare import (
    BATCH,
    LOAD,
    Prepared,
    Preparer,
    as_fingerprints,
    as_ids,
    as_keys,
    as_number,
    as_sketches,
    take,
)
from fpdb.documents.similarity import Known, Texts, Verifier, side_of
from fpdb.documents.writer import Writer, at_places

__all__ = [
    "BATCH",
    "CANDIDATES",
    "CATALOGS",
    "LOAD",
    "SKETCHES",
    "Catalog",
    "Known",
    "Prepared",
    "Preparer",
    "Questions",
    "Search",
    "Stored",
    "Texts",
    "Verifier",
    "View",
    "Writer",
    "answers",
    "as_fingerprints",
    "as_ids",
    "as_keys",
    "as_number",
    "as_sketches",
    "at_places",
    "digest_of",
    "hits",
    "layout",
    "near",
    "new_database",
    "new_header",
    "read_layout",
    "replanned",
    "same_text",
    "side_of",
    "take",
    "to_document",
    "unpack_meta",
]
