"""Bytes become the same lines however they come, in bounded memory."""

import tracemalloc
from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from fpdb.io.streams import decoded, raw_lines


@given(
    st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(0, 80), max_size=6),
    st.booleans(),
)
def test_lines_are_the_same_however_the_bytes_come(lines, cuts, ended):
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    found = raw_lines((data[start:end] for start, end in pairwise(places)), 8)
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    if expected:
        expected[0] = expected[0].removeprefix(b"\xef\xbb\xbf")
    texts = [text if isinstance(text, str) else None for _, text, _ in decoded(found)]
    assert texts == [
        each.decode(errors="replace") if len(each.removesuffix(b"\r")) <= 8 else None
        for each in expected
    ]


def test_memory_is_bounded_while_a_line_has_no_end():
    size = 1 << 16
    chunks = (b"x" * size for _ in range(100))
    tracemalloc.start()
    found = list(raw_lines(chain(chunks, [b"\nshort\n"]), 1000))
    assert tracemalloc.get_traced_memory()[1] < 8 * size
    tracemalloc.stop()
    assert [len(each) if isinstance(each, bytes) else None for each in found] == [None, 5]
