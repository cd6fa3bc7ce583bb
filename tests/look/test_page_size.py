"""A page stays small whatever the texts hold, and says what it leaves out."""

import json
import random
import re
from html import unescape

import pytest
from outlines import groups_of

import fpdb
from fpdb.look.listing import MOST_BYTES, ListedDocument, ListedGroup, ListedText, rendered
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


def left_out(html):
    """Return how many characters aren't there, as a page says."""
    noted = re.findall("([0-9,]+) equal characters? left out", html)
    return sum(int(count.replace(",", "")) for count in noted)


@pytest.mark.parametrize("name", HARD)
def test_all_characters_are_there_or_left_out(name):
    text, other = HARD[name]
    pair = ComparedTexts(fpdb.recipe("web"), text, other)
    drawn = ["".join(pair.drawn(whole=whole, both=False)) for whole in (True, False)]
    sizes = []
    for rows in drawn:
        shown = re.sub("<summary>.*?</summary>|<p class=.fold.>.*?</p>", "", rows)
        sizes.append(len(re.sub("⟦U.....?.?.?⟧", "x", unescape(re.sub("<[^>]*>", "", shown)))))
    assert left_out(drawn[0]) == 0
    assert left_out(drawn[1]) == sizes[0] - sizes[1]


def test_a_short_pair_is_whole():
    [row] = ComparedTexts(fpdb.recipe("web"), "one two", "one three").drawn(both=False)
    assert "one <del>two</del><ins>three</ins></div>" in row


def test_long_keys_are_cut(tmp_path):
    source = tmp_path / "keys.jsonl"
    with open(source, "w", encoding="utf-8") as file:
        for copy in range(30):
            key = f"{copy}/" + "<" * 60_000
            words = [*WORDS[:200]]
            words[100] = f"copy{copy % 12}"
            file.write(json.dumps({"id": key, "text": " ".join(words)}) + "\n")
    found = fpdb.report(str(source), tmp_path / "report.html")
    [group] = groups_of(found.path)
    assert found.size < 1_000_000
    assert {len(key) for keys in group["keys"] for key in keys} == {1001}
    assert set(group["saved"]) == {None}


@pytest.mark.parametrize(
    ("size", "count", "shown"),
    [(10, 500, 500), (10_000, 600, 600), (40_000, 40, 40), (90_000, 90, 50)],
)
def test_a_file_holds_no_more_than_its_room(size, count, shown):
    """Equal passages are cut in all groups, and then the last groups are left out."""
    changed = "".join(random.Random(1).choices("abcdefgh ", k=10 if shown == count else size))
    equal = "equal " * (size // 6)
    pair = ComparedTexts(fpdb.recipe("web"), equal, f"{equal} {changed}", most=1 << 20)
    texts = [ListedText([ListedDocument("a")]), ListedText([ListedDocument("b")], pair=pair)]
    group = ListedGroup("", "edited", "", 2, 0.0, texts)
    groups = rendered([lambda: group] * count)
    assert len(groups) >= shown
    assert (len(groups) < count) == (shown < count)
    assert sum(map(len, groups)) <= MOST_BYTES
    assert bool(left_out(groups[0])) == (size * count > MOST_BYTES)
