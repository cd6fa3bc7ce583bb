"""The PyPI package simhash-pybind: a self-join in C++ of a list, and no index."""

from importlib.metadata import version

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
        return len(find_all(data, BLOCKS, K))


if __name__ == "__main__":
    main(Pybind)
