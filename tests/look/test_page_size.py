"""A page stays small whatever the texts hold, and says what it leaves out."""

import json
import random
import re
from functools import partial
from html import unescape
from itertools import pairwise

import pytest
from outlines import groups_of

import fpdb
from fpdb.look.figures import bars
from fpdb.look.listing import MOST_BYTES, ListedGroup, ListedText, fitted, rendered
from fpdb.look.pair import ComparedTexts

WORDS = [f"w{number}" for number in range(3000)]


HARD = {
    "all changed": ("alpha " * 4000, "beta " * 4000),
    "markup": ("<&>" * 5000, "&<" * 5000),
    "chinese": ("红" * 30_000, "红" * 14_000 + "鸢" + "红" * 15_000),
    "control characters": ("\x00" * 9000 + "a", "b" + "\x01" * 9000),
    "many small changes": (
        " ".join(WORDS * 4),
        " ".join(word if number % 5 else "x" for number, word in enumerate(WORDS * 4)),
    ),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("room", [4_000, 10_000, 40_000])
def test_texts_fit(name, room):
    pair = ComparedTexts(fpdb.recipe("web"), *HARD[name])
    texts = [ListedText(["a"]), ListedText(["b"], pair=pair)]
    html, whole = fitted(ListedGroup("Title", "edited", "2 documents", 2, 0.9, texts), room)
    assert len(html.encode()) <= room
    assert whole == (left_out(html) == 0)


def left_out(html):
    """Return how many characters aren't there, as a page says."""
    noted = re.findall("([0-9,]+) (?:equal|further) characters? left out", html)
    return sum(int(count.replace(",", "")) for count in noted)


@pytest.mark.parametrize("name", HARD)
def test_all_characters_are_there_or_left_out(name):
    text, other = HARD[name]
    pair = ComparedTexts(fpdb.recipe("web"), text, other)
    whole = "".join(pair.drawn(both=False))
    assert left_out(whole) == 0
    for kept, most in ((150, 1 << 40), (0, 1 << 40), (150, 9_000), (0, 0)):
        rows = "".join(pair.drawn(kept=kept, most=most, both=False))
        sizes = []
        for each in (rows, whole):
            shown = re.sub("<summary>.*?</summary>|<p class=.fold.>.*?</p>", "", each)
            shown = unescape(re.sub("<[^>]*>", "", shown))
            sizes.append(len(re.sub("⟦U.....?.?.?⟧", "x", shown)))
        assert sizes[1] - sizes[0] == left_out(rows)


@pytest.mark.parametrize("count", [1, 2, 7, 30, 60])
def test_labels_are_within_their_picture_and_beside_each_other(count):
    picture = bars("Days", "", [("2026-11-23", 1)] * count, "copies")
    middles = [float(x) for x in re.findall(r'<text x="([^"]*)"[^>]*class="label"', picture)]
    assert middles
    assert all(30 < middle < 390 for middle in middles)
    assert all(after - before > 75 for before, after in pairwise(middles))


def test_a_short_pair_is_whole():
    [row] = ComparedTexts(fpdb.recipe("web"), "one two", "one three").drawn(both=False)
    assert "one <del>two</del><ins>three</ins></div>" in row


def test_long_keys_fit(tmp_path):
    source = tmp_path / "keys.jsonl"
    with open(source, "w", encoding="utf-8") as file:
        for number in range(8):
            for copy in range(30):
                key = f"{number}/{copy}/" + "<" * 60_000
                words = [*WORDS[number * 200 : number * 200 + 200]]
                words[100] = f"copy{copy % 12}"
                file.write(json.dumps({"id": key, "text": " ".join(words)}) + "\n")
    found = fpdb.report(str(source), tmp_path / "report.html")
    assert found.size <= 5_000_000
    groups = groups_of(found.path)
    assert (found.groups, len(groups)) == (8, 8)
    assert all(key is None for group in groups for key in group["saved"])
    assert all(len(group["keys"]) >= 2 for group in groups)


def test_a_group_leaves_out_texts_and_names_last():
    texts = [" ".join(WORDS[:600]), " ".join([*WORDS[:300], "x", *WORDS[301:600]])]
    pair = ComparedTexts(fpdb.recipe("web"), *texts)
    sides = [ListedText([key * 900], 1, "s" * 900, pair if key > "k" else None) for key in "klm"]
    group = ListedGroup("t" * 100, "edited", "3 documents", 3, 0.9, sides)
    shown = []
    for room in (50_000, 8_000, 2_500, 10):
        html, whole = fitted(group, room)
        assert room == 10 or len(html) <= room
        shown.append((html.count("<section"), "k" * 900 in html, "<ins>" in html, not whole))
    assert shown == [
        (2, True, True, False),
        (1, False, True, True),
        (1, False, False, True),
        (1, False, False, True),
    ]


def test_more_groups_than_fit_are_left_out(tmp_path):
    source = tmp_path / "many.jsonl"
    with open(source, "w", encoding="utf-8") as file:
        for number in range(1300):
            text = " ".join(f"{word}of{number}" for word in WORDS[:60])
            for copy in range(2):
                record = {"id": f"{number}/{copy}", "text": f"{text} {'edited' * copy}"}
                file.write(json.dumps(record) + "\n")
    found = fpdb.report(str(source), tmp_path / "report.html", top=10_000)
    assert (found.groups, found.shown) == (1300, 1200)
    assert 1_000_000 < found.size == found.path.stat().st_size <= 5_000_000
    assert "Of 1,300 groups, the 1,200 with the least similar texts" in found.path.read_text()


@pytest.mark.slow("it compares large texts")
@pytest.mark.parametrize("sizes", [[], [10] * 500, [10**6] * 40, [10**6, *[5000] * 499]])
def test_room_is_given_to_those_that_need_it(sizes):
    def listed(size):
        text = "".join(random.Random(size).choices("abcdefgh ", k=size))
        pair = ComparedTexts(fpdb.recipe("web"), "", text)
        return ListedGroup(
            "", "edited", "", 2, 0.0, [ListedText(["a"]), ListedText(["b"], pair=pair)]
        )

    groups, _ = rendered([(size, partial(listed, size)) for size in sizes])
    total = sum(len(html) for html in groups)
    assert total <= MOST_BYTES
    assert total >= min(sum(sizes), 0.5 * MOST_BYTES)
