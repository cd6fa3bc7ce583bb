"""The questions of a database, written once: Database and Snapshot differ in their transactions."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fpdb.arrays import Marks, items_of
from fpdb.documents.catalog import View
from fpdb.documents.groups import group_of, keeper_key, name_keepers, nearest_documents
from fpdb.documents.lookup import (
    ALWAYS,
    Search,
    answer,
    answers,
    hits,
    near,
    not_found,
    times_of,
    to_document,
)
from fpdb.documents.parts import find_parts
from fpdb.documents.prepare import BATCH, Preparer, as_fingerprints, as_number
from fpdb.documents.results import CLUSTERS, MATCHES, PAIRS, PART_PAIRS, Results
from fpdb.documents.similarity import KnownTexts
from fpdb.errors import IncompleteWarning, InputError
from fpdb.fingerprint import Recipe
from fpdb.models import (
    MOST_BYTES,
    Cluster,
    Document,
    Group,
    Key,
    Match,
    Matches,
    Pair,
    PartMatches,
    PartPair,
    TextsByKey,
    require_share,
    require_similarity,
    require_whole,
)
from fpdb.scratch import scratch_folder
from fpdb.storage import Ongoing, ReadTransaction
from fpdb.storage.block import Block, TextColumns
from fpdb.storage.format import Counters, Stored
from fpdb.tables import Hits, Plan, require_k
from fpdb.threads import mapped

if TYPE_CHECKING:
    from fpdb.joins.clusters import Clustering
    from fpdb.joins.fetched_texts import FetchedTexts

# Joins are imported by the methods that need them, since most programs call none.

# The answers of `query_many` that are held at once have hardly more matches than this.
_MATCHES = 100_000


class Queries(ABC):
    """What can be asked of a database; each question is answered within one transaction.

    Many texts or fingerprints are looked up a thousand at a time, each thousand within one
    transaction, or several if they match very many documents.

    Errors that a method doesn't describe are those of `query`.
    """

    _threaded = True  # whether each thread may begin a transaction

    def __init__(self, preparer: Preparer) -> None:
        self._preparer = preparer
        self._index = preparer.index
        self._catalog = preparer.catalog
        self._usual = Search(self._index.plan.k, None, preparer.header.get("similarity"))

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[ReadTransaction]:
        """Return the transaction in which a question is answered."""

    @property
    def plan(self) -> Plan:
        """The tables of the database."""
        return self._index.plan

    @property
    def recipe(self) -> Recipe:
        """The recipe that the database was created with."""
        return self._preparer.recipe

    @cached_property
    def _unlimited(self) -> Recipe:
        """The recipe for texts of any size, as documents of any size can be stored."""
        return self.recipe.replace(largest=MOST_BYTES)

    @property
    def k(self) -> int:
        """The largest distance that counts as a match where bits are compared."""
        return self._usual.k

    @property
    def similarity(self) -> float | None:
        """The least similarity that counts as a match; None if bits are compared."""
        return self._usual.similarity

    @property
    def has_groups(self) -> bool:
        """Whether the database keeps groups."""
        return self._catalog.grouped

    @property
    def key_type(self) -> str:
        """The type of keys, "text" or "integer"."""
        return self._catalog.kind

    def shortfall(self, similarity: float | None) -> str:
        """Return what share of a similarity the database finds, and the cure; "" if enough."""
        bands, limit = self.plan.bands, self.similarity or 0.0
        if not bands or not similarity or similarity >= limit or bands.suffice(similarity):
            return ""
        return (
            f"finds what is similar from {limit}, and {bands.recall(similarity):.0%} of what is "
            f"similar from {similarity}; compact it with that similarity to find all of it"
        )

    def query(
        self,
        text: str,
        *,
        similarity: float | None = None,
        k: int | None = None,
        limit: int | None = None,
        texts: TextsByKey | None = None,
        added_since: float | None = None,
        added_before: float | None = None,
    ) -> Matches:
        """Find the stored documents that resemble a text, the nearest first.

        A text that is too short for a fingerprint finds those of the same words only, and none if
        it has hardly any.

        Args:
            text: The text to look up.
            similarity: The least similarity that counts; by default that of the database. Of a
                lower one it finds a share only, which a warning says.
            k: Compare fingerprints instead, at most this distance, from 0 to `plan.bits`; complete
                for any k.
            limit: Return the nearest documents only, at most this number. With `k=db.plan.bits`,
                they are the nearest ones whatever their distance.
            texts: The texts of stored documents, if you have them elsewhere: a function or a
                mapping that has the text of a key, or None. Documents whose text it has, as it was
                fingerprinted, match if their exact similarity is high enough, and all others by its
                estimate.
            added_since: Only documents that were added at this time or later, in seconds since
                1970; one that was replaced was added then.
            added_before: Only documents that were added before this time.

        Returns:
            A list of `Match`: key, similarity, distance, metadata, whether the similarity is exact,
            and in a database with groups, the keeper of its group. Its `complete` is False if a
            budget ended the search, or if the database finds too few of that similarity.

        Raises:
            InputError: The text is too large, both similarity and k are given, or a similarity in a
                database of bits, or texts where bits are compared.
            PlanError: The k is below 0 or above `plan.bits`.
            DamagedError, ClosedError: The database is damaged; the handle is closed.

        Warns:
            IncompleteWarning: The database is made for a higher similarity, and may miss documents.
        """
        search = self._search(k, limit, similarity)
        search = search._replace(times=times_of(added_since, added_before))
        question = self._preparer.question(text, sketched=search.similarity is not None)
        if texts is not None:
            known = self._fetched(texts, search)
            known.hold([question], [text])
            search = search._replace(known=known)
        with self._transaction() as txn:
            return self._marked(txn, answer(self._view(txn), question, search), search)

    def query_many(
        self,
        texts: Iterable[str],
        *,
        similarity: float | None = None,
        k: int | None = None,
        limit: int | None = None,
        jobs: int = 1,
    ) -> Results[Matches]:
        """Find the stored documents that resemble each of many texts, a thousand together.

        Args:
            texts: Any iterable of texts.
            similarity: As in `query`.
            k: As in `query`.
            limit: As in `query`.
            jobs: The number of threads that make the fingerprints and look them up, or of a
                snapshot only make them; 0 for one a processor. The answers and their order don't
                depend on it.

        Returns:
            `Results` of what `query` returns, for each text in order.
        """
        search = self._search(k, limit, similarity)
        source = iter(items_of(texts, "texts"))
        blocks = iter(lambda: list(islice(source, BATCH)), [])

        def begun(texts: list[str]) -> tuple[Block, list[Matches]]:
            """Prepare texts in any thread, answer the first ones if it may have a transaction."""
            questions = self._preparer.questions(texts, sketched=search.similarity is not None)
            return questions, self._first_answers(questions, search) if self._threaded else []

        def answered() -> Generator[Matches]:
            for _, (questions, first_matches) in mapped(begun, blocks, jobs):
                yield from first_matches
                yield from self._ask(questions[len(first_matches) :], search)

        return Results(answered(), MATCHES, self.key_type)

    def query_prepared(
        self,
        documents: Block,
        *,
        similarity: float | None = None,
        k: int | None = None,
        limit: int | None = None,
        known: KnownTexts | None = None,
        added_since: float | None = None,
        added_before: float | None = None,
    ) -> Iterator[Matches]:
        """Find the stored documents near each of some that the `preparer` prepared, all together.

        A document that is stored matches itself. The answers are those of `query` with the texts.
        """
        search = self._checked(k, limit, similarity)._replace(known=known)
        times = times_of(added_since, added_before)
        yield from self._ask(documents, search._replace(times=times))

    def nearest_prepared(
        self, texts: TextColumns, similarity: float | None, known: KnownTexts | None = None
    ) -> tuple[dict[int, Match], set[int], Marks]:
        """Find the nearest document of each of many prepared texts, as `nearest_documents` does.

        Marked texts are to be looked up by `query_prepared`. With known texts, which aren't
        compared here, the nearest document is also one that these might show to be similar.
        """
        search = self._checked(None, 1, similarity)._replace(known=known)
        if search.similarity is None:
            return {}, set(), np.ones(len(texts.digests), np.bool_)
        with self._transaction() as txn:
            return nearest_documents(self._view(txn), texts, search.least)

    def passages(
        self,
        text: str,
        *,
        least: float = 0.0,
        limit: int | None = None,
        added_since: float | None = None,
        added_before: float | None = None,
        common: Sequence[str] = (),
    ) -> PartMatches:
        """Find the stored documents with passages of a text, the sources of most first.

        A passage of 28 words, or 30 characters of Chinese, is found for certain,
        and most of what is longer than 20; so is what was moved, but nothing reworded.

        Args:
            text: The text whose passages are looked up.
            least: The least share of the text that a document has, or of the document that the text
                has; the larger one counts.
            limit: Return the first documents only, at most this number.
            added_since: As in `query`.
            added_before: As in `query`.
            common: Texts whose passages count for nobody, such as a form that many filled in.

        Returns:
            A list of `PartMatch`: key, the estimated number of words in common, their share of the
            text, the share of the document, and metadata. The first has most of the
            text, each further one most of what is left; of several such, the one with most words.

        Raises:
            InputError: The database keeps no passages, or the text is too large.
        """
        require_whole("limit", limit, 1)
        self._require_passages(least)
        recipe = self.recipe.replace(common=tuple(common)) if common else self.recipe
        placed = recipe.placed_passages(text)
        times, size = times_of(added_since, added_before), len(text)
        with self._transaction() as txn:
            return find_parts(self._view(txn), placed, size, least, limit=limit, times=times)

    def query_fingerprint(
        self,
        fingerprint: int,
        *,
        k: int | None = None,
        limit: int | None = None,
        added_since: float | None = None,
        added_before: float | None = None,
    ) -> Matches:
        """Find the stored documents within k of a fingerprint, the nearest first.

        Args:
            fingerprint: A number of the width of the database.
            k: The largest distance, from 0 to `plan.bits`; by default the k of the database.
            limit: As in `query`.
            added_since: As in `query`.
            added_before: As in `query`.

        Returns:
            A list of `Match`. Its `complete` is False if a budget cut it: a million candidates, or
            ten thousand documents, or as many more than a limit that are as near as its last one.

        Raises:
            InputError: The fingerprint is too wide.
        """
        search = self._usual
        if k is not None or limit is not None:
            search = self._search(self.k if k is None else k, limit)
        search = search._replace(times=times_of(added_since, added_before))
        number = as_number(fingerprint, self._index.plan.bits)
        with self._transaction() as txn:
            return self._marked(txn, near(self._view(txn), number, search), search)

    def query_fingerprints(
        self, fingerprints: Any, *, k: int | None = None, limit: int | None = None
    ) -> Hits:
        """Find the stored documents within k of each of many fingerprints, all together.

        Args:
            fingerprints: An array as `recipe.fingerprint_many` returns it, or any numbers.
            k: As in `query_fingerprint`.
            limit: Take the nearest documents of each only; of equal distances the lowest ids.

        Returns:
            Arrays: the places of the queries, the ids of the documents, the distances, sorted by
            query, distance and id; and for each query whether its answer is complete, as in
            `query_fingerprint`.

        Raises:
            InputError: A fingerprint is too wide, or the answer has more than 134,217,728 hits.
        """
        search = self._search(self.k if k is None else k, limit)
        array = as_fingerprints(fingerprints, self.plan.bits)
        with self._transaction() as txn:
            return hits(self._view(txn), array, search)

    def pairs(
        self,
        *,
        similarity: float | None = None,
        k: int | None = None,
        texts: TextsByKey | None = None,
        jobs: int = 1,
    ) -> Results[Pair]:
        """Find all pairs of stored documents that match, in no particular order.

        Pairs within k are complete; of those with a similarity, bands find the share that
        `plan.bands.recall` returns. Short texts have no pairs. A thousand copies have half a
        million pairs, but are one of the `clusters`.

        Args:
            similarity: As in `query`.
            k: As in `query`.
            texts: As in `query`. Each text is asked for once, in this thread; what is kept of them
                is in temporary files if it doesn't fit into memory.
            jobs: The number of threads that compare; 0 for one a processor. The pairs and their
                order don't depend on it.

        Returns:
            `Results` of `Pair`, which read one snapshot.

        Raises:
            InputError: Both similarity and k are given, or a similarity in a database of bits, or
                texts where bits are compared.
            PlanError: The k takes too many probes on these tables.

        Warns:
            IncompleteWarning: The database is made for a higher similarity, or very many documents
                agree in a band, so pairs may be missing.
        """
        from fpdb.joins.pairs import find_pairs

        pairs = self._joined(find_pairs, self._search(k, None, similarity), jobs, texts)
        return Results(pairs, PAIRS, self.key_type)

    def passage_pairs(self, *, least: float = 0.1) -> Results[PartPair]:
        """Find all pairs of stored documents with passages in common, in the order of the first.

        Args:
            least: The least share of one of the two that the other one has.

        Returns:
            `Results` of `PartPair`, as in `pairs`.

        Raises:
            InputError: The database keeps no passages.

        Warns:
            IncompleteWarning: More than a thousand documents have a passage, which leads to none.
        """
        from fpdb.joins.pairs import find_part_pairs

        self._require_passages(least)
        return Results(self._reading(find_part_pairs, least), PART_PAIRS, self.key_type)

    def _require_passages(self, least: float) -> None:
        require_share("least", least)
        if not self._catalog.passaged:
            raise InputError(
                "the database keeps no passages, by which copied ones are found",
                hint="compact it with passages, and ingest the texts again",
            )

    def clusters(
        self,
        *,
        similarity: float | None = None,
        k: int | None = None,
        keep: str = "first",
        chains: bool = False,
        texts: TextsByKey | None = None,
        jobs: int = 1,
    ) -> Results[Cluster]:
        """Find near-duplicates, each with the document that represents it.

        Every duplicate matches its representative, and no representative matches one that is
        preferred to it. Errors are those of `pairs`.

        Args:
            similarity: As in `pairs`.
            k: As in `pairs`.
            keep: Which document represents a cluster: "first", the one with the smallest id,
                "longest", the one with the longest text, "newest:FIELD", the one with the latest
                date or the largest number in this field of its metadata, or "source:FIELD=a,b,*",
                the one whose field has the first of some values, as in `dedupe`.
            chains: Put all documents into one cluster that pairs connect, though duplicates then
                may differ from their representative as much as any two texts.
            texts: As in `pairs`.
            jobs: As in `pairs`.

        Returns:
            `Results` of `Cluster`, as in `pairs`.
        """
        from fpdb.joins.clusters import finder_of_clusters

        find = finder_of_clusters(keep, chains=chains)
        clusters = self._joined(find, self._search(k, None, similarity), jobs, texts)
        return Results(clusters, CLUSTERS, self.key_type)

    def clustering(
        self, *, similarity: float | None = None, texts: TextsByKey | None = None, jobs: int = 1
    ) -> "Clustering":
        """Find all clusters at once, as columns, with the copies among them.

        They are those of `clusters`, in memory that grows with the documents that are in one.
        """
        from fpdb.joins.clusters import find_clustering

        search = self._search(None, None, similarity)
        [clustering] = self._joined(find_clustering, search, jobs, texts)
        return cast("Clustering", clustering)

    def kept_groups(self) -> "Clustering":
        """Return all groups of several documents that the database keeps, as `clustering` does."""
        from fpdb.joins.clusters import find_groups

        [groups] = self._reading(find_groups)
        return cast("Clustering", groups)

    def _joined(
        self,
        find: Callable[..., Iterator[Any]],
        search: Search,
        jobs: int,
        texts: TextsByKey | None,
    ) -> Generator[Any]:
        if search.similarity is None:
            self.plan.probes(search.k)  # which raises an error before the first result is wanted
        if texts is not None:
            self._fetched(texts, search)  # which does so, too

        def read() -> Generator[Any]:
            with self._comparing(search, texts) as comparing:
                yield from self._reading(find, comparing, jobs)

        return read()

    @contextmanager
    def _comparing(self, search: Search, texts: TextsByKey | None) -> Iterator[Search]:
        """Compare texts for a block, in which their shingles may be in temporary files."""
        if texts is None:
            yield search
            return
        with scratch_folder() as scratch:
            yield search._replace(known=self._fetched(texts, search, scratch))

    def _fetched(
        self, texts: TextsByKey, search: Search, scratch: Path | None = None
    ) -> "FetchedTexts":
        """Return what fetches texts; their shingles are in memory, or if need be in a folder."""
        from fpdb.joins.columns import Room
        from fpdb.joins.fetched_texts import FetchedTexts

        if search.similarity is None:
            raise InputError(
                "found texts where bits are compared, expected a similarity",
                hint="leave the texts out, or create the database with a similarity",
            )
        return FetchedTexts(self._unlimited, texts, None if scratch is None else Room(scratch))

    def _reading(self, find: Callable[..., Iterator[Any]], *options: Any) -> Generator[Any]:
        with self._transaction() as txn:
            yield from find(self._view(txn), *options)

    def get(self, key: Key, default: Any = None) -> Document | Any:
        """Return the stored document with a key, or the default.

        Its text isn't stored, so it is empty. `db[key]` raises DocumentNotFoundError instead.
        """
        with self._transaction() as txn:
            stored = self._catalog.find(txn, key)
            return default if stored is None else self._document(txn, stored)

    def _document(self, txn: ReadTransaction, stored: Stored) -> Document:
        return to_document(stored, keeper_key(self._view(txn), stored))

    def group(self, key: Key) -> Group:
        """Return the group that the document with a key belongs to.

        A document belongs to the group of the keeper that it resembled most when it was added, or
        to its own if it resembled none. Where a keeper is deleted or replaced, the oldest member
        takes its place; those that don't resemble that are decided anew, by and by.

        Returns:
            A `Group`: the key of its keeper, and those of its other members, the oldest first.

        Raises:
            InputError: The database keeps no groups.
            DocumentNotFoundError: No document has the key.
        """
        with self._transaction() as txn:
            return group_of(self._view(txn), key)

    def keys_of(self, ids: Iterable[int]) -> list[Key | None]:
        """Return the keys of documents by their ids, as `query_fingerprints` returns them.

        A document that has been deleted meanwhile has None.
        """
        numbers = as_fingerprints(ids, 64, "id")
        with self._transaction() as txn:
            return self._catalog.keys_of(txn, numbers)

    def scan(
        self,
        *,
        prefix: str = "",
        added_since: float | None = None,
        added_before: float | None = None,
        after: Key | None = None,
    ) -> Iterator[Document]:
        """Yield the stored documents in the order of their keys; what is added meanwhile may show.

        Keys of 511 bytes and more are in the order of their first 479 bytes.

        Args:
            prefix: Yield those whose key begins with it.
            added_since: Yield those that were added at a time or later, in seconds since 1970.
            added_before: Yield those that were added before a time.
            after: Yield those that come after this key.
        """
        since, before = times_of(added_since, added_before) or ALWAYS
        if after is not None:
            self._catalog.check_key(after)
        while True:
            with self._transaction() as txn:
                documents = self._catalog.slice_after(txn, after, prefix)
                chosen = [
                    self._document(txn, stored)
                    for stored in documents
                    if since <= stored.added < before
                ]
            if not documents:
                return
            after = documents[-1].key
            yield from chosen

    def __getitem__(self, key: Key) -> Document:
        if (document := self.get(key)) is None:
            raise not_found(key)
        return cast("Document", document)

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        with self._transaction() as txn:
            return Counters.unpack(txn.get("counters", b"counters")).documents

    def __iter__(self) -> Iterator[Key]:
        return (document.key for document in self.scan())

    def keys(self) -> Iterator[Key]:
        """Yield the keys, as a mapping does: so `dict(db)` has all documents by their keys."""
        return iter(self)

    def _view(self, txn: ReadTransaction) -> View:
        return View(txn, self._index, self._catalog)

    def _ask(self, questions: Block, search: Search) -> Iterator[Matches]:
        """Yield the answers; no transaction stays open while they are used."""
        answered = 0
        while answered < len(questions):
            first_matches = self._first_answers(questions[answered:], search)
            yield from first_matches
            answered += len(first_matches)

    def _first_answers(self, questions: Block, search: Search) -> list[Matches]:
        """Answer the first questions within one transaction, as many as may be held at once."""
        first_matches: list[Matches] = []
        held = 0
        with self._transaction() as txn:
            for matches in answers(self._view(txn), questions, search):
                first_matches.append(self._marked(txn, matches, search))
                held += len(matches)
                if held >= _MATCHES:
                    break
        return first_matches

    def _marked(self, txn: ReadTransaction, matches: Matches, search: Search) -> Matches:
        """Return an answer with groups, marked as incomplete if the bands don't find enough."""
        matches.complete = matches.complete and not self.shortfall(search.similarity)
        if self._index.groups:
            name_keepers(self._view(txn), matches)
        return matches

    def _search(self, k: int | None, limit: int | None, similarity: float | None = None) -> Search:
        search = self._checked(k, limit, similarity)
        self.warn_of_shortfall(similarity)
        return search

    def warn_of_shortfall(self, similarity: float | None) -> None:
        """Issue an IncompleteWarning if the database is made for a higher similarity."""
        if short := self.shortfall(similarity):
            warnings.warn(f"the database {short}", IncompleteWarning, stacklevel=4)

    def _checked(self, k: int | None, limit: int | None, similarity: float | None) -> Search:
        if k is None and limit is None and similarity is None:
            return self._usual
        k, limit = require_whole("k", k), require_whole("limit", limit, 1)
        similarity = require_similarity(similarity, k)
        if similarity is not None and not self._catalog.sketched:
            raise InputError(
                "the database keeps no sketches, by which similar texts are found",
                hint="create it with a similarity, or query with k",
            )
        if k is None:
            return self._usual._replace(limit=limit, similarity=similarity or self.similarity)
        require_k(k, self.plan.bits)
        return Search(k, limit)


class Snapshot(Queries):
    """A database as it was at one moment: what others write meanwhile doesn't show.

    `db.snapshot()` gives one for a `with` block. Its questions are those of the database, only
    faster, since none begins a transaction of its own. While it is open, no page that is freed can
    be used again, and the file grows with all that is written: so keep it open for seconds, not for
    days. Use it in one thread at a time.
    """

    _threaded = False

    def __init__(self, preparer: Preparer, txn: ReadTransaction) -> None:
        super().__init__(preparer)
        self._ongoing = Ongoing(txn)

    def _transaction(self) -> Ongoing:
        return self._ongoing
