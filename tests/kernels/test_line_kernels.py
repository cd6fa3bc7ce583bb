"""The kernels of lines: the same numbers as the definitions, for any bytes and texts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb import kernels
from fpdb.fingerprint.paragraphs import paragraphs
from fpdb.io.streams import line_ends

PIECES = [
    "",
    " ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "\x1c",
    "\xa0",
    "ａ",
    "İ",
    "ß",
    "汉字",
    "ไทย",
    "\ud800",
]
PIECES += ["Word ", "x" * 95, "A b " * 80, "汉" * 19, "one Two three four five\nsix seven 8 9 10"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=6)


def by_definition(work, *values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", False)
        return work(*values)


@given(
    st.lists(st.sampled_from([b"", b"\n", b"\r\n", b"a", b"\0", b"x" * 300, b"\n" * 200])).map(
        b"".join
    )
)
@settings(max_examples=examples(100), deadline=None)
def test_lines_end_where_the_definition_says(data):
    ends = line_ends(data).tolist()
    assert ends == by_definition(line_ends, data).tolist()
    assert ends == [place + 1 for place, byte in enumerate(data) if byte == 10]


@given(texts=TEXTS, seed=st.integers(0, (1 << 64) - 1))
@settings(max_examples=examples(200), deadline=None)
def test_paragraphs_are_those_of_the_definition(texts, seed):
    compiled = paragraphs(texts, seed)
    for column, expected in zip(compiled, by_definition(paragraphs, texts, seed), strict=True):
        assert np.array_equal(column, expected)
