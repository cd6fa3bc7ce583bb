"""Recent pages against dictionaries: what is found, how many there are, and what is written."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from fpdb.arrays import Rows
from fpdb.storage import (
    Environment,
    ReadTransaction,
    WriteTransaction,
    number_pages,
    text_pages,
)
from fpdb.tables import levels, sorted_pages
from fpdb.tables.levels import Levels, NumberLevels, TextLevels

NUMBERS = [
    NumberLevels("further", 1, 1),
    NumberLevels("rows", 2, 2, width=4),
    NumberLevels("wide", 3, 3),
    NumberLevels("values", 1, 3),
]
TEXTS = TextLevels("texts")
Row = tuple[int, ...]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    names = [name for pages in NUMBERS for name in pages.names] + TEXTS.names
    with Environment.create(tmp_path_factory.mktemp("levels") / "db", ["counters", *names]) as env:
        yield env


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pages hold few rows, and the smallest tables have recent ones."""
    monkeypatch.setattr(levels, "_LEAST", 1)
    monkeypatch.setattr(levels, "_MANY", 4)
    for module in (number_pages, sorted_pages, text_pages):
        monkeypatch.setattr(module, "LARGEST", 120)


def emptied(txn: WriteTransaction, pages: Levels[Any]) -> None:
    for name in (*pages.names, "counters"):
        with txn.cursor(name) as cursor:
            for key in [bytes(key) for key in cursor.iternext(values=False)]:
                txn.delete(name, key)


def as_rows(rows: list[Row], width: int) -> Rows:
    array = np.array(sorted(rows), np.uint64).reshape(-1, width)
    return [np.ascontiguousarray(column) for column in array.T]


def listed(blocks: Iterator[Rows]) -> list[Row]:
    return [row for rows in blocks for row in zip(*(c.tolist() for c in rows), strict=True)]


def most_recent(txn: ReadTransaction, pages: Levels[Any]) -> int:
    """Return how many recent pages there may be: the root of the others, for each row of one."""
    others = txn.entries(pages.name) * pages._width
    return int(others**0.5) if txn.entries(pages.name) >= pages._width else 0


