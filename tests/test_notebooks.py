"""What notebooks show of results: all of it, and of hostile texts no element."""

from html.parser import HTMLParser
from pathlib import Path

import fpdb
from fpdb.models import Comparison

HOSTILE = "<script>alert(1)</script>&lt; \u202e <img src=x onerror=y>"
SEEN = HOSTILE.replace("\u202e", "⟦U+202E⟧")
SHOWN = {"table", "tr", "th", "td", "bdi", "mark"}


class Cells(HTMLParser):
    """The elements of a page, the text of each cell, and what is marked."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.cells: list[str] = []
        self.marked: list[str] = []
        self._marks = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)
        self._marks = tag == "mark"
        if tag in {"td", "th"}:
            self.cells.append("")
        elif tag == "mark":
            self.marked.append("")

    def handle_endtag(self, tag: str) -> None:
        self._marks = False

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data
        if self._marks:
            self.marked[-1] += data


def shown(result: object) -> Cells:
    found = Cells(result._repr_html_())  # type: ignore[attr-defined]
    assert found.elements <= SHOWN
    return found


def rows(result: object) -> dict[str, str]:
    cells = shown(result).cells
    return dict(zip(cells[::2], cells[1::2], strict=True))


def test_statistics_show_their_numbers(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db", keys="integer") as db:
        db.add_fingerprints(range(1200), range(1200))
        found = rows(db.stats())
    assert found["documents"] == "1,200"
    assert found["recipe"] == "web"
    assert str(tmp_path) in found["path"]


def test_a_cluster_shows_its_keys_as_text() -> None:
    found = rows(fpdb.Cluster(HOSTILE, tuple(f"copy {n}" for n in range(30))))
    assert found["representative"] == SEEN
    assert found["duplicates"].endswith("copy 19, and 10 more")
    assert rows(fpdb.Cluster(7, (8,)))["duplicates"] == "8"


def test_a_comparison_shows_its_numbers() -> None:
    text = "a text that is long enough for a fingerprint of the recipe, and for its sketch"
    found = fpdb.compare(fpdb.recipe("web"), text, text)
    assert isinstance(found, Comparison)
    assert rows(found)["shingle jaccard"] == "1"


def test_an_overlap_marks_what_only_one_text_has() -> None:
    first = f"Somebody repaired a wooden boat in winter. {HOSTILE} It took very long."
    second = "Nobody repaired a wooden boat in winter. It took very long, though."
    found = shown(fpdb.overlap(fpdb.recipe("web"), first, second))
    assert found.cells == [first.replace(HOSTILE, SEEN), second]
    assert [part.strip(" .,") for part in found.marked] == [
        "Somebody",
        SEEN.strip(),
        "Nobody",
        "though",
    ]


def test_an_overlap_of_texts_that_share_nothing_marks_both() -> None:
    found = shown(fpdb.overlap(fpdb.recipe("web"), "one two three four", "五六七八九十一二三四"))
    assert found.marked == found.cells == ["one two three four", "五六七八九十一二三四"]
