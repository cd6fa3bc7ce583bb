"""What the tasks do on a worker, without Spark: joins against comparing all with all."""

import pickle
import random
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdb
from fpdb.fingerprint import stages
from fpdb.fingerprint.sketches import one_jaccard
from fpdb.integrations.spark import BandPlan, cells, fingerprints
from fpdb.integrations.spark.cells import (
    _ALONE,
    _BLOCK,
    _FIRST,
    _SECOND,
    _BandTask,
    _CompareTask,
    _SimilarTask,
)
from fpdb.integrations.spark.fingerprints import FingerprintType, words_array
from fpdb.tables.bands import BandTable

# Few bits that ever change, so that fingerprints are near, and prefixes crowded.
near_numbers = st.integers(0, (1 << 12) - 1).map(
    lambda n: sum((n >> bit & 1) << bit * 11 % 64 for bit in range(12))
)


def _plan(bits, k, tables):
    return next(p for p in fpdb.join_plans(bits, k, 100, cores=1) if len(p.masks) == tables)


def _batches(rows, bits, size):
    """Sort rows as Spark does, and hand them over in batches."""
    rows = sorted(rows)
    numbers = [row[-1] for row in rows]
    words = [[number >> 64, number & (1 << 64) - 1] for number in numbers]
    array = np.array(words, np.uint64).reshape(-1, 2)
    columns = {
        "fingerprint": words_array(array if bits == 128 else array[:, 1:]),
        **{
            name: pa.array([row[place] for row in rows], pa.int64())
            for place, name in enumerate(("table", "prefix", "cell", "part"))
        },
    }
    whole = pa.RecordBatch.from_pydict(columns)
    return [whole.slice(start, size) for start in range(0, len(rows), size)]


def _number(value):
    words = (value["high"], value["low"]) if isinstance(value, dict) else (0, value)
    high, low = (word % (1 << 64) for word in words)
    return high << 64 | low


def _found(check, batches):
    return [
        (frozenset((_number(row["first"]), _number(row["second"]))), row["distance"])
        for batch in check(batches)
        for row in batch.to_pylist()
    ]


def _prefix(number, mask):
    own = number & mask
    return (own >> 64 ^ own) % (1 << 63)


@given(
    st.sets(near_numbers),
    st.sampled_from(((64, 3, 4), (64, 3, 10), (128, 2, 3), (32, 1, 2))),
    st.integers(1, 50),
)
def test_each_pair_is_found_once_wherever_its_rows_lie(numbers, design, size):
    bits, k, tables = design
    own = {number % (1 << bits) for number in numbers}
    own |= {number << 64 | number for number in own} if bits == 128 else set()
    plan = _plan(bits, k, tables)
    rows = [
        (table, _prefix(number, mask), 0, _ALONE, number)
        for number in own
        for table, mask in enumerate(plan.masks)
    ]
    found = _found(_CompareTask(FingerprintType(bits, None), plan), _batches(rows, bits, size))
    wanted = {
        (frozenset((a, b)), (a ^ b).bit_count())
        for a in own
        for b in own
        if a < b and (a ^ b).bit_count() <= k
    }
    assert len(found) == len(set(found))
    assert set(found) == wanted


@given(st.sets(near_numbers), st.sets(near_numbers), st.integers(1, 50))
def test_two_parts_meet_each_other_and_not_themselves(left, right, size):
    plan = _plan(64, 3, 4)
    rows = [
        (table, number & mask, 0, part, number)
        for part, side in ((_FIRST, left), (_SECOND, right))
        for number in side
        for table, mask in enumerate(plan.masks)
    ]
    check = _CompareTask(FingerprintType(64, None), plan)
    found = [
        (row["first"], row["second"], row["distance"])
        for batch in check(_batches([(t, p % (1 << 63), *rest) for t, p, *rest in rows], 64, size))
        for row in batch.to_pylist()
    ]
    assert sorted((a % (1 << 64), b % (1 << 64), d) for a, b, d in found) == sorted(
        (a, b, (a ^ b).bit_count()) for a in left for b in right if (a ^ b).bit_count() <= 3
    )


def test_a_cell_that_is_larger_than_a_step_stays_whole():
    generator = np.random.default_rng(3)
    numbers = np.unique(generator.integers(0, 1 << 40, _BLOCK + 5000))
    planted = int(numbers[0]) ^ 1
    numbers = sorted({*numbers.tolist(), planted})
    plan = _plan(64, 0, 1)
    rows = [(0, 0, 0, _ALONE, number) for number in numbers]

    class Near(_CompareTask):
        """Takes all rows as one prefix, and pairs at distance 1."""

        def __init__(self):
            super().__init__(FingerprintType(64, None), plan)
            self._k = 1
            self._masks = [[0]]

    small = rows[: 3 * 1000]
    whole = _found(Near(), _batches(small, 64, 100))
    assert whole == _found(Near(), _batches(small, 64, 3000))
    [batch] = _batches(rows, 64, len(rows))
    pieces = list(cells._whole_cells([batch.slice(i, 10_000) for i in range(0, len(rows), 10_000)]))
    assert [len(piece.words) for piece in pieces] == [len(rows)]


BANDS = fpdb.Bands(9, 6)


