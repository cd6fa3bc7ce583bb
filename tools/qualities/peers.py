"""Two packages on the same texts: their pairs, rated as those of a recipe are."""

import numpy as np

import fpdb
from fpdb.joins.join import near_rows


def simhash_pairs(texts, k=3):
    """Return the pairs within k of the package simhash, with its defaults, and how many texts fail.

    With numpy 2 the package can't take a text that has a feature more than 255 times. Such a text
    gets the fingerprint of the preset simhash-py, which is that of the package before.
    """
    from simhash import Simhash

    instead = fpdb.recipe("simhash-py")
    values, failed = [], 0
    for text in texts:
        try:
            values.append(Simhash(text).value)
        except OverflowError:
            values.append(instead.fingerprint(text))
            failed += 1
    found = [part[:2] for part in near_rows([np.array(values, np.uint64)], k)]
    return [np.concatenate(column) for column in zip(*found, strict=True)], failed


def datasketch_pairs(shingles, threshold=0.8):
    """Return the pairs that MinHashLSH of the package datasketch finds among sets of shingles."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=128)
    first, second = [], []
    for number, own in enumerate(shingles):
        if not own:
            continue  # its sketch would equal that of every other empty set
        sketch = MinHash(num_perm=128)
        sketch.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in own])
        others = index.query(sketch)
        first += [number] * len(others)
        second += others
        index.insert(number, sketch)
    return np.array(first, np.int64), np.array(second, np.int64)
