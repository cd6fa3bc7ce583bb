"""Other packages on the same texts: what each finds, with its defaults or as its README shows.

An index stores documents, which are a text and its set of shingles, and numbers them from 0; asked
for a document it returns the numbers of those that it finds.
"""

import numpy as np

import fpdb

PACKAGES = ("simhash", "datasketch", "rensa", "gaoya")
PERMUTATIONS = 128
# The caller of rensa chooses: 16 bands of 8 numbers find .95 of the pairs at .8.
RENSA_BANDS = 16


def indexes(similarity):
    """Return an empty index of each package, for texts with at least this similarity."""
    return {
        "datasketch": Datasketch(similarity),
        "rensa": Rensa(similarity),
        "gaoya": Gaoya(similarity),
        "simhash": SimHash(),
    }


class Datasketch:
    """MinHashLSH with 128 permutations, and bands that the package chooses.

    The answers are what the index gives, as the package shows it: nothing is checked.
    """

    def __init__(self, similarity):
        from datasketch import MinHashLSH

        self._index = MinHashLSH(threshold=similarity, num_perm=PERMUTATIONS)

    def store(self, documents):
        for number, (_, own) in enumerate(documents):
            if own:  # the sketch of an empty set would equal that of every other
                self._index.insert(number, self._sketch(own))

    def ask(self, document):
        _, own = document
        return self._index.query(self._sketch(own)) if own else []

    def _sketch(self, own):
        from datasketch import MinHash

        sketch = MinHash(num_perm=PERMUTATIONS)
        sketch.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in sorted(own)])
        return sketch


class Rensa:
    """RMinHashLSH, whose candidates are checked by the estimate of their sketches."""

    def __init__(self, similarity):
        from rensa import RMinHashLSH

        self._similarity = similarity
        self._index = RMinHashLSH(
            threshold=similarity, num_perm=PERMUTATIONS, num_bands=RENSA_BANDS
        )
        self._sketches = {}

    def store(self, documents):
        for number, (_, own) in enumerate(documents):
            if own:
                self._sketches[number] = self._sketch(own)
                self._index.insert(number, self._sketches[number])

    def ask(self, document):
        _, own = document
        if not own:
            return []
        sketch = self._sketch(own)
        return [
            number
            for number in self._index.query(sketch)
            if self._sketches[number].jaccard(sketch) >= self._similarity
        ]

    def _sketch(self, own):
        from rensa import RMinHash

        sketch = RMinHash(num_perm=PERMUTATIONS, seed=42)
        sketch.update(sorted(own))
        return sketch


class Gaoya:
    """MinHashStringIndex with its own bands; it checks its candidates itself."""

    def __init__(self, similarity):
        from gaoya.minhash import MinHashStringIndex

        self._index = MinHashStringIndex(jaccard_threshold=similarity, analyzer=str.splitlines)

    def store(self, documents):
        for number, (_, own) in enumerate(documents):
            if own:
                self._index.insert_document(number, self._joined(own))

    def ask(self, document):
        _, own = document
        return self._index.query(self._joined(own)) if own else []

    def _joined(self, own):
        return "\n".join(sorted(own))  # the analyzer takes each line as a feature


class SimHash:
    """The package simhash with its defaults: fingerprints within 3 bits, no threshold.

    With numpy 2 the package can't take a text that has a feature more than 255 times. Such a text
    gets the fingerprint of the preset simhash-py, which is that of the package before.
    """

    def __init__(self, k=3):
        self._k = k
        self._instead = fpdb.recipe("simhash-py")
        self._fingerprints = np.empty(0, np.uint64)
        self.failed = 0

    def store(self, documents):
        values = [self._fingerprint(text) for text, _ in documents]
        self._fingerprints = np.array(values, np.uint64)

    def ask(self, document):
        apart = np.bitwise_count(self._fingerprints ^ np.uint64(self._fingerprint(document[0])))
        return np.flatnonzero(apart <= self._k).tolist()

    def _fingerprint(self, text):
        from simhash import Simhash

        try:
            return Simhash(text).value
        except OverflowError:
            self.failed += 1
            return self._instead.fingerprint(text)
