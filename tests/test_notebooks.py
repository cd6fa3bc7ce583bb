"""What notebooks show of results: all of it, and of hostile texts no element."""

from pathlib import Path
from typing import Any

from outlines import Tree

import fpdb
from fpdb.models import Comparison

HOSTILE = "<script>alert(1)</script>&lt; \u202e <img src=x onerror=y>"
SEEN = HOSTILE.replace("\u202e", "⟦U+202E⟧")
SHOWN = {"table", "tr", "th", "td", "bdi", "mark"}


def shown(result: Any) -> Any:
    """Return the element that a notebook shows."""
    found = Tree(result._repr_html_())
    assert set(found.elements) <= SHOWN
    return found.root


def rows(result: object) -> dict[str, str]:
    return dict([cell.text for cell in row.children] for row in shown(result).all("tr"))


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
    found = fpdb.compare(text, text)
    assert isinstance(found, Comparison)
    assert rows(found)["shingle jaccard"] == "1"


def test_an_overlap_marks_what_only_one_text_has() -> None:
    first = f"Somebody repaired a wooden boat in winter. {HOSTILE} It took very long."
    second = "Nobody repaired a wooden boat in winter. It took very long, though."
    found = shown(fpdb.overlap(first, second))
    assert [cell.text for cell in found.all("td")] == [first.replace(HOSTILE, SEEN), second]
    assert [part.text.strip(" .,") for part in found.all("mark")] == [
        "Somebody",
        SEEN.strip(),
        "Nobody",
        "though",
    ]


def test_an_overlap_of_texts_that_share_nothing_marks_both() -> None:
    found = shown(fpdb.overlap("one two three four", "五六七八九十一二三四"))
    for tag in ("mark", "td"):
        assert [each.text for each in found.all(tag)] == [
            "one two three four",
            "五六七八九十一二三四",
        ]
