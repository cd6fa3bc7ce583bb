"""FAISS's IndexBinaryMultiHash: in memory, exact, takes more at any time."""

import os

import faiss
import numpy as np
from side import BITS, ByteSide, K, main


class Faiss(ByteSide):
    """`options` say how many hashes of how many bits, and how many of them are flipped."""

    version = f"faiss-cpu {faiss.__version__}"
    cores = frozenset({"batch 1k", "batch 100k", "join"})

    @property
    def path(self):
        return self.folder / "index.faiss"

    def threads(self, count):
        faiss.omp_set_num_threads(count)

    def load(self, data):
        hashes, bits, flips = self.options
        self.index = faiss.IndexBinaryMultiHash(BITS, hashes, bits)
        self.index.nflip = flips
        self.index.add(data)

    def one(self, argument):
        return self.index.range_search(argument, K + 1)  # FAISS's radius is strict

    many = one

    def found(self, result):
        return result[2].tolist()

    def hits(self, result):
        limits, _, ids = result
        return np.repeat(np.arange(len(limits) - 1), np.diff(limits.astype(np.int64))), ids

    def save(self):
        faiss.write_index_binary(self.index, str(self.path))
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def open(self):
        self.index = faiss.read_index_binary(str(self.path))
        # Kept here too, as it decides whether the answers are complete.
        self.index.nflip = self.options[2]

    def add(self, _ids, fingerprints):
        self.index.add(self.prepared_data(fingerprints))  # its ids are places, and go on


if __name__ == "__main__":
    main(Faiss)
