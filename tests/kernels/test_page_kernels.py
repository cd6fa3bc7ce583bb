"""The kernels of pages return what the code beside their calls defines, or leave it to that."""

import random
from bisect import bisect_left

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from twins import defined

import fpdb
from fpdb import kernels
from fpdb.storage.number_pages import LARGEST, pack_rows, summed
from fpdb.tables.sorted_pages import NumberPages

SEEDS = st.integers(0, 2**32 - 1)


def digest(page, seed):
    return xxhash.xxh3_64_intdigest(memoryview(page)[4:], seed)


class Cursor:
    """A cursor of some pages with 8 bytes as keys, as far as kernels call it."""

    def __init__(self, pages):
        self.pages = sorted(pages.items())
        self.at = 0

    def to(self, at):
        self.at = at
        return 0 <= at < len(self.pages)

    def set_range(self, key):
        return self.to(bisect_left(self.pages, (key,)))

    def first(self):
        return self.to(0)

    def last(self):
        return self.to(len(self.pages) - 1)

    def prev(self):
        return self.to(self.at - 1)

    def next(self):
        return self.to(self.at + 1)

    def item(self):
        return self.pages[self.at]

    def key(self):
        return self.pages[self.at][0]


def reader(page, columns=1, first=0):
    """Return a kernel's cursor of a page that begins with a number; its checksum has no seed."""
    cursor = Cursor({first.to_bytes(8, "big"): page})
    return kernels.number_pages.PageCursor(cursor, xxhash.xxh3_64_intdigest, columns, first)


def search_of(below, k=3, masks=(0,), *, home=True):
    """Return a search of one table whose permutation leaves all bits where they are."""
    moves = np.array([[2**64 - 1, 2**64 - 1, 0]], np.uint64)
    probes = kernels.number_pages.Probes(moves, moves, np.array(masks, np.uint64), below)
    return kernels.number_pages.NearSearch([probes], 1, k, 64, home)


