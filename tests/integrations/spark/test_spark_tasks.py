"""What the tasks do on a worker, without Spark, and the numbers that Spark computes."""

import importlib
import pickle
import random
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdb
from fpdb.fingerprint import stages
from fpdb.integrations.spark import fingerprints, near

# The package has a function of this name.
dedupe = importlib.import_module("fpdb.integrations.spark.dedupe")

TEXT = "網页去重用指纹比较两个页面是否几乎相同，里面有很多不同的词语"


@given(st.sets(st.tuples(st.integers(0, 30), st.integers(0, 30))), st.integers(1, 9))
def test_of_pairs_each_later_document_goes_that_resembles_one_that_stays(pairs, size):
    ordered = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    random.Random(size).shuffle(ordered)
    gone = set()
    for later in range(31):
        if any(other == later and first not in gone for first, other in ordered):
            gone.add(later)
    names = [[f"k{number:02}" for number in column] for column in zip(*ordered, strict=True)]
    table = pa.table(names or [pa.array([], pa.string())] * 2, names=["key", "other"])
    batches = dedupe._removed(table.to_batches(max_chunksize=size))
    found = [key for batch in batches for key in batch["removed"].to_pylist()]
    assert sorted(found) == [f"k{number:02}" for number in sorted(gone)]


@pytest.mark.parametrize("bins", range(1, 15))
def test_digits_of_sketches_are_equal_where_bands_are(bins):
    chance = random.Random(bins)
    bands = fpdb.Bands(256 // bins, bins)
    sketch = chance.randbytes(128)
    sketches = [sketch]
    for place in range(256):  # one bin differs
        changed = bytearray(sketch)
        changed[place // 2] ^= 0x10 if place % 2 else 0x01
        sketches.append(bytes(changed))
    rows = np.frombuffer(b"".join(sketches), np.uint8).reshape(-1, 128)
    numbers = bands.columns(rows, np.zeros((len(rows), 2), np.uint64))[0][:, :-1]
    for band in range(bands.count):
        parts = [_evaluated(part, rows) for part in near._digits(band * bins, (band + 1) * bins)]
        found = ["".join(pieces) for pieces in zip(*parts, strict=True)]
        assert all(len(digits) == bins for digits in found)
        assert [digits == found[0] for digits in found] == (
            numbers[:, band] == numbers[0, band]
        ).tolist()


def _evaluated(part, rows):
    """Return what Spark makes of a part of the digits: it counts characters from 1."""
    name, start, length = part.removesuffix(")").replace("(", ", ").split(", ")[1:]
    assert name == "digits"
    begin = int(start) - 1
    return [row.tobytes().hex()[begin : begin + int(length)] for row in rows]


def test_pairs_of_sketches_are_near_from_an_estimate_on():
    chance = random.Random(11)
    sketch = chance.randbytes(128)
    others = [sketch]
    for changed in (5, 20, 25, 30, 60):
        other = bytearray(sketch)
        for place in chance.sample(range(128), changed):
            other[place] ^= 0x11
        others.append(bytes(other))
    columns = {
        "key": ["a"] * len(others),
        "other": list("bcdefg"),
        "distance": pa.array(range(len(others)), pa.int32()),
        "one_sketch": [sketch] * len(others),
        "other_sketch": others,
    }
    whole = pa.RecordBatch.from_pydict(columns)
    shares = [fpdb.sketch_jaccard(sketch, other) for other in others]
    # Of a part of a batch, the bytes before it don't count.
    for batch, begin in ((whole, 0), (whole.slice(2), 2)):
        [found] = near._compared(0.8, [batch])
        expected = [
            {"key": "a", "other": "bcdefg"[place], "distance": place, "similarity": share}
            for place, share in enumerate(shares)
            if share >= 0.8 and place >= begin
        ]
        assert found.to_pylist() == expected
    assert 0 < sum(share >= 0.8 for share in shares) < len(shares)


def test_rows_of_bytes_begin_where_a_column_does():
    for kind in (pa.binary(), pa.binary(2)):
        column = pa.array([b"ab", b"cd", b"ef", b"gh"], kind).slice(1, 2)
        assert fingerprints.bytes_rows(column, 2).tolist() == [list(b"cd"), list(b"ef")]


@pytest.mark.parametrize("minimum", [0, 1])
def test_columns_of_texts_keep_the_places_of_those_that_are_unusable(minimum):
    recipe = fpdb.recipe("web").replace(largest=400)
    recipe = recipe.replace(grams=replace(recipe.grams, minimum=minimum))  # 0: nothing is short
    keys, texts = ["a", None, "c", "d", "e"], [TEXT, TEXT, None, TEXT * 9, ""]
    rows = pa.RecordBatch.from_pydict(
        {"key": pa.array(keys, pa.string()), "text": pa.array(texts, pa.string())}
    )
    [batch] = fingerprints._fingerprinted(recipe, 0.8, [rows])
    first, *unusable, empty = batch.to_pylist()
    assert first["fingerprint"] % (1 << 64) == recipe.fingerprint(TEXT)
    assert first["sketch"] == recipe.batch([TEXT], sketches=True).sketches[0].tobytes()
    assert (first["characters"], first["problem"]) == (len(TEXT), None)
    for row, reason in zip(unusable, ["no key", "no text", "bytes"], strict=True):
        assert reason in row.pop("problem")
        row.pop("key")
        assert set(row.values()) == {None}
    assert (empty["fingerprint"] is None) == (minimum == 1)
    assert empty["digest"] == recipe.digest("", short=minimum == 1)
    assert (empty["characters"], empty["sketch"], empty["problem"]) == (0, None, None)


def test_all_tasks_of_a_process_share_one_recipe_and_its_dictionary(monkeypatch):
    built = []
    own = stages.kernel_salts
    monkeypatch.setattr(stages, "kernel_salts", lambda seed: (built.append(seed), own(seed))[1])
    monkeypatch.setattr(fingerprints, "_BUILT", {})
    recipe = fpdb.recipe("web")
    sent = pickle.dumps(partial(fingerprints._fingerprinted, recipe, None))
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
