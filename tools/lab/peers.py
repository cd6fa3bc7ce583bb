"""Other packages: an index of texts, which finds those that are similar to one, by its sketch."""

import importlib

HASHES = 128


def bands_for(similarity):
    """Return how many bands find .94 of the pairs at a similarity: at .8, 16 of 8 numbers.

    The caller of rensa chooses.
    """
    counts = (4, 8, 16, 32, 64)
    return next(n for n in counts if 1 - (1 - similarity ** (HASHES // n)) ** n > 0.94)


class Datasketch:
    """MinHashLSH, with bands that the package chooses.

    The answers are what the index gives, as the package shows it: nothing is checked.
    """

    def __init__(self, similarity, **options):
        self._package = importlib.import_module("datasketch")
        self._index = self._package.MinHashLSH(threshold=similarity, num_perm=HASHES, **options)

    def sketch(self, shingles):
        sketch = self._package.MinHash(num_perm=HASHES)
        sketch.update_batch([each.encode("utf-8", "surrogatepass") for each in shingles])
        return sketch

    def add(self, number, sketch):
        self._index.insert(number, sketch)

    def find(self, sketch):
        return self._index.query(sketch)


class Rensa:
    """RMinHashLSH, whose candidates are checked by the estimate of their sketches."""

    def __init__(self, similarity):
        self._package = importlib.import_module("rensa")
        self._similarity, self._sketches = similarity, {}
        self._index = self._package.RMinHashLSH(
            threshold=similarity, num_perm=HASHES, num_bands=bands_for(similarity)
        )

    def sketch(self, shingles):
        sketch = self._package.RMinHash(num_perm=HASHES, seed=42)
        sketch.update(list(shingles))
        return sketch

    def add(self, number, sketch):
        self._sketches[number] = sketch
        self._index.insert(number, sketch)

    def find(self, sketch):
        near = self._index.query(sketch)
        return [n for n in near if self._sketches[n].jaccard(sketch) >= self._similarity]


class Gaoya:
    """MinHashStringIndex with its own bands; it cuts its texts and checks its candidates itself."""

    def __init__(self, similarity, analyzer, **options):
        package = importlib.import_module("gaoya.minhash")
        self._index = package.MinHashStringIndex(
            jaccard_threshold=similarity, analyzer=analyzer, **options
        )
        self.add, self.find = self._index.insert_document, self._index.query

    def sketch(self, text):
        return text
