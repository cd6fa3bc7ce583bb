"""The texts of documents that users have, to compare these exactly by their shingles."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fpdb.arrays import Places
from fpdb.documents.similarity import Shares
from fpdb.errors import InputError
from fpdb.fingerprint import Recipe
from fpdb.joins.columns import Room
from fpdb.joins.shingle_sets import ShingleSets
from fpdb.models import Key, TextsByKey
from fpdb.storage.format import Stored

# Texts that are held at once.
_TEXTS = 256


class FetchedTexts:
    """The texts of documents, each asked for once, as sets of shingles.

    A text whose digest isn't the stored one isn't the fingerprinted one: it counts as unknown.
    Equal digests are of one text, whoever has it.
    """

    def __init__(self, recipe: Recipe, texts: TextsByKey, room: Room | None = None) -> None:
        if not callable(texts) and not isinstance(texts, Mapping):
            raise InputError(
                f"found texts={texts!r:.40}, expected a function that returns the text of a key",
                hint="or a mapping from keys to texts, such as a dict",
            )
        self._recipe = recipe
        self._text_of = texts.get if isinstance(texts, Mapping) else texts
        self._asked: set[Key] = set()
        self._held: dict[bytes | Key, str] = {}
        self._places: dict[bytes | Key, int] = {}
        self._sets = ShingleSets(Room(Path(), sys.maxsize) if room is None else room)

    @property
    def size(self) -> int:
        """The number of all shingles."""
        return self._sets.size

    def hold(self, documents: Sequence[Stored], texts: Sequence[str | None]) -> None:
        """Take the texts of some documents, for which nobody is asked, in place of earlier ones."""
        pairs = zip(documents, texts, strict=True)
        self._held = {_name(document): text for document, text in pairs if text is not None}

    def ask_no_more(self) -> None:
        """Take all further texts for unknown, unless they are held."""
        self._text_of = _unknown

    def places(self, documents: Sequence[Stored]) -> Places:
        """Return where the texts of documents are, and -1 for those that aren't known."""
        texts: dict[bytes | Key, str] = {}
        for document in documents:
            name = _name(document)
            if name not in self._places and name not in texts:
                text = self._held.get(name)
                text = self._fetched(document) if text is None else text
                if text is not None:
                    texts[name] = text
            if len(texts) == _TEXTS:
                self._cut(texts)
                texts.clear()
        self._cut(texts)
        return np.array([self._places.get(_name(document), -1) for document in documents], np.int64)

    def shares(self, first: Places, second: Places) -> Shares:
        """Return the exact similarity of each two texts; nan where one of them isn't known."""
        shares = np.full(len(first), np.nan)
        [known] = ((first >= 0) & (second >= 0)).nonzero()
        shares[known] = self._sets.shares(first[known], second[known], 0.0)
        return shares

    def sizes(self, documents: Sequence[Stored]) -> Places:
        """Return how many shingles the texts of documents have; 0 where they aren't known."""
        places = self.places(documents)
        sizes = np.zeros(len(places), np.int64)
        sizes[places >= 0] = self._sets.sizes(places[places >= 0])
        return sizes

    def _cut(self, texts: Mapping[bytes | Key, str]) -> None:
        """Keep the shingles of texts; one without any can't be compared."""
        sets = self._recipe.shingles_many(list(texts.values()))
        start = len(self._sets)
        self._sets.add(np.arange(start, start + len(sets)), sets)
        places = (start + at if len(shingles) else -1 for at, shingles in enumerate(sets))
        self._places.update(zip(texts, places, strict=True))

    def _fetched(self, document: Stored) -> str | None:
        key = document.key
        if key in self._asked:
            return None
        text = self._text_of(key)
        if text is not None and not isinstance(text, str):
            raise InputError(
                f"found {text!r:.40} for the text of {key!r:.60}, expected a text, or None",
                hint="texts returns what was fingerprinted, or None where that isn't known",
            )
        self._asked.add(key)
        if text is None or document.digest not in (b"", self._recipe.digest(text)):
            return None
        return text


def _name(document: Stored) -> bytes | Key:
    """Return the name of a text: its digest, or the key of a document that has none."""
    return document.digest or document.key


def _unknown(_: Key) -> None:
    return None