def drawn(dice, columns, count, widths):
    """Draw sorted rows whose columns have numbers of some bytes, some of them equal."""
    base = [dice.getrandbits(8 * (8 - width)) << 8 * width for width in widths]
    numbers = [
        tuple(low + dice.getrandbits(8 * width) for low, width in zip(base, widths, strict=True))
        for _ in range(count)
    ]
    numbers += dice.choices(numbers, k=dice.randrange(1 + count // 3))
    return [np.array(column, np.uint64) for column in zip(*sorted(set(numbers)), strict=True)]


def packed(rows, seed):
    page, after = pack_rows(rows)
    return summed(page, seed) if after == len(rows[0]) else b""


def widths(page):
    return page[6:8]


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_rows_are_packed_as_defined(seed):
    dice = random.Random(seed)
    columns = dice.randrange(1, 5)
    widths = [dice.randrange(9) for _ in range(columns)]
    rows = drawn(dice, columns, dice.choice([1, 2, 40, 400]), widths)
    if dice.random() < 0.3:  # columns that don't lie one number after the other
        rows = list(np.ascontiguousarray(np.stack(rows, axis=-1)).T)
    for first in (0, len(rows[0]) // 2, len(rows[0]) - 1):
        found = pack_rows(rows, first)
        with defined():
            assert found == pack_rows(rows, first)


@pytest.mark.parametrize(
    "rows", [[], [[]], [[1]] * 5, [[1, 2], [1]], [np.array([1], np.uint32)], [np.eye(2)]]
)
def test_what_are_no_rows_is_not_packed(rows):
    rows = [
        column if isinstance(column, np.ndarray) else np.array(column, np.uint64) for column in rows
    ]
    with pytest.raises(ValueError, match="column"):
        kernels.number_pages.packed(rows, 0, LARGEST)


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_rows_are_put_into_a_page_as_packed_with_them(seed):
    dice = random.Random(seed)
    keys = dice.randrange(1, 3)
    columns = dice.randrange(keys, 5)
    pages = NumberPages("table-00", keys, columns)
    bytes_of = [dice.choice([0, 1, 2, 4, 8]), *[dice.randrange(9) for _ in range(columns - 1)]]
    rows = pages._spliced(
        pages.empty(), drawn(dice, columns, dice.randrange(1, 120), bytes_of), [[]]
    )
    key = pages.first_key(rows)
    page = packed(rows, pages.seed_at(key))
    if not page:
        return
    wider = [min(8, width + (dice.random() < 0.1)) for width in bytes_of]
    news = drawn(dice, columns, dice.randrange(1, 30), wider)
    if dice.random() < 0.7:  # in the ranges of the page
        news = [
            new % np.uint64(2 ** (8 * width)) + row[0] if width < 8 else new
            for new, row, width in zip(news, rows, bytes_of, strict=True)
        ]
        sequence = np.lexsort(news[::-1])
        news = [new[sequence] for new in news]
    news = pages._spliced(pages.empty(), news, [[]])
    if pages.first_key(news) < key:
        return
    cursor, put = Cursor({key: page}), {}
    at = pages.reader(cursor)
    count = len(news[0])
    inserter = kernels.number_pages.RowsToInsert(np.stack(news), LARGEST)
    done = inserter.insert(at, put.__setitem__, keys, 64, 0)
    both = pages._spliced(rows, news, [[]])
    with defined():
        assert all(map(np.array_equal, both, pages._spliced(rows, news, [[]])))
    if done:
        assert done == count
        assert put == {key: packed(both, pages.seed_at(key))}
    else:  # it must be packed anew
        whole = packed(both, pages.seed_at(key))
        replaced = len(both[0]) < len(rows[0]) + count
        assert not put
        assert replaced or not whole or widths(whole) != widths(page) or not page[6] & 15


@pytest.mark.parametrize("first", [-1, 5])
def test_rows_that_are_not_there_are_not_put(first):
    page = packed([np.arange(0, 2000, 20, dtype=np.uint64)], 0)
    inserter = kernels.number_pages.RowsToInsert(np.array([[5, 7]], np.uint64), LARGEST)
    put = {}
    if first < 0:
        with pytest.raises(ValueError, match="another table"):
            inserter.insert(reader(page), put.__setitem__, 1, 64, first)
    else:
        assert inserter.insert(reader(page), put.__setitem__, 1, 64, first) == first
    assert not put


def searches(numbers):
    """Return searches of sorted numbers, one of each kind."""
    places = np.arange(len(numbers) + 1)
    column = np.array(sorted(numbers), np.uint64)
    got = np.zeros(len(numbers), np.int64)
    asked = (places, [column], places[:-1])
    return [
        kernels.number_pages.RangeSearch(
            column, column | np.uint64(255), *asked, got, 1 << 20, 9, 1 << 20
        ),
        kernels.number_pages.IdSearch(column, column, *asked, got.copy(), 3),
    ]


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_a_forged_page_is_read_within_its_bytes(seed):
    """Its checksum is right; sanitizers of a build see whatever is read beyond it."""
    dice = random.Random(seed)
    rows = drawn(dice, 2, dice.randrange(1, 60), [dice.choice([0, 1, 2, 4, 8]), dice.randrange(9)])
    page = bytearray(packed(rows, 0))
    if not page:
        return
    for _ in range(dice.randrange(1, 6)):
        place = dice.randrange(4, len(page)) if dice.random() < 0.5 else dice.randrange(4, 24)
        page[place] = dice.randrange(256)
    if dice.random() < 0.3:
        del page[dice.randrange(len(page)) :]
    own = digest(page, 0) if len(page) >= 4 else 0
    page[:4] = (own & 0xFFFFFFFF).to_bytes(4, "little")
    query = dice.getrandbits(64)
    numbers = sorted(dice.getrandbits(64) for _ in range(5)) + rows[0].tolist()[:3]
    for columns in range(-1, 6):
        at = reader(page, columns)
        search = search_of(2 ** dice.randrange(65) - 1, dice.randrange(70), [0, *numbers[:1]])
        found = search.near([[at]], query, 1 << 20)
        assert found is None or found[0].keys() >= found[1].keys()
        read = kernels.number_pages.runs(at, sorted(set(numbers)))
        assert read is None or {number for number, _ in read} <= set(numbers)
        for search in searches(numbers):
            search.search(at, dice.random() < 0.5, dice.randrange(9))
            assert len({len(part) for part in search.taken()}) == 1
        if 1 <= columns <= 4:
            new = np.array([sorted(dice.getrandbits(64) for _ in range(3))] * columns, np.uint64)
            inserter, put = kernels.number_pages.RowsToInsert(new, LARGEST), {}
            inserter.insert(at, put.__setitem__, 1, 64, 0)
            assert all(len(page) < len(grown) <= LARGEST for grown in put.values())


def test_a_damaged_page_is_left_to_the_definition():
    page = bytearray(packed([np.arange(0, 2000, 20, dtype=np.uint64)], 0))
    at = reader(page)
    assert search_of(63).near([[at]], 20, 500) == (
        {0: 2, 20: 0, 60: 2},
        {0: [0], 20: [20], 60: [60]},
    )
    assert kernels.number_pages.runs(at, [20, 30]) == [(20, [20])]
    for place in range(len(page)):
        page[place] ^= 16
        assert search_of(63).near([[at]], 20, 500) is None
        assert kernels.number_pages.runs(at, [20]) is None
        assert all(search.search(at, False, 9) is None for search in searches([20]))
        inserter = kernels.number_pages.RowsToInsert(np.array([[25]], np.uint64), LARGEST)
        assert inserter.insert(at, pytest.fail, 1, 64, 0) == 0
        page[place] ^= 16


def test_what_does_not_fit_a_search_is_refused():
    at = reader(packed([np.arange(0, 2000, 20, dtype=np.uint64)], 0))
    moves, mask = np.array([[1, 1, 2]], np.uint64), np.zeros(1, np.uint64)
    for cursors in ([], [at, at]):
        with pytest.raises(ValueError, match="each table has cursors"):
            search_of(63).near(cursors, 20, 500)
    with pytest.raises(TypeError):
        search_of(63).near([[None]], 20, 500)
    for wrong in ((moves[:, :1].copy(), moves), (moves, np.zeros((2, 2), np.uint64))):
        with pytest.raises(ValueError, match="three columns"):
            kernels.number_pages.Probes(*wrong, mask, 0)
    with pytest.raises(ValueError, match="one word or two"):
        kernels.number_pages.NearSearch([], 3, 3, 64, True)


def test_pages_out_of_order_are_left_to_the_definition():
    page = packed([np.arange(0, 2000, 20, dtype=np.uint64)], 0)
    cursor = Cursor({(30).to_bytes(8, "big"): page})
    cursor.pages *= 2
    for in_turn, found in ((True, None), (False, True)):
        at = kernels.number_pages.PageCursor(cursor, xxhash.xxh3_64_intdigest, 1, 30)
        assert all(each.search(at, in_turn, 99) is found for each in searches([20, 5000]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("highs", [5]),
        ("bounds", [0, 1]),
        ("bounds", [0, 2, 1]),
        ("bounds", [-1, 1, 2]),
        ("bounds", [0, 1, 9]),
        ("queries", [0, 1]),
        ("queries", [0, 7, 1]),
        ("queries", [0, -1, 1]),
    ],
)
def test_a_search_of_what_is_not_there_is_refused(name, value):
    fields = {
        "lows": np.array([0, 10], np.uint64),
        "highs": np.array([9, 19], np.uint64),
        "bounds": np.array([0, 1, 3]),
        "words": [np.array([3, 12, 13], np.uint64)],
        "queries": np.array([0, 1, 2]),
        "read": np.zeros(3, np.int64),
    }
    page = packed([np.arange(0, 2000, 4, dtype=np.uint64)], 0)
    search = kernels.number_pages.RangeSearch(*fields.values(), 100, 1, 100)
    assert search.search(reader(page), False, 100) is True
    queries, changes = (np.frombuffer(part, np.int64).tolist() for part in search.taken())
    assert sorted(zip(queries, changes, strict=True)) == [(1, 0), (2, 1)]
    assert (search.taken(), search.longest, fields["read"].tolist()) == ([b"", b""], 500, [3, 2, 2])
    fields[name] = np.array(value, fields[name].dtype)
    with pytest.raises(ValueError, match=r"there|in order|more bounds"):
        kernels.number_pages.IdSearch(*fields.values(), 100)
    with pytest.raises(ValueError, match=r"there|in order|more bounds"):
        kernels.number_pages.RangeSearch(*fields.values(), 100, 1, 100)


def test_pages_are_the_same_with_and_without_kernels(tmp_path):
    dice = random.Random(2)
    numbers = [dice.getrandbits(64) for _ in range(12_000)]

    def made(name):
        with fpdb.create(tmp_path / name, similarity=None, k=3, keys="integer") as db:
            for start in range(0, 12_000, 1500):
                some = range(start, start + 1500)
                db.add_fingerprints(some, [numbers[place] for place in some])
            db.delete_many(range(0, 12_000, 7))
            db.add_fingerprints(range(0, 700, 7), numbers[:100])
            with db._environment.read() as txn:
                pages = []
                for table in db._index.tables:
                    with txn.cursor(table.name) as cursor:
                        pages += [(bytes(key), bytes(value)) for key, value in cursor]
        return pages

    assert len(made("with")) > 100
    with defined():
        expected = made("without")
    assert made("again") == expected
