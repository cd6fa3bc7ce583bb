"""The same pairs as packages that know nothing of fpdb."""

import random
from pathlib import Path

import pytest

import fpdb
from fpdb.tables import Plan
from fpdb.tables.plan import choose_plan

pytestmark = pytest.mark.oracle

Pair = tuple[int, int]

# Values of seomoz/simhash-py and simhash-cpp (MIT): their test "find all", and its answers.
BASIC = [
    0x000000FF, 0x000000EF, 0x000000EE, 0x000000CE, 0x00000033,
    0x0000FF00, 0x0000EF00, 0x0000EE00, 0x0000CE00, 0x00003300,
    0x00FF0000, 0x00EF0000, 0x00EE0000, 0x00CE0000, 0x00330000,
    0xFF000000, 0xEF000000, 0xEE000000, 0xCE000000, 0x33000000,
]  # fmt: skip
BASIC_PAIRS = {
    (low << shift, high << shift)
    for shift in (0, 8, 16, 24)
    for low, high in [
        (0xCE, 0xEE), (0xCE, 0xEF), (0xCE, 0xFF), (0xEE, 0xEF), (0xEE, 0xFF), (0xEF, 0xFF)
    ]
}  # fmt: skip

DIVERSE = [
    0x00000000, 0x10101000, 0x10100010, 0x10001010, 0x00101010,
    0x01010100, 0x01010001, 0x01000101, 0x00010101,
]  # fmt: skip
DIVERSE_PAIRS = {(0x00000000, number) for number in DIVERSE[1:]} | {
    (low, high)
    for four in (DIVERSE[1:5], DIVERSE[5:])
    for low in four
    for high in four
    if low < high
}


def planted(bits: int, count: int, seed: int) -> list[int]:
    """Random fingerprints, and neighbours of theirs at distances from 0 to 8."""
    dice = random.Random(seed)
    numbers = [dice.getrandbits(bits) for _ in range(count)]
    for number in numbers[: count // 2]:
        flipped = dice.sample(range(bits), dice.randrange(9))
        numbers.append(number ^ sum(1 << bit for bit in flipped))
    dice.shuffle(numbers)
    return numbers


def pairs_of(path: Path, numbers: list[int], bits: int, plan: Plan, k: int) -> set[Pair]:
    """All pairs of places within k, as a database finds them."""
    recipe = fpdb.recipe("web").with_bits(bits)
    with fpdb.create(path, recipe=recipe, k=plan.k, plan=plan, keys="integer") as db:
        db.add_fingerprints(range(len(numbers)), numbers)
        return {
            (place, match.id)
            for place, number in enumerate(numbers)
            for match in db.query_fingerprint(number, k=k)
        }


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_simhash_package_finds_the_same_pairs(tmp_path: Path, k: int) -> None:
    import simhash

    numbers = planted(64, 1000, k)
    objects = [(str(place), simhash.Simhash(number)) for place, number in enumerate(numbers)]
    index = simhash.SimhashIndex(objects, f=64, k=k)
    expected = {
        (place, int(found))
        for place, number in enumerate(numbers)
        for found in index.get_near_dups(simhash.Simhash(number))
    }
    assert len(expected) > len(numbers)
    assert pairs_of(tmp_path / "db", numbers, 64, choose_plan(64, k), k) == expected


@pytest.mark.parametrize("blocks", range(4, 8))
@pytest.mark.parametrize(
    ("numbers", "expected", "count"),
    [(BASIC, BASIC_PAIRS, 24), (DIVERSE, DIVERSE_PAIRS, 20)],
    ids=["basic", "diverse"],
)
def test_the_pairs_of_simhash_py(
    tmp_path: Path, numbers: list[int], expected: set[Pair], count: int, blocks: int
) -> None:
    plan = choose_plan(64, 3, blocks=blocks, choose=blocks - 3)
    found = pairs_of(tmp_path / "db", numbers, 64, plan, 3)
    pairs = {(numbers[a], numbers[b]) for a, b in found if numbers[a] < numbers[b]}
    assert pairs == expected
    assert len(pairs) == count
