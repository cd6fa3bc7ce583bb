"""The kinds of keys that a database may have."""

from fpdb.documents.catalog import Catalog
from fpdb.documents.integer_keys import IntegerCatalog
from fpdb.documents.text_keys import TextCatalog
from fpdb.errors import DamagedError
from fpdb.storage.header import Header
from fpdb.tables import Index, Plan

CATALOGS: dict[str, type[Catalog]] = {kind.kind: kind for kind in (TextCatalog, IntegerCatalog)}


def layout(header: Header) -> tuple[Index, Catalog]:
    """Give the tables and the catalog that a header describes."""
    index = Index(Plan.from_dict(header["plan"]))
    if header["keys"] not in CATALOGS:
        raise DamagedError(
            f"the header speaks of {header['keys']!r} keys, expected one of {', '.join(CATALOGS)}",
            hint="restore the database from a backup",
        )
    return index, CATALOGS[header["keys"]](index, sketched=header.get("sketch") is not None)
