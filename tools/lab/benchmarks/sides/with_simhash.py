"""The PyPI package simhash: its SimhashIndex, in pure Python, in memory."""

import logging
import os
import pickle
from importlib.metadata import version

from side import BITS, K, Side, main
from simhash import Simhash, SimhashIndex

# It warns of each big bucket that it reads; writing that down isn't what is to be timed.
logging.getLogger().setLevel(logging.CRITICAL)


class Package(Side):
    version = f"simhash {version('simhash')}"

    @property
    def path(self):
        return self.folder / "index.pickle"

    def prepared_data(self, fingerprints):
        return fingerprints.tolist()

    def load(self, data):
        documents = [(str(place), Simhash(number, f=BITS)) for place, number in enumerate(data)]
        self.index = SimhashIndex(documents, f=BITS, k=K)

    def argument(self, fingerprint):
        return Simhash(fingerprint, f=BITS)

    def one(self, argument):
        return self.index.get_near_dups(argument)

    def found(self, result):
        return [int(name) for name in result]

    def save(self):
        with self.path.open("wb") as file:
            pickle.dump(self.index, file, pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())

    def open(self):
        with self.path.open("rb") as file:
            self.index = pickle.load(file)

    def add(self, ids, fingerprints):
        for place, number in zip(ids.tolist(), fingerprints.tolist(), strict=True):
            self.index.add(str(place), Simhash(number, f=BITS))


if __name__ == "__main__":
    main(Package)
