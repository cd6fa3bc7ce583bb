"""Bytes become the same lines however they come, in bounded memory."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fpdb.io.streams import LineCutter, decoded


@given(
    st.lists(st.binary(max_size=12).map(lambda data: data.replace(b"\n", b"")), max_size=8),
    st.lists(st.integers(0, 80), max_size=6),
    st.booleans(),
)
def test_lines_are_the_same_however_the_bytes_come(lines, cuts, ended):
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    cutter, found = LineCutter(8), []
    for start, end in pairwise(places):
        found += cutter.feed(data[start:end])
    found += cutter.finish()
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
    cutter = LineCutter(1000)
    for _ in range(100):
        cutter.feed(b"x" * 500)
        assert len(cutter._rest) <= 1500
    found = cutter.feed(b"\nshort\n")
    assert [len(each) if isinstance(each, bytes) else None for each in found] == [None, 5]
