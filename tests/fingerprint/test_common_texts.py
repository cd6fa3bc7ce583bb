"""What all were given counts for nobody: in no set of shingles, no sketch and no passage."""

import random

import numpy as np
import pytest

import fpdb
from fpdb.fingerprint import sketches
from fpdb.fingerprint.presets import write_recipe

RANDOM = random.Random(56)
ASSIGNMENT = " ".join(f"task{number}" for number in range(40))
FORM = "请阅读下面的材料并结合自己的经历写一篇不少于八百字的文章题目自拟文体不限不得抄袭套作"
NAMES = ["web", "web-128", "char-4", "noisy", "submissions"]


def words_of(count):
    return " ".join(f"w{RANDOM.randrange(10**6)}" for _ in range(count))


def han_of(count):
    return "".join(chr(0x4E00 + RANDOM.randrange(4000)) for _ in range(count))


TEXTS = [
    f"{ASSIGNMENT} {words_of(120)}",
    f"{words_of(60)} {ASSIGNMENT} {words_of(60)}",
    FORM + han_of(200),
    words_of(50),
    ASSIGNMENT,
    "short",
]


@pytest.mark.parametrize("name", NAMES)
def test_sets_and_sketches_are_without_what_common_texts_have(name):
    whole = fpdb.recipe(name)
    recipe = whole.replace(common=(ASSIGNMENT, FORM))
    left_out = set().union(*(whole.shingles(text).tolist() for text in (ASSIGNMENT, FORM)))
    expected = [sorted(set(whole.shingles(text).tolist()) - left_out) for text in TEXTS]
    assert [found.tolist() for found in recipe.shingles_many(TEXTS)] == expected
    batch, unchanged = recipe.batch(TEXTS, sketches=True), whole.batch(TEXTS)
    made = [sketches.sketch(np.array(each, np.uint64)) for each in expected]
    assert np.array_equal(batch.sketches, made)
    assert batch.shingles.tolist() == list(map(len, expected))
    for part in ("fingerprints", "features", "short"):  # which are of the whole texts
        assert np.array_equal(getattr(batch, part), getattr(unchanged, part))
    features = [set(found) for found in whole.features_many([ASSIGNMENT, FORM])]
    assert recipe.features_many(TEXTS) == [
        [each for each in found if each not in set.union(*features)]
        for found in whole.features_many(TEXTS)
    ]


def test_numbers_of_passages_are_without_runs_that_have_a_common_shingle():
    whole = fpdb.recipe("web")
    recipe = whole.replace(common=(ASSIGNMENT, FORM))
    common = set(recipe.common_shingles.tolist())
    packed = recipe.batch(TEXTS, passages=True).passages
    for text, own in zip(TEXTS, packed, strict=True):
        hashes = whole.placed_shingles(text)[1].hashes
        numbers, places = sketches.passage_numbers(hashes)
        expected = [
            number
            for number, place in zip(numbers.tolist(), places.tolist(), strict=True)
            if not common & set(hashes[place : place + sketches.RUN].tolist())
        ]
        assert sketches.unpack_passages(own).tolist() == sorted(expected)
        placed = recipe.placed_passages(text)
        assert placed.numbers[placed.counted].tolist() == expected
    assert packed[4] == b""


def test_passages_end_where_a_common_text_begins():
    [first, second] = (words_of(30) for _ in range(2))
    one, other = f"{first} {ASSIGNMENT} {second}", f"{second} {ASSIGNMENT} {second} {words_of(9)}"
    recipe = fpdb.recipe("web").replace(common=(ASSIGNMENT,))
    assert [each.words for each in fpdb.overlap(one, other).passages] == [70]
    shared = fpdb.overlap(one, other, recipe=recipe)
    assert [shared.text[each.start : each.end] for each in shared.passages] == [second]
    own, others = (set(recipe.shingles(text).tolist()) for text in (one, other))
    assert shared.share == len(own & others) / len(own)


def test_a_recipe_with_common_texts_is_kept_and_has_an_id_of_its_own(tmp_path):
    whole = fpdb.recipe("web")
    recipe = whole.replace(common=(ASSIGNMENT, FORM))
    again = fpdb.Recipe.from_dict(recipe.to_dict())
    assert (again, again.id) == (recipe, recipe.id)
    assert hash(whole.replace(common=[ASSIGNMENT, FORM], clean=["unicode"])) == hash(recipe)
    assert recipe.id != whole.id == whole.replace(common=()).id
    path = tmp_path / "own.toml"
    path.write_text(write_recipe(recipe), "utf-8")
    assert fpdb.read_recipe(path) == recipe
    for wrong in (ASSIGNMENT, [3]):
        with pytest.raises(fpdb.RecipeError, match="common"):
            fpdb.Recipe.from_dict(whole.to_dict() | {"common": wrong})


def test_documents_are_found_by_what_is_their_own(tmp_path):
    own, copied = words_of(100), words_of(40)
    with fpdb.create(tmp_path / "a.fpdb", passages=True) as database:
        database.add("form", f"{ASSIGNMENT} {words_of(60)}")
        database.add("source", f"{ASSIGNMENT} {copied} {words_of(60)}")
        text = f"{ASSIGNMENT} {copied} {own[:300]}"
        assert {each.key for each in database.passages(text)} == {"form", "source"}
        [match] = database.passages(text, common=[ASSIGNMENT])
        assert match.key == "source"
        # 40 words were copied, of those that are no part of the assignment.
        words = len(text.split()) - 40
        assert abs(match.words - 40) <= 13
        assert abs(match.share - 40 / words) <= 13 / words
        assert database.passages(ASSIGNMENT, common=[ASSIGNMENT]) == []
