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
from fpdb.integrations.spark.cells import _ALONE, _BLOCK, _FIRST, _SECOND, _PairTask, _RowTask
from fpdb.integrations.spark.fingerprints import words_array
from fpdb.tables.bands import BandTable

# Few bits that ever change, so that fingerprints are near, and prefixes crowded.
near_numbers = st.integers(0, (1 << 12) - 1).map(
    lambda n: sum((n >> bit & 1) << bit * 11 % 64 for bit in range(12))
)


PLACES = ("table", "prefix", "cell", "part")


def _plan(bits, k, tables):
    return next(p for p in fpdb.join_plans(bits, k, 100, cores=1) if len(p.masks) == tables)


def _met(plan, sides, crowds=None, size=700):
    """Bring the rows of sides together as Spark does; return the batches of near pairs."""
    made = [
        batch for part, columns in sides.items()
        for batch in _RowTask(plan, part, crowds)([pa.RecordBatch.from_pydict(columns)])
    ]  # fmt: skip
    order = [(name, "ascending") for name in PLACES]
    rows = pa.Table.from_batches(made).sort_by(order).combine_chunks()
    batches = rows.to_batches(max_chunksize=size)
    return [row for found in _PairTask(plan)(batches) for row in found.to_pylist()]


def _number(value):
    words = (value["high"], value["low"]) if isinstance(value, dict) else (0, value)
    high, low = (word % (1 << 64) for word in words)
    return high << 64 | low


def _found(plan, sides, **settings):
    """Return the pairs of fingerprints, each with its distance."""
    columns = {}
    for part, numbers in sides.items():
        words = [[number >> 64, number & (1 << 64) - 1] for number in sorted(numbers)]
        array = np.array(words, np.uint64).reshape(-1, 2)
        columns[part] = {"fingerprint": words_array(array if plan.bits == 128 else array[:, 1:])}
    rows = _met(plan, columns, **settings)
    assert all(row["similarity"] is None for row in rows)
    return [(_number(row["lead"]), _number(row["other_lead"]), row["distance"]) for row in rows]


def _crowded(plan, numbers):
    """Divide every second prefix of 64 bits at most."""
    prefixes = sorted({(t, number & m) for t, m in enumerate(plan.masks) for number in numbers})
    return dict.fromkeys(prefixes[::2], (3, 3)) if plan.bits <= 64 else None


@given(
    st.sets(near_numbers),
    st.sampled_from(((64, 3, 4), (64, 3, 10), (128, 2, 3), (32, 1, 2))),
    st.booleans(),
    st.integers(1, 50),
)
def test_each_pair_is_found_once_wherever_its_rows_lie(numbers, design, divided, size):
    bits, k, tables = design
    own = {number % (1 << bits) for number in numbers}
    own |= {number << 64 | number for number in own} if bits == 128 else set()
    plan = _plan(bits, k, tables)
    crowds = _crowded(plan, own) if divided else None
    found = _found(plan, {_ALONE: own}, crowds=crowds, size=size)
    wanted = {
        (frozenset((a, b)), (a ^ b).bit_count())
        for a, b in combinations(own, 2)
        if (a ^ b).bit_count() <= k
    }
    assert len(found) == len(wanted)
    assert {(frozenset(pair), distance) for *pair, distance in found} == wanted


@given(st.sets(near_numbers), st.sets(near_numbers), st.booleans(), st.integers(1, 50))
def test_two_parts_meet_each_other_and_not_themselves(left, right, divided, size):
    plan = _plan(64, 3, 4)
    crowds = dict.fromkeys(_crowded(plan, left | right), (2, 5)) if divided else None
    found = _found(plan, {_FIRST: left, _SECOND: right}, crowds=crowds, size=size)
    assert sorted(found) == sorted(
        (a, b, (a ^ b).bit_count()) for a in left for b in right if (a ^ b).bit_count() <= 3
    )


def test_a_cell_that_is_larger_than_a_step_stays_whole():
    numbers = np.arange(_BLOCK + 5000, dtype=np.uint64)
    columns = {"fingerprint": words_array(numbers)}
    columns |= {name: pa.array(np.zeros(len(numbers), np.int64)) for name in PLACES}
    batch = pa.RecordBatch.from_pydict(columns)
    pieces = cells._whole_cells([batch.slice(i, 10_000) for i in range(0, len(batch), 10_000)])
    assert [len(piece.words) for piece in pieces] == [len(numbers)]


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


def _similar(likenesses, parts, crowds=()):
    """Find similar pairs as the tasks do, each with the distance of their fingerprints."""
    plan = BandPlan(0.8, BANDS, len(likenesses), None, 1, crowds)
    sides = {}
    for part in sorted(set(parts)):
        own = [place for place, other in enumerate(parts) if other == part]
        sides[part] = {
            "lead": pa.array([f"k{place:03}" for place in own]),
            "fingerprint": pa.array(own, pa.int64()),
            "likeness": pa.array([likenesses[place] for place in own], pa.binary()),
        }
    found = _met(plan, sides)
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