def _likenesses():
    """Return sketches of which many are alike, and digests, some with the same beginning."""
    chance = random.Random(11)
    found = []
    for _ in range(60):
        sketch = chance.randbytes(128)
        for changed in (0, 0, 5, 20, 40, 60):
            other = bytearray(sketch)
            for place in chance.sample(range(128), changed):
                other[place] ^= chance.randrange(1, 16)
            found.append(bytes(other))
        digest = chance.randbytes(16)
        found += [digest, digest, digest[:8] + chance.randbytes(8)]
    return found


LIKENESSES = _likenesses()


def _similar(likenesses, parts, crowds=(), size=700):
    """Find similar pairs as the tasks do, each with the distance of their fingerprints."""
    plan = BandPlan(0.8, BANDS, len(likenesses), None, 1, crowds)
    made = []
    for part in sorted(set(parts)):
        own = [place for place, other in enumerate(parts) if other == part]
        columns = {
            "lead": pa.array([f"k{place:03}" for place in own]),
            "fingerprint": pa.array(own, pa.int64()),
            "likeness": pa.array([likenesses[place] for place in own], pa.binary()),
        }
        made += _BandTask(plan, part)([pa.RecordBatch.from_pydict(columns)])
    order = [(name, "ascending") for name in ("table", "prefix", "cell", "part")]
    rows = pa.Table.from_batches(made).sort_by(order).combine_chunks()
    [whole] = rows.to_batches()
    batches = [whole.slice(start, size) for start in range(0, len(whole), size)]
    task = _SimilarTask(plan)
    found = [row for batch in task(batches) for row in batch.to_pylist()]
    assert all(row["distance"] == _apart(row["lead"], row["other_lead"]) for row in found)
    pairs = {(row["lead"], row["other_lead"]): row["similarity"] for row in found}
    assert len(pairs) == len(found)
    return pairs


def _apart(key, other):
    return (int(key[1:]) ^ int(other[1:])).bit_count()


def _numbers(likeness):
    sketch, digest = (likeness, b"") if len(likeness) == 128 else (b"", likeness)
    return set(BandTable(BANDS).numbers(sketch, digest))


def _agreeing(pairs, without=frozenset()):
    """Compare all pairs that have a number in common, and return the similar ones."""
    numbers = [_numbers(likeness) - without for likeness in LIKENESSES]
    found = {}
    for a, b in pairs:
        own, other = LIKENESSES[a], LIKENESSES[b]
        share = 1.0 if own == other else 0.0
        if share < 1 and len(own) == len(other) == 128:
            share = one_jaccard(own, other)
        if numbers[a] & numbers[b] and share >= fpdb.least_estimate(0.8):
            found[frozenset((f"k{a:03}", f"k{b:03}"))] = pytest.approx(share)
    return found


@pytest.mark.parametrize("block", [1 << 16, 100])
def test_similar_pairs_are_found_once_and_none_else(monkeypatch, block):
    monkeypatch.setattr(cells, "_BLOCK", block)
    found = _similar(LIKENESSES, [_ALONE] * len(LIKENESSES))
    wanted = _agreeing(combinations(range(len(LIKENESSES)), 2))
    assert {frozenset(pair): share for pair, share in found.items()} == wanted
    assert len(wanted) > 500


def test_similar_questions_meet_the_corpus_and_not_themselves():
    parts = [_FIRST if place % 3 else _SECOND for place in range(len(LIKENESSES))]
    found = _similar(LIKENESSES, parts)
    sides = ([p for p, part in enumerate(parts) if part == side] for side in (_FIRST, _SECOND))
    wanted = _agreeing(product(*sides))
    assert {frozenset(pair): share for pair, share in found.items()} == wanted
    assert all(int(first[1:]) % 3 and not int(second[1:]) % 3 for first, second in found)


def test_crowded_bands_are_divided_and_all_others_are_not():
    whole = _similar(LIKENESSES, [_ALONE] * len(LIKENESSES))
    crowded = {number for own in map(_numbers, LIKENESSES) for number in own if number % 3}
    crowds = tuple((number, 2) for number in sorted(crowded))
    found = _similar(LIKENESSES, [_ALONE] * len(LIKENESSES), crowds)
    assert found.items() < whole.items()
    pairs = {frozenset(pair) for pair in found}
    every = list(combinations(range(len(LIKENESSES)), 2))
    assert _agreeing(every, without=crowded).keys() < pairs
    # Equal ones are never divided.
    assert {frozenset(pair) for pair, share in whole.items() if share == 1} <= pairs


def test_all_tasks_of_a_process_share_one_recipe_and_its_dictionary(monkeypatch):
    built = []
    own = stages.kernel_salts
    monkeypatch.setattr(stages, "kernel_salts", lambda seed: (built.append(seed), own(seed))[1])
    monkeypatch.setattr(fingerprints, "_BUILT", {})
    recipe = fpdb.recipe("web")
    sent = pickle.dumps(fingerprints._FingerprintTask(recipe, sketched=False))
    text = "网页去重用指纹比较两个页面是否几乎相同，里面有很多不同的词语"
    rows = pa.RecordBatch.from_pydict({"key": ["a"], "text": [text]})
    found = [
        row["fingerprint"] % (1 << 64)
        for _ in range(3)  # each task unpickles its own copy
        for batch in pickle.loads(sent)([rows])
        for row in batch.to_pylist()
    ]
    assert len(built) == 1
    assert found == [fpdb.recipe("web").fingerprint(text)] * 3
