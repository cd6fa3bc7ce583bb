"""The documents of a database for which records may go, by estimates or by the texts of both."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fpdb.arrays import Marks, Places, unique
from fpdb.database import Database
from fpdb.dedupe.prepare import RecordBlock
from fpdb.dedupe.run import Deduplication
from fpdb.fingerprint import Recipe
from fpdb.fingerprint.sketches import doubtful_estimates
from fpdb.joins.columns import Room
from fpdb.joins.fetched_texts import FetchedTexts
from fpdb.joins.rules import own_shares
from fpdb.models import MOST_BYTES, Match
from fpdb.storage.block import Block, TextColumns


class StoredMatch(NamedTuple):
    """A document that a record resembles, and the share of the record's shingles that it lacks.

    The share is None unless texts have shown it.
    """

    match: Match
    own_share: float | None = None


class StoredDocuments:
    """The documents of a database; their texts, if a run has them, decide where estimates can't."""

    def __init__(
        self,
        database: Database,
        run: Deduplication,
        similarity: float | None,
        recipe: Recipe,
        room: Room,
    ) -> None:
        self._database, self._similarity, self._lose = database, similarity, run.lose
        self._counts = run.counts
        self._sure = doubtful_estimates(similarity)[1] if similarity else 0.0
        self._known: FetchedTexts | None = None
        if run.texts is not None:
            recipe = recipe.replace(largest=MOST_BYTES)
            self._known = FetchedTexts(recipe, run.texts, room)

    def is_estimated(self, stored: StoredMatch) -> bool:
        """Return whether a document is similar by an estimate near the limit."""
        share = stored.match.similarity
        return share is not None and share <= self._sure and stored.own_share is None

    def resembled(
        self,
        records: TextColumns,
        good: Marks,
        shingles: Places,
        blocks: Sequence[RecordBlock],
        ask: Callable[[Places], Block],
    ) -> tuple[dict[int, StoredMatch], set[int], list[int]]:
        """Find the nearest documents for which records may go, by the places of these.

        Also return the places of records whose text some document has, and of the records that were
        looked up one by one: good ones that are short, have many candidates, or are left open
        by estimates.

        Args:
            records: The records of some blocks.
            good: Marks of the records that can be compared.
            shingles: How many shingles each has.
            blocks: The blocks, which are read again for the texts of open records.
            ask: Makes a question of each of some records.
        """
        known, similarity, lose = self._known, self._similarity, self._lose
        near, copies, alone = self._database.nearest_prepared(records, similarity, known)
        if known is not None:
            sure = self._sure if lose is None else 1.0
            for place, match in near.items():
                alone[place] |= (match.similarity or 0.0) <= sure and place not in copies
        nearest = {place: StoredMatch(match) for place, match in near.items() if not alone[place]}
        [asked] = ((alone | records.short) & good).nonzero()
        questions = ask(asked)
        if known is not None:
            known.hold(list(questions.rows()), _texts_of(blocks, asked))
        limit = None if known is not None and lose is not None else 1
        answers = self._database.query_prepared(
            questions, similarity=similarity, limit=limit, known=known
        )
        for place, matches in zip(asked.tolist(), answers, strict=True):
            self._counts.incomplete += not matches.complete
            shares = self._own_shares(int(shingles[place]), matches)
            for match, share in zip(matches, shares, strict=True):
                if limit or records.short[place] or (share is not None and share <= (lose or 0.0)):
                    nearest[place] = StoredMatch(match, share)
                    break
        return nearest, copies, asked.tolist()

    def _own_shares(self, shingles: int, matches: Sequence[Match]) -> list[float | None]:
        """Return which share of a record's shingles documents lack; None where it isn't known."""
        if self._known is None or not matches:
            return [None] * len(matches)
        stored = self._database.runs.stored([match.key for match in matches]).values()
        documents = [document for document in stored if document]
        known = zip(documents, self._known.sizes(documents).tolist(), strict=True)
        sizes = {document.key: size for document, size in known}
        stored_sizes = np.array([sizes.get(match.key, 0) for match in matches])
        similarities = np.array([match.similarity or 0.0 for match in matches])
        lost = own_shares(similarities, np.full(len(matches), shingles), stored_sizes)
        lost[[not match.exact for match in matches] | (stored_sizes == 0)] = np.nan
        return [None if np.isnan(share) else share for share in lost.tolist()]


def _texts_of(blocks: Sequence[RecordBlock], places: Places) -> list[str]:
    """Return the texts of some records of blocks, which are read again."""
    firsts = np.array([block.first for block in blocks]) - blocks[0].first
    owners = np.searchsorted(firsts, places, "right") - 1
    texts: list[str] = []
    for owner in unique(owners).tolist():
        read = blocks[owner].read().texts
        texts += [read[at] or "" for at in (places[owners == owner] - firsts[owner]).tolist()]
    return texts
