"""Four blocks of 16 bits: by the pigeonhole principle, one is whole if three bits differ."""

import json
import random
from itertools import combinations
from pathlib import Path

import pytest

VALUES = json.loads((Path(__file__).parent / "values.json").read_text("utf-8"))["plans"]


def plans_of(run, *arguments):
    return json.loads(run("plan", *arguments, "--json").out)["plans"]


@pytest.mark.parametrize("case", VALUES["cases"], ids=lambda case: str(case["tables"]))
def test_the_designs_of_the_literature_read_the_candidates_that_it_says(run, case):
    plans = plans_of(run, "-k", 3, "--documents", "2**34")
    [plan] = [plan for plan in plans if plan["tables"] == case["tables"]]
    prefix, candidates = int(plan["name"].partition("p=")[2]), plan["candidates_per_probe"]
    if "prefix" in case:
        assert (prefix, candidates) == (case["prefix"], case["candidates"])
    else:
        assert prefix >= case["prefix_at_least"]
        assert candidates <= case["candidates_at_most"]
    assert plan["probes"] == case["tables"]
    assert plan["candidates"] == pytest.approx(case["tables"] * candidates)


def test_four_tables_compare_a_million_of_two_to_the_34(run):
    shown = run("plan", "-k", 3, "--documents", 17179869184).out
    [line] = [line.split() for line in shown.splitlines() if line.split()[:2] == ["4", "16"]]
    assert line[2:5] == ["4", "262,144", "1,048,576"]  # probes, candidates of each, and of all
    assert "2**34" in shown


def test_a_new_database_has_the_four_tables_and_finds_all_within_three_bits(run, tmp_path):
    db, file = tmp_path / "db", tmp_path / "bits.tsv"
    assert "plan        4 tables, p=16" in run("create", db, "--similarity", "off", "-k", 3).out
    query = random.Random(4).getrandbits(64)
    blocks = [range(start, start + 16) for start in (0, 16, 32, 48)]
    # Three bits in three of the blocks leave only the fourth whole; four leave none.
    flips = [set(bits) for whole in combinations(blocks, 3) for bits in zip(*whole, strict=True)]
    flips += [set(bits) for bits in zip(*blocks, strict=True)]
    stored = {
        f"{number}": query ^ sum(1 << bit for bit in bits) for number, bits in enumerate(flips)
    }
    file.write_text("".join(f"{key}\t{value:064b}\n" for key, value in stored.items()))
    columns = ("--key-field", 1, "--fingerprint-field", 2, "--base", "binary")
    assert run("load", db, file, *columns).code == 0
    shown = run("query", db, "-k", 3, "--base", "binary", "--fingerprint", f"{query:064b}")
    near = {key: (value ^ query).bit_count() for key, value in stored.items()}
    assert {key: int(distance) for _, key, distance in shown.rows} == {
        key: distance for key, distance in near.items() if distance <= 3
    }
    assert sorted(set(near.values())) == [3, 4]
