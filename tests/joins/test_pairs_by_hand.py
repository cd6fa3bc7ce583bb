"""By which number a pair is found, and in which part of the numbers."""

import warnings

import numpy as np
import pytest

import fpdb
from fpdb.joins import pairs


def column(*numbers):
    return np.array(numbers, np.uint64)


@pytest.mark.parametrize(
    ("crowds", "chosen"), [((), 1), ((1,), 12), ((12,), 1), ((1, 12), 1), ((1, 23), 12)]
)
def test_a_pair_is_found_in_its_first_band_without_a_crowd_or_in_its_first(crowds, chosen):
    """It agrees in the first band and the second; in the third one of both has nothing."""
    numbers = np.array([[1, 12, 23], [1, 12, 23]], np.uint64)
    marks = np.array([[True, True, False], [True, True, True]])
    own, other = np.array([0]), np.array([1])
    assert pairs._meeting_at((numbers, marks), column(*crowds), own, other).tolist() == [chosen]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        # Parts end before the last number they hold, unless it is the only one.
        (
            2,
            [(1, 1, [(5, 6), (5, 7)]), (2, 2, [(5, 6)]), (3, 3, [(6, 7)]), (4, 4, [(8, 9)])],
        ),
        (4, [(1, 2, [(5, 6), (5, 7)]), (3, 4, [(6, 7), (8, 9)])]),
        (9, [(1, 4, [(5, 6), (5, 7), (6, 7), (8, 9)])]),
    ],
)
def test_pairs_are_held_by_ranges_of_numbers(monkeypatch, most, expected):
    monkeypatch.setattr(pairs, "_HELD", most)
    rows = [(1, 5, 6), (1, 5, 7), (2, 5, 6), (3, 6, 7), (4, 8, 9)]
    parts = [[column(*each) for each in zip(*rows[at : at + 2], strict=True)] for at in (0, 2, 4)]
    found = [
        (int(low), int(high), list(zip(*(ids.tolist() for ids in both), strict=True)))
        for low, high, both in pairs._candidates(iter(parts))
    ]
    assert found == expected


def test_a_number_of_a_passage_stands_for_twelve_words(tmp_path):
    """Of 23 hashes in a row one is chosen, so of 24 two on average."""
    words = [f"word{number}" for number in range(400)]
    texts = {"a": words[:200], "b": words[100:]}
    with fpdb.create(tmp_path / "db", passages=True) as db:
        for key, own in texts.items():
            db.add(key, " ".join(own))
        one, two = (
            {packed[at : at + 5] for at in range(0, len(packed), 5)}
            for packed in (db[key].passages for key in texts)
        )
        shared = len(one & two)
        assert [tuple(pair) for pair in db.passage_pairs(least=0.1)] == [
            ("a", "b", 12 * shared, shared / len(one), shared / len(two))
        ]
        least = max(shared / len(one), shared / len(two))
        assert [len(list(db.passage_pairs(least=share))) for share in (least, least + 1e-9)] == [
            1,
            0,
        ]
    assert 5 <= shared <= 12


def test_each_pair_comes_once_however_few_are_held(tmp_path, monkeypatch):
    """All four texts agree in several bands, and share several numbers of passages."""
    monkeypatch.setattr(pairs, "_HELD", 1)
    monkeypatch.setattr(pairs, "_HELD_PARTS", 1)
    monkeypatch.setattr(pairs, "_BUCKETS", 4)
    words = [f"word{number}" for number in range(100)]
    with fpdb.create(tmp_path / "db", passages=True) as db:
        for number in range(4):
            db.add(f"{number}", " ".join([*words, f"end{number}"]))
        expected = [("0", "1"), ("0", "2"), ("0", "3"), ("1", "2"), ("1", "3"), ("2", "3")]
        assert sorted(pair[:2] for pair in db.pairs()) == expected
        assert [pair[:2] for pair in db.passage_pairs(least=0.5)] == expected


def test_what_is_in_too_many_documents_leads_to_none_which_is_said_where_it_is_asked(
    tmp_path, monkeypatch
):
    with fpdb.create(tmp_path / "db", passages=True) as db:
        for number in range(3):
            db.add(f"{number}", " ".join(f"word{place}" for place in range(100)))
        for most, found in ((3, 3), (2, 0)):
            monkeypatch.setattr(pairs, "MOST_OF_A_PASSAGE", most)
            with warnings.catch_warnings(record=True, action="always") as said:
                assert len(list(db.passage_pairs())) == found
            assert [each.filename for each in said] == [__file__] * (most == 2)
