"""Other packages on the same texts: what each finds, with its defaults or as its README shows.

An index stores documents, which are a text and its set of shingles, and numbers them from 0; asked
for a document it returns the numbers of those that it finds.
"""

import numpy as np
from peers import Datasketch, Gaoya, Rensa

import fpdb

PACKAGES = ("simhash", "datasketch", "rensa", "gaoya")


def indexes(similarity):
    """Return an empty index of each package, for texts with at least this similarity."""
    return {
        "datasketch": Index(Datasketch(similarity)),
        "rensa": Index(Rensa(similarity)),
        # The analyzer takes each line as a feature.
        "gaoya": Index(Gaoya(similarity, str.splitlines), "\n".join),
        "simhash": SimHash(),
    }


class Index:
    def __init__(self, index, form=list):
        self._index, self._form = index, form

    def store(self, documents):
        for number, (_, own) in enumerate(documents):
            if own:  # the sketch of an empty set would equal that of every other
                self._index.add(number, self._sketch(own))

    def ask(self, document):
        _, own = document
        return self._index.find(self._sketch(own)) if own else []

    def _sketch(self, own):
        return self._index.sketch(self._form(sorted(own)))


class SimHash:
    """The package simhash with its defaults: fingerprints within 3 bits, no threshold.

    With numpy 2 the package can't take a text that has a feature more than 255 times. Such a text
    gets the fingerprint of the preset simhash-py, which is that of the package before.
    """

    def __init__(self, k=3):
        self._k = k
        self._instead = fpdb.recipe("simhash-py")

    def store(self, documents):
        self._stored = np.array([self._fingerprint(text) for text, _ in documents], np.uint64)

    def ask(self, document):
        apart = np.bitwise_count(self._stored ^ np.uint64(self._fingerprint(document[0])))
        return np.flatnonzero(apart <= self._k).tolist()

    def _fingerprint(self, text):
        from simhash import Simhash

        try:
            return Simhash(text).value
        except OverflowError:
            return self._instead.fingerprint(text)