NUMBER = st.one_of(st.integers(0, 40), st.integers(0, 2**64 - 1))
BATCHES = st.lists(
    st.tuples(st.lists(st.tuples(*[NUMBER] * 3), max_size=30), st.integers(0, 2**30)),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("pages", NUMBERS, ids=lambda pages: pages.name)
@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(batches=BATCHES)
def test_rows_of_numbers_are_those_of_a_dictionary(
    environment: Environment, small: None, pages: NumberLevels, batches: list[Any]
) -> None:
    width, keys = pages.columns, pages.key_width // 8
    expected: dict[Row, Row] = {}
    with environment.write() as txn:
        emptied(txn, pages)
        for drawn, seed in batches:
            new = {row[:keys]: row[:width] for row in drawn}
            stored = sorted(expected)
            gone = [expected[stored[(seed * n) % len(stored)]] for n in range(3) if stored]
            gone = sorted({row for row in gone if row[:keys] not in new})
            most = most_recent(txn, pages)
            pages.splice(txn, as_rows([*new.values()], width), as_rows(gone, width))
            expected = {k: row for k, row in expected.items() if row not in gone} | new
            assert txn.entries(pages.recent.name) <= most
            rows = sorted(expected.values())
            assert listed(pages.scan(txn)) == rows
            assert listed(pages.scan(txn, columns=1)) == [row[:1] for row in rows]
            asked = sorted({row[:keys] for row in drawn} | set(stored[::2]) | {(7,) * keys})
            held = pages.holds(txn, as_rows(asked, keys))
            assert held.tolist() == [key in expected for key in asked]
            found = listed(iter([pages.find(txn, as_rows(asked, keys))]))
            assert found == [expected[key] for key in asked if key in expected]
            if width > 1 and keys > 1:
                require_runs(txn, pages, rows, sorted({key[0] for key in asked}))
        for at in range(0, len(rows), 5):
            after = listed(pages.scan(txn, pages.key(*rows[at][:keys])))
            assert [row for row in after if row >= rows[at]] == rows[at:]


def require_runs(
    txn: ReadTransaction, pages: NumberLevels, rows: list[Row], asked: list[int]
) -> None:
    lasts = {number: [row[-1] for row in rows if row[0] == number] for number in asked}
    for most in (1, 100):
        cut = [(number, sorted(last)[: most + 1]) for number, last in lasts.items() if last]
        if pages.columns == 2:
            runs = [(number, last[: most + 1]) for number, last in pages.runs(txn, asked, most)]
            assert runs == cut
            bounds, numbers = pages.last_numbers(txn, [np.array(asked, np.uint64)], most)
            assert [
                (number, numbers[low:high].tolist())
                for number, low, high in zip(asked, bounds[:-1], bounds[1:], strict=True)
                if low < high
            ] == cut
    words = pages.columns - 1
    for first in {row[:words] for row in rows if row[0] in lasts}:
        assert list(pages.run(txn, *first)) == [row[-1] for row in rows if row[:words] == first]


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(batches=BATCHES)
def test_texts_lead_where_a_dictionary_does(
    environment: Environment, small: None, batches: list[Any]
) -> None:
    expected: dict[bytes, int] = {}
    with environment.write() as txn:
        emptied(txn, TEXTS)
        for drawn, seed in batches:
            new = {f"{first:x}/{second:x}".encode(): third for first, second, third in drawn}
            stored = sorted(expected)
            gone = {stored[(seed * n) % len(stored)] for n in range(3) if stored} - new.keys()
            most = most_recent(txn, TEXTS)
            TEXTS.splice(txn, sorted(new.items()), [(text, 0) for text in sorted(gone)])
            expected = {t: n for t, n in expected.items() if t not in gone} | new
            assert txn.entries(TEXTS.recent.name) <= most
            assert [entry for rows in TEXTS.scan(txn) for entry in rows] == sorted(expected.items())
            asked = sorted({*new, *stored, b"none"})
            assert TEXTS.find(txn, asked) == [expected.get(text) for text in asked]


def drawn_rows(dice: np.random.Generator, first: int, count: int) -> Rows:
    numbers = dice.integers(0, 2**64, count, np.uint64)
    ids = np.arange(first, first + count, dtype=np.uint64)
    order = np.argsort(numbers)
    return [numbers[order], ids[order]]


def test_a_batch_writes_a_part_of_the_pages_that_it_belongs_to(
    environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, dice = NUMBERS[1], np.random.default_rng(5)
    monkeypatch.setattr(pages, "_width", 1)
    puts: Counter[str] = Counter()
    put = WriteTransaction.put

    def counting(self: WriteTransaction, name: str, key: bytes, value: Any) -> None:
        puts[name] += 1
        put(self, name, key, value)

    monkeypatch.setattr(WriteTransaction, "put", counting)
    with environment.write() as txn:
        emptied(txn, pages)
        pages.insert(txn, [drawn_rows(dice, 0, 150_000)])
        assert not txn.entries(pages.recent.name)
        written = []
        for batch in range(100):
            puts.clear()
            pages.splice(txn, drawn_rows(dice, 150_000 + 1000 * batch, 1000), pages.empty())
            written.append(puts.total())
        count = txn.entries(pages.name)
        assert txn.entries(pages.recent.name) == int(count**0.5)
        # Directly, a batch touches all pages but one in e**(1000 / pages).
        directly = count * (1 - np.exp(-1000 / count))
        assert np.mean(written[60:]) < directly / 5
        assert max(written) < directly
        rows = listed(pages.scan(txn))
        assert sorted(row[1] for row in rows) == list(range(250_000))
        assert rows == sorted(rows)


def test_a_snapshot_keeps_the_rows_that_were_moved_since(
    environment: Environment, small: None
) -> None:
    pages, dice = NUMBERS[1], np.random.default_rng(6)
    with environment.write() as txn:
        emptied(txn, pages)
        for batch in range(20):
            pages.splice(txn, drawn_rows(dice, 20 * batch, 20), pages.empty())
        assert txn.entries(pages.recent.name)
    with environment.read() as snapshot:
        before = listed(pages.scan(snapshot))
        for batch in range(20, 60):
            with environment.write() as txn:
                gone = [column[batch::7].copy() for column in as_rows(before, 2)]
                pages.splice(txn, drawn_rows(dice, 20 * batch, 20), gone)
        assert listed(pages.scan(snapshot)) == before
    with environment.read() as txn:
        assert listed(pages.scan(txn)) != before


@pytest.mark.parametrize("count", [20, 400])
def test_merged_rows_replace_those_of_recent_pages(
    environment: Environment, small: None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "_MANY", 20)
    pages, dice = NUMBERS[3], np.random.default_rng(8)
    expected: dict[int, Row] = {}
    with environment.write() as txn:
        emptied(txn, pages)
        for batch in range(30):
            numbers = np.unique(dice.integers(0, 900, 20, np.uint64))
            pages.splice(txn, [numbers, numbers, numbers + np.uint64(batch)], pages.empty())
            expected |= {number: (number, number, number + batch) for number in numbers.tolist()}
        assert txn.entries(pages.recent.name)
        numbers = np.unique(dice.integers(0, 1000, count, np.uint64))
        halves = [numbers[: count // 2], numbers[count // 2 :]]
        pages.merge(txn, ([part, part, part] for part in halves), len(numbers))
        expected |= {number: (number,) * 3 for number in numbers.tolist()}
        assert listed(pages.scan(txn)) == sorted(expected.values())


def test_rows_after_all_others_are_held_on_recent_pages(
    environment: Environment, small: None
) -> None:
    pages = NUMBERS[3]
    with environment.write() as txn:
        emptied(txn, pages)
        numbers = np.arange(1000, dtype=np.uint64)
        pages.insert(txn, [[numbers] * 3])
        later = numbers[:5] + np.uint64(5000)
        pages.splice(txn, [later] * 3, pages.empty())
        assert txn.entries(pages.recent.name)
        assert pages.holds(txn, [later]).all()


def test_recent_pages_of_a_table_that_shrinks_are_moved(
    environment: Environment, small: None
) -> None:
    pages, dice = NUMBERS[1], np.random.default_rng(7)
    with environment.write() as txn:
        emptied(txn, pages)
        for batch in range(30):
            pages.splice(txn, drawn_rows(dice, 20 * batch, 20), pages.empty())
        rows = listed(pages.scan(txn))
        for _ in range(2):  # how many there may be follows from the pages before
            pages.splice(txn, pages.empty(), as_rows(rows[5:], 2))
        assert txn.entries(pages.recent.name) <= 1
        assert listed(pages.scan(txn)) == rows[:5]
        pages.splice(txn, pages.empty(), as_rows(rows[:5], 2))
        assert [*map(txn.entries, pages.names)] == [0, 0]
        pages.insert(txn, [as_rows(rows, 2)])
        assert listed(pages.scan(txn)) == rows
