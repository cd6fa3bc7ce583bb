"""A page stays small whatever the texts hold, and says what it leaves out."""

import json
import random
import re
from itertools import pairwise

import pytest
from outlines import data_of

import fpdb
from fpdb.report.differences import Piece, differences
from fpdb.report.page import bars, fit, safe_json
from fpdb.report.views import MOST_BYTES, Room

WORDS = [f"w{number}" for number in range(3000)]


def lines(groups, length, chance):
    for number in range(groups):
        words = chance.choices(WORDS, k=length)
        for copy in range(2):
            words[:: length // 30] = [f"copy{copy}"] * 30
            yield json.dumps({"id": f"{number}/{copy}", "text": " ".join(words)}) + "\n"


@pytest.mark.slow("it compares the texts of 520 groups")
def test_a_page_of_five_hundred_groups(tmp_path):
    source = tmp_path / "many.jsonl"
    source.write_text("".join(lines(520, 1680, random.Random(1))))
    found = fpdb.report(str(source), tmp_path / "report.html")
    assert (found.groups, found.shown) == (520, 500)
    assert 1_000_000 < found.size == (tmp_path / "report.html").stat().st_size <= 5_000_000
    page = found.path.read_text()
    assert "Of 520 groups, the 500 with the least similar texts are here; 20 more" in page
    for group in data_of(found.path)["groups"]:
        assert any(isinstance(piece, list) for piece in group["v"][1]["d"])


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
@pytest.mark.parametrize("room", [500, 5_000, 20_000])
def test_pieces_fit(name, room):
    pieces = differences(*HARD[name]).pieces
    fitted = fit(pieces, room)
    assert len(safe_json(fitted.pieces).encode()) <= room + 20
    left_out = sum(piece for piece in fitted.pieces if isinstance(piece, int))
    assert left_out == fitted.left_out


@pytest.mark.parametrize("count", [1, 2, 7, 30, 60])
def test_labels_are_within_their_picture_and_beside_each_other(count):
    picture = bars("Days", "", [("2026-11-23", 1)] * count, "copies")
    middles = [float(x) for x in re.findall(r'<text x="([^"]*)"[^>]*class="label"', picture)]
    assert middles
    assert all(30 < middle < 390 for middle in middles)
    assert all(after - before > 75 for before, after in pairwise(middles))


def test_what_fits_is_whole():
    pieces = [Piece(True, "one ", "one "), Piece(False, "two", "three")]
    assert fit(pieces, 500).pieces == ["one ", ["two", "three"]]
    assert fit(pieces, 500).left_out == 0


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
    groups = data_of(found.path)["groups"]
    assert (found.groups, len(groups)) == (8, 8)
    assert all(version["cut"] for group in groups for version in group["v"])
    assert all(len(group["v"]) >= 2 for group in groups)


def test_a_group_leaves_out_texts_last_but_for_the_ends_of_names(tmp_path):
    def view():
        version = {"k": ["k" * 900], "src": ["s" * 900], "n": 1, "s": 0.9}
        changed = {"d": ["x" * 500, 70, ["y" * 200, ""]], "rest": 0} | version
        return {"t": "t" * 100, "more": 0, "v": [version, changed, {**changed}]}

    whole = len(safe_json(view())) + 1
    left_out = []
    for most in (whole, 5000, 2000, 600, 10):
        room, found = Room(1), view()
        room.take(found, most)
        assert most == 10 or len(safe_json(found)) < most
        first, *others = found["v"]
        texts = [others[0]["d"][0] == "x" * 500, others[0]["d"]]
        left_out.append((found["more"], len(first["k"][0]), texts[0], len(found["t"])))
        assert room.left_out == (0 if texts[0] else 700)
        assert texts[0] or texts[1] == [770]
    assert left_out == [
        (0, 900, True, 100),
        (1, 900, True, 100),
        (1, 101, True, 100),
        (1, 21, False, 20),
        (1, 21, False, 20),
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
    assert found.size <= 5_000_000
    assert "Of 1,300 groups, the 1,200 with the least similar texts" in found.path.read_text()


@pytest.mark.parametrize("sizes", [[], [10] * 500, [10**7] * 500, [10**7, *[5000] * 499]])
def test_room_is_given_to_those_that_need_it(sizes):
    room = Room(len(sizes))
    total = 0
    for size in sorted(sizes):
        most = room.of_group()
        assert most >= min(size, 4_000)
        view = {"v": [], "t": "x" * min(size, most - 17)}
        room.take(view, most)
        total += len(safe_json(view)) + 1
    assert total <= MOST_BYTES
    assert total >= min(sum(sizes), 0.9 * MOST_BYTES)
