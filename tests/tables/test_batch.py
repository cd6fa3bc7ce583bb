"""Many queries at once find what one query after the other finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.errors import InputError
from fpdb.tables import sorted_pages
from fpdb.tables.bits import to_array


def one_by_one(db, queries, k):
    found = []
    for place, query in enumerate(queries):
        matches = db.query_fingerprint(query, k=k)
        assert matches.complete
        found += [(place, match.distance, match.id) for match in matches]
    return sorted(found)


def together(db, queries, k):
    hits = db.query_fingerprints(queries, k=k)
    columns = (hits.queries.tolist(), hits.distances.tolist(), hits.ids.tolist())
    return list(zip(*columns, strict=True))


def drawn(generator, bits, count):
    """Fingerprints near a few bases, some of them equal, so that ranges and runs span pages."""
    bases = [int.from_bytes(generator.bytes(bits // 8), "big") for _ in range(12)]
    found = []
    for _ in range(count):
        number = bases[generator.integers(len(bases))]
        for _ in range(generator.integers(7)):
            number ^= 1 << int(generator.integers(bits))
        found.append(number)
    return found


@pytest.mark.parametrize("taken", [1 << 16, 90])
@pytest.mark.parametrize("keys", ["text", "integer"])
@pytest.mark.parametrize(("bits", "k"), [(32, 1), (64, 0), (64, 3), (128, 3)])
def test_a_batch_finds_what_single_queries_find(tmp_path, monkeypatch, bits, k, keys, taken):
    monkeypatch.setattr(sorted_pages, "_TAKEN", taken)
    generator = np.random.default_rng(bits + k)
    recipe = fpdb.recipe("web").with_bits(bits)
    with fpdb.create(tmp_path / "db", recipe=recipe, k=k, keys=keys, capacity=5_000) as db:
        names = range(2_000) if keys == "integer" else [f"key {n}" for n in range(2_000)]
        db.add_fingerprints(names, drawn(generator, bits, 2_000))
        queries = [*drawn(generator, bits, 40), db[names[7]].fingerprint, 0, (1 << bits) - 1]
        for asked in (k, k + 2):
            expected = one_by_one(db, queries, asked)
            assert together(db, queries, asked) == expected
            assert together(db, to_array(queries, bits), asked) == expected
            assert any(distance == 0 for _, distance, _ in expected)


@settings(max_examples=examples(15))
@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=12), st.integers(0, 5))
def test_a_batch_of_any_queries(tmp_path_factory, queries, k):
    path = tmp_path_factory.mktemp("any") / "db"
    with fpdb.create(path, keys="integer") as db:
        near = [query ^ (1 << place) for place, query in enumerate(queries)]
        db.add_fingerprints(range(2 * len(queries)), queries + near)
        assert together(db, queries, k) == one_by_one(db, queries, k)


def test_no_queries_and_no_documents_give_empty_columns(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        for queries in ([], [1, 2, 3]):
            hits = db.query_fingerprints(queries)
            assert [len(column) for column in hits] == [0, 0, 0, len(queries)]
            assert [column.dtype for column in hits] == [np.int64, np.uint64, np.uint8, np.bool_]
            assert hits.complete.all()


def test_a_batch_of_another_width_is_refused(tmp_path):
    with fpdb.create(tmp_path / "db") as db, pytest.raises(InputError, match="expected uint64"):
        db.query_fingerprints(np.zeros((3, 2), np.uint64))
