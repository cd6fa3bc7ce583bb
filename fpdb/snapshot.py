"""A database as it was at one moment, for many questions in a row."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from fpdb.documents import BATCH, CANDIDATES, Catalog, Intake, Lookup, Texts, to_document
from fpdb.fingerprint import Recipe
from fpdb.models import Document, Key, Matches
from fpdb.storage import FAULTS, ReadTransaction
from fpdb.storage.counters import Counters
from fpdb.tables import Hits


class Snapshot:
    """A database as it was at one moment: what others write meanwhile doesn't show.

    `db.snapshot()` gives one for a `with` block. It asks as the database does, only faster, since
    no query begins a transaction of its own. While it is open, no page that is freed can be used
    again, and the file grows with all that is written: so keep it open for seconds, not for days.
    Use it in one thread at a time.
    """

    def __init__(
        self,
        txn: ReadTransaction,
        *,
        k: int,
        recipe: Callable[[], Recipe],
        lookup: Lookup,
        intake: Intake,
        catalog: Catalog,
    ) -> None:
        self._txn = txn
        self._k = k
        self._lookup = lookup
        self._intake = intake
        self._catalog = catalog
        self._recipe = recipe

    def query(
        self,
        text: str,
        *,
        k: int | None = None,
        limit: int | None = None,
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Matches:
        """Find the documents near a text, as `Database.query` does."""
        found = self.query_many([text], k=k, limit=limit, min_jaccard=min_jaccard, exact=exact)
        return next(found)

    def query_many(
        self,
        texts: Iterable[str],
        *,
        k: int | None = None,
        limit: int | None = None,
        min_jaccard: float | None = None,
        exact: Texts | None = None,
    ) -> Iterator[Matches]:
        """Find the documents near each of many texts, as `Database.query_many` does."""
        wanted, verifier = self._intake.look(
            k, limit, self._k, min_jaccard, texts=exact, recipe=self._recipe
        )
        sketched = verifier is not None and not verifier.exact
        texts = iter(texts)
        while block := list(islice(texts, BATCH)):
            batch = self._recipe().batch(block, sketches=sketched)
            ask = self._lookup.of_texts(block, batch, wanted, limit, verifier)
            with self._txn.going_on():
                for matches in ask(self._txn, 0):
                    yield matches
                    self._txn.require_open()

    def query_fingerprint(
        self,
        fingerprint: int,
        *,
        k: int | None = None,
        limit: int | None = None,
        budget: int = CANDIDATES,
    ) -> Matches:
        """Find the documents near a fingerprint, as `Database.query_fingerprint` does."""
        txn = self._txn
        if k is not None or limit is not None:
            self._intake.check_query(k, limit)
        number = self._intake.number(fingerprint)
        txn.require_open()
        try:
            return self._lookup.near(txn, number, self._k if k is None else k, limit, budget)
        except FAULTS as error:
            raise txn.explained(error) from error

    def query_fingerprints(
        self, fingerprints: Any, *, k: int | None = None, limit: int | None = None
    ) -> Hits:
        """Find the documents near many fingerprints, as `Database.query_fingerprints` does."""
        self._intake.check_query(k, limit)
        array = self._intake.array(fingerprints)
        with self._txn.going_on():
            return self._lookup.hits(self._txn, array, self._k if k is None else k, limit)

    def get(self, key: Key, default: Any = None) -> Document | Any:
        """Give the document with a key, or the default."""
        with self._txn.going_on():
            stored = self._catalog.find(self._txn, key)
        return default if stored is None else to_document(stored)

    def __len__(self) -> int:
        with self._txn.going_on():
            return Counters.unpack(self._txn.get("header", b"counters")).documents
