"""The PyPI package simhash-pybind as a side of the bench: a self-join in C++, and no index."""

from importlib.metadata import version

import numpy as np
from serve import K, Side, serve
from simhash import find_all

BLOCKS = 6


class Pybind(Side):
    version = f"simhash-pybind {version('simhash-pybind')}"

    def everything(self, fingerprints):
        return fingerprints.tolist()

    def join(self, data):
        pairs = find_all(data, BLOCKS, K)
        return len(pairs), pairs

    def values(self, result, _fingerprints):
        pairs = np.array(sorted(result), np.uint64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


if __name__ == "__main__":
    serve(Pybind)
