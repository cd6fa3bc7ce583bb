"""Very many strings of 64 bits, "closer than 3"; and eight billion pages with k = 3 on paper."""

import json

import numpy as np
import pytest

import fpdb

COUNT = 200_000
PAGES = 8_000_000_000


def test_plan_has_sizes_and_times_of_eight_billion_pages(run):
    shown = run("plan", "-k", 3, "--documents", "8e9")
    header, *lines = shown.out.split("\n\n")[0].splitlines()
    assert header.split()[-3:] == ["bytes", "query", "insert"]
    assert "documents      8,000,000,000, 2**32.9" in shown.out
    plans = json.loads(run("plan", "-k", 3, "--documents", "8e9", "--json").out)["plans"]
    assert len(plans) == len(lines) >= 6
    assert sum(plan["chosen"] for plan in plans) == 1
    for plan in plans:
        prefixes = 2.0 ** int(plan["name"].partition("p=")[2])
        # Some tables of a design have longer prefixes, and so fewer candidates.
        assert PAGES / prefixes / 2 < plan["candidates_per_probe"] <= PAGES / prefixes
        assert plan["candidates"] == pytest.approx(plan["probes"] * plan["candidates_per_probe"])
        # Of 64 bits, a sorted page leaves out those that all its fingerprints have in common.
        assert 5 * PAGES < plan["bytes"] / plan["tables"] < 16 * PAGES
        assert 0 < plan["seconds"] < 1
        assert 0 < plan["insert_seconds"] < 1
    exact = {plan["tables"]: round(plan["candidates_per_probe"]) for plan in plans}
    assert (exact[4], exact[16]) == (122_070, 30)  # 8e9 / 2**16, 8e9 / 2**28


@pytest.fixture(scope="module")
def strings():
    """Random strings, and near ones at 0 to 4 bits of the first thousand."""
    numbers = np.random.default_rng(8)
    stored = numbers.integers(0, 2**64, COUNT, np.uint64)
    for place in range(1000):
        flips = numbers.choice(64, place % 5, replace=False)
        stored[-1 - place] = stored[place] ^ np.uint64(sum(1 << int(bit) for bit in flips))
    return stored


def test_a_bulk_load_finds_all_that_are_closer_than_three(run, tmp_path, strings):
    path = tmp_path / "db"
    with fpdb.create(path, similarity=None, k=3, keys="integer", capacity=COUNT) as db:
        assert db.add_fingerprints(range(COUNT), strings) == COUNT
        queries = strings[:1000]
        hits = db.query_fingerprints(queries, k=2)
    found = np.stack([hits.queries, hits.ids, hits.distances]).astype(np.int64)
    for place, query in enumerate(queries):
        distances = np.bitwise_count(strings ^ query)
        closer = np.flatnonzero(distances < 3)
        _, keys, differences = found[:, found[0] == place]
        assert dict(zip(keys, differences, strict=True)) == {key: distances[key] for key in closer}
    assert len(found[0]) >= 1000 + 600  # themselves, and three in five of the near ones
    one = f"{int(strings[2]):016x}"
    assert run("query", path, "-k", 2, "--fingerprint", one).rows == [
        [one, "2", "0"],
        [one, str(COUNT - 3), "2"],
    ]
    plans = json.loads(run("plan", "-k", 3, "--documents", COUNT, "--json").out)["plans"]
    [paper] = [plan["bytes"] for plan in plans if plan["chosen"]]
    real = (path / "data.mdb").stat().st_size
    assert 0.5 < real / paper < 2
