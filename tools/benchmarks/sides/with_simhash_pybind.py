"""The PyPI package simhash-pybind: a self-join in C++ of a list, and no index."""

from importlib.metadata import version

import numpy as np
from side import K, Side, main
from simhash import find_all

BLOCKS = 6


class Pybind(Side):
    version = f"simhash-pybind {version('simhash-pybind')}"
    cannot = frozenset({"load", "save"})
    distinct = True

    def everything(self, fingerprints):
        return fingerprints.tolist()

    def join(self, data):
        pairs = find_all(data, BLOCKS, K)
        return len(pairs), pairs

    def values(self, result, _fingerprints):
        pairs = np.array(sorted(result), np.uint64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


if __name__ == "__main__":
    main(Pybind)
