"""The PyPI package pynear: multi-index hashing in memory, built at once."""

from importlib.metadata import version

import numpy as np
import pynear
from side import ByteSide, K, main, spread

CHUNK = 10_000
ARRAYS = 64  # with more neighbours than this, its arrays are mostly padding


class Pynear(ByteSide):
    """It finds the nearest `options` neighbours; with more of them than any query has, all."""

    version = f"pynear {version('pynear')}"
    cannot = frozenset({"save"})  # it is built again at each start

    def load(self, data):
        self.index = pynear.MIHBinaryIndex(4)
        self.index.set(data)

    def one(self, argument):
        return self.index.searchKNN(argument, self.options, K)

    def found(self, result):
        ((ids,), (distances,)) = result
        near = np.asarray(ids)[np.asarray(distances) <= K].tolist()
        if len(near) >= self.options:
            raise ValueError(f"{len(near)} neighbours are as many as were asked for; some may lack")
        return near

    def many(self, arguments):
        if self.options <= ARRAYS:
            return [self.index.searchKNN_arrays(arguments, self.options, K)]
        chunks = range(0, len(arguments), CHUNK)
        return [
            self.index.searchKNN(arguments[begin : begin + CHUNK], self.options, K)
            for begin in chunks
        ]

    def hits(self, result):
        rows = (row for ids, distances in result for row in zip(ids, distances, strict=True))
        return spread([self.found(([ids], [distances])) for ids, distances in rows])

    def open(self):
        """It can't be saved, so opening is building it anew."""
        self.load(self.prepared_data(np.load(self.folder.parent / "stored.npy")))


if __name__ == "__main__":
    main(Pynear)
