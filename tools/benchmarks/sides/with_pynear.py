"""The PyPI package pynear as a side of the bench: multi-index hashing in memory, built once."""

from importlib.metadata import version

import numpy as np
import pynear
from serve import K, Side, serve

CHUNK = 10_000
ARRAYS = 64  # with more neighbours than this, its arrays are mostly padding


def as_bytes(fingerprints):
    return fingerprints.astype(">u8").view(np.uint8).reshape(-1, 8)


class Pynear(Side):
    """It finds the nearest `options` neighbours; with more of them than any query has, all."""

    version = f"pynear {version('pynear')}"
    index = None

    def input(self, fingerprints):
        return as_bytes(fingerprints)

    def load(self, data):
        self.index = pynear.MIHBinaryIndex(4)
        self.index.set(data)

    def argument(self, fingerprint):
        return as_bytes(np.array([fingerprint], np.uint64))

    def one(self, argument):
        return self.index.searchKNN(argument, self.options, K)

    def found(self, result):
        ((ids,), (distances,)) = result
        near = [number for number, distance in zip(ids, distances, strict=True) if distance <= K]
        self.enough(len(near))
        return near

    def enough(self, count):
        if count >= self.options:
            raise ValueError(f"{count} neighbours are as many as were asked for; some may lack")

    def arguments(self, fingerprints):
        return as_bytes(fingerprints)

    def many(self, arguments):
        if self.options <= ARRAYS:
            return [self.index.searchKNN_arrays(arguments, self.options, K)]
        chunks = range(0, len(arguments), CHUNK)
        return [
            self.index.searchKNN(arguments[begin : begin + CHUNK], self.options, K)
            for begin in chunks
        ]

    def hits(self, result):
        places, found, begin = [], [], 0
        for ids, distances in result:
            for one_ids, one_distances in zip(ids, distances, strict=True):
                near = np.asarray(one_ids)[np.asarray(one_distances) <= K]
                self.enough(len(near))
                found.append(near)
                places.append(np.full(len(near), begin))
                begin += 1
        return np.concatenate(places), np.concatenate(found).astype(np.int64)

    def open(self):
        """It can't be saved, so opening is building it anew."""
        self.load(self.input(np.load(self.folder / "stored.npy")))

    def save(self):
        """Keep no more than the fingerprints."""
        (self.folder / "stored.npy").symlink_to(self.folder.parent / "stored.npy")


if __name__ == "__main__":
    serve(Pynear)
