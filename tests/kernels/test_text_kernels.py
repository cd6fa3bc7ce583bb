"""The kernels of text give the bits that the Python code defines."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from twins import defined

from fpdb.fingerprint import sketches

HASHES = st.lists(st.lists(st.integers(0, 2**64 - 1), max_size=400), max_size=4)


@given(texts=HASHES)
def test_the_bins_of_a_sketch(texts):
    hashes = np.array([each for text in texts for each in text], np.uint64)
    counts = np.array([len(text) for text in texts], np.int64)
    found = sketches._fill(hashes, counts)
    with defined():
        np.testing.assert_array_equal(found, sketches._fill(hashes, counts))
