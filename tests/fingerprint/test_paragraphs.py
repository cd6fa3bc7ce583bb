"""Paragraphs of texts: against a definition in a few lines, and what is left without some."""

import re
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.fingerprint.paragraphs import paragraphs, without

SIGN = re.compile("[ก-๛\u1000-\u109fぁ-ヿ㐀-䶿一-鿿]")
LINES = [
    "",
    "  ",
    "a short line",
    "Ten words are in this line, and so it counts.",
    "TEN words are in this line, and so it counts. ",
    "ten words are in this line,",
    "Long words: " + "incomprehensibilities " * 5,
    "a line of many words, each of them short, and " + "it goes on " * 6,
    "这一行正好有二十个汉字所以它也算一个段落",
    "这一行只有九个汉字",
    "ａ ｌｉｎｅ ｏｆ ｆｕｌｌ ｗｉｄｔｈ， ａｎｄ ｏｆ ｔｅｎ ｗｏｒｄｓ",
]
TEXTS = st.lists(st.lists(st.sampled_from(LINES), max_size=8).map("\n".join), max_size=5)


def folded(line):
    return unicodedata.normalize("NFKC", line).casefold().strip()


def by_definition(text):
    """The first and the last line of each paragraph that counts, and its lines as they compare."""
    lines = list(map(folded, text.split("\n")))
    blocks, start = [], 0
    for place, line in enumerate([*lines, ""]):
        if not line:
            blocks += [(start, place)] * (start < place)
            start = place + 1
    units = []
    for start, end in blocks:
        is_wrapped = max(len(line.encode()) for line in lines[start:end]) <= 100
        units += [(start, end)] if is_wrapped else [(at, at + 1) for at in range(start, end)]
    shown = [(start, end, " ".join(lines[start:end])) for start, end in units]
    long = [it for it in shown if len(it[2].split(" ")) >= 10 or len(SIGN.findall(it[2])) >= 20]
    return long if len(units) > 1 else []


@given(TEXTS)
@settings(max_examples=examples(200), deadline=None)
def test_paragraphs_are_lines_or_what_is_between_blank_ones(texts):
    found = paragraphs(texts, 7)
    columns = zip(found.owners.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True)
    expected = [(at, *unit) for at, text in enumerate(texts) for unit in by_definition(text)]
    assert list(columns) == [(at, start, end) for at, start, end, _ in expected]
    numbers = {}
    for number, (*_, shown) in zip(found.hashes.tolist(), expected, strict=True):
        # The order of the lines of a paragraph makes no difference.
        assert numbers.setdefault(" ".join(sorted(shown.split(" "))), number) == number
    assert len(set(numbers.values())) == len(numbers)
    assert len(found.texts) == len(texts)


def test_equal_texts_have_equal_hashes():
    found = paragraphs(["One\nTwo", "one \n two", "one\nthree", ""], 7)
    first, second, *others = found.texts.tolist()
    assert first == second
    assert len({first, *others}) == 3


@pytest.mark.parametrize(
    ("text", "spans", "left", "sizes"),
    [
        ("a\nb\nc", [(1, 2)], "a\nc", [1]),
        ("a\n\nb\nb\n \nc", [(2, 4)], "a\n\nc", [3]),
        ("a\r\n\r\nb\r\n", [(2, 3)], "a", [2]),
        ("a\nb\nc\n", [(0, 1), (2, 3)], "b", [1, 1]),
        ("a\n\nb", [(0, 1), (2, 3)], "", [1, 1]),
    ],
)
def test_lines_go_with_the_blank_ones_after_them(text, spans, left, sizes):
    assert without(text, spans) == (left, sizes)


def test_time_grows_with_the_number_of_paragraphs():
    text = "\n\n".join(["汉字" + "b" * 60] * 10_000)
    before = time.process_time()
    assert not len(paragraphs([text], 7).hashes)
    assert time.process_time() - before < 2
