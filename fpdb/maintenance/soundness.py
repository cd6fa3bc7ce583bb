"""Read everything in a database once, and say whether it is what was written."""

from fpdb.documents import Catalog
from fpdb.errors import DamagedError
from fpdb.storage import ReadTransaction
from fpdb.storage.counters import Counters
from fpdb.storage.records import require_sound as require_sound_record
from fpdb.tables import Index


def require_sound(txn: ReadTransaction, index: Index, catalog: Catalog) -> None:
    """Verify the checksums of all pages and records, and the number of documents.

    Whether the tables agree with each other is what `check` looks at.
    """
    counters = Counters.unpack(txn.get("header", b"counters"))
    rows = sum(len(page[0]) for page in index.home.scan(txn))
    for pages in (*index.further, *catalog.pages):
        for _ in pages.scan(txn):
            pass
    with txn.cursor("documents") as cursor:
        for value in cursor.iternext(keys=False, values=True):
            require_sound_record(value)
    if rows != counters.documents - counters.short:
        raise DamagedError(
            f"the home table has {rows:,} rows, expected {counters.documents - counters.short:,}",
            hint="run `fpdb check`",
        )
