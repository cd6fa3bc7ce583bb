"""Recipes as TOML files."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpdb import Grams, Hash, IdfTable, Recipe, RecipeError, Secret, Weights, read_recipe
from fpdb.fingerprint import PRESETS, write_recipe

KEY = bytes(range(100, 132))


@pytest.fixture
def write(tmp_path):
    """Write a recipe file and give its path."""

    def write_file(content, name="my.toml"):
        path = tmp_path / name
        path.write_text(content, "utf-8")
        return path

    return write_file


OWN = [
    *PRESETS.values(),
    Recipe("own-grams", 32, ("tags", "unicode"), "words", Grams(n=3, stop_words=("a", "的"))),
    Recipe(
        "odd-words", grams=Grams(stop_words=('"', "\\", "\x7f", "\x00", "\n", "😀", "𠀀", "\x9b"))
    ),
    Recipe("hashed", 128, hash=Hash(by="blake2b"), tie=1),
    Recipe("offset", hash=Hash(by="md5", offset=8)),
    Recipe("idf", weights=Weights(by="sqrt", cap=7, idf="jieba")),
    Recipe("tags", segment="jieba-tags", weights=Weights(tags=(("n", 2.5), ("ü\u200b😀", 1e-7)))),
]


@pytest.mark.parametrize("recipe", OWN, ids=lambda recipe: recipe.name)
def test_a_written_recipe_reads_as_the_same(write, recipe):
    again = read_recipe(write(write_recipe(recipe)))
    assert again.id == recipe.id
    assert again.name == recipe.name
    assert write_recipe(recipe).startswith(f"# id {recipe.id}\n")


@given(st.lists(st.text(min_size=1, max_size=8), max_size=8))
def test_any_stop_words_survive_writing_and_reading(tmp_path_factory, words):
    recipe = Recipe("own", grams=Grams(stop_words=tuple(words)))
    path = tmp_path_factory.mktemp("recipes") / "own.toml"
    path.write_text(write_recipe(recipe), "utf-8")
    assert read_recipe(path).id == recipe.id


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", Recipe("my")),
        ('name = "other"', Recipe("other")),
        (
            'base = "words"\nbits = 128\n[grams]\nn = 2\n[weights]\ncap = 4',
            Recipe("my", 128, grams=Grams(n=2, minimum=8), weights=Weights(by="log", cap=4)),
        ),
        ('base = "news-md5"\n[hash]\nby = "xxh3"', Hash()),
        ('base = "news-md5"\n[hash]\nby = "md5"', Hash(by="md5", offset=32)),
        (
            'base = "tagged-title"\n[weights]\nby = "binary"',
            Weights(by="binary", cap=6, tags=(("w", 0.0),)),
        ),
    ],
)
def test_a_base_is_changed_where_the_file_says_so(write, content, expected):
    """Parameters of the hash of the base go with it; those of weights stay."""
    found = read_recipe(write(content, "My.toml"))
    parts = {Hash: found.hash, Weights: found.weights}
    assert parts.get(type(expected), found.replace(similarity=0.8)) == expected


def test_stop_words_come_from_a_list_or_a_file(write):
    write("the\nof and\n的\n", "stop.txt")
    named = read_recipe(write('[grams]\nstop_words = "stop.txt"'))
    listed = read_recipe(write('[grams]\nstop_words = ["的", "and", "of", "the"]', "b.toml"))
    assert named.id == listed.id
    assert "the" not in named.features("the cat of 的 猫")
    assert set(named.features("the cat of 的 猫")) == {"cat", "猫"}


def test_an_idf_table_comes_from_a_file_beside_the_recipe(write, tmp_path):
    table = IdfTable({"猫": 2.0}, 0.5)
    table.to_file(tmp_path / "idf.tsv")
    recipe = read_recipe(write('[weights]\nidf = "idf.tsv"'))
    assert recipe.features("猫 dog") == {"猫": 2.0, "dog": 0.5}
    assert recipe.id == Recipe("x", weights=Weights(idf=table)).id
    written = write_recipe(recipe)
    assert f"the table with the id {table.id}" in written
    assert "猫" not in written
    with pytest.raises(RecipeError, match="idf table can't be read"):
        read_recipe(write(written))


def test_a_secret_comes_from_a_file_beside_the_recipe(write, tmp_path):
    path = tmp_path / "my.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    recipe = read_recipe(write('[hash]\nsecret_file = "my.key"'))
    assert recipe.id == Recipe("x", hash=Hash(secret=Secret(KEY))).id
    written = write_recipe(recipe)
    assert KEY.decode("latin-1") not in written
    assert f"the secret with the id {Secret(KEY).id}" in written
    with pytest.raises(RecipeError, match="secret can't be read"):
        read_recipe(write(written))
    write('[hash]\nsecret_file = "my.key"')
    path.chmod(0o644)
    with pytest.raises(RecipeError, match="expected 600"):
        read_recipe(tmp_path / "my.toml")


REFUSED = {
    'base = "wep"': "found no recipe 'wep'",
    "bits = 65": "bits is 65, expected 32, 64, 128",
    'colour = "red"': "colour",
    "grams = 3": "grams is 3, expected a table",
    'hash = "md5"': "hash is 'md5', expected a table",
    'clean = "unicode"': "clean is 'unicode', expected a list",
    "clean = 3": "can't be built",
    '[weights]\nidf = "absent.tsv"': "the idf table can't be read",
    '[weights]\nidf = "a\\u0000b"': "the idf table can't be read",
    "[weights]\ntags = {n = nan}": "tags",
    "[hash]\noffset = 8": "the hash xxh3 has no parameter offset, expected secret",
    '[hash]\nsecret_file = "absent.key"': "the secret can't be read",
    '[hash]\nsecret = "00ff"': "is keyed; no secret was given",
    '[grams]\nstop_words = "absent.txt"': "the stop words can't be read",
    "name = 3": "its name is unusable",
    "bits = ": "can't be read",
    "\x00": "can't be read",
    "x = " + "[" * 5000: "can't be read",
}


@pytest.mark.parametrize("content", REFUSED, ids=lambda content: repr(content[:30]))
def test_files_that_describe_no_recipe_are_refused_with_a_hint(write, content):
    path = write(content)
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    assert REFUSED[content] in str(caught.value)
    assert caught.value.hint


def test_a_file_of_many_megabytes_is_refused_unread(tmp_path):
    path = tmp_path / "huge.toml"
    with path.open("wb") as file:
        file.truncate((1 << 20) + 1)
    with pytest.raises(RecipeError, match="has more than 1,048,576 bytes"):
        read_recipe(path)


def built_or_refused(build, source):
    with contextlib.suppress(RecipeError):
        return build(source)
    return None


@given(st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode()))
def test_any_file_is_a_recipe_or_a_recipe_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("recipes") / "any.toml"
    path.write_bytes(content)
    built = built_or_refused(read_recipe, path)
    assert built is None or built.name


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
PARTS = st.dictionaries(
    st.sampled_from(["name", "bits", "clean", "segment", "grams", "weights", "hash", "tie"]),
    VALUES
    | st.dictionaries(st.sampled_from(["by", "n", "idf", "tags", "cap", "secret", "pad"]), VALUES),
)


@given(PARTS)
def test_any_plain_data_is_a_recipe_or_a_recipe_error(plain):
    built = built_or_refused(Recipe.from_dict, {"name": "any", **plain})
    assert built is None or built.id
