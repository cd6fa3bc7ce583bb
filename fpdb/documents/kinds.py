"""The kinds of keys that a database may have."""

from fpdb.documents.catalog import Catalog
from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.documents.text_keys import TextCatalog

CATALOGS: dict[str, type[Catalog]] = {kind.kind: kind for kind in (TextCatalog, IntegerCatalog)}
