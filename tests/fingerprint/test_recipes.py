"""Recipes: presets, ids, plain data, pickles, secrets, and what is refused."""

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fpdb
from fpdb import Grams, Hash, IdfTable, Recipe, RecipeError, Secret, Weights
from fpdb.fingerprint import DESCRIPTIONS, PRESETS, features

KEY = bytes(range(100, 132))
TEXT = "eight or more words of text are what the presets for the web expect, 中文新闻"
IDF = IdfTable({"fox": 2.5, "新闻": 0.5, '\t\n\\"': 1.0, "": 3.25, "\ud800": 0.125}, 1.75)
RECIPES = [
    *PRESETS.values(),
    Recipe("keyed", hash=Hash(secret=Secret(KEY))),
    Recipe("blake", 128, hash=Hash(by="blake2b", secret=Secret(KEY)), tie=1),
    Recipe("stopped", grams=Grams(n=2, stop_words=("the", "的", "😀"), min_length=2, minimum=5)),
    Recipe("table", weights=Weights(by="sqrt", cap=5, idf=IDF)),
    Recipe("jieba-idf", segment="jieba-hmm", weights=Weights(idf="jieba")),
    Recipe("tags", segment="jieba-tags", weights=Weights(tags=(("n", 2.0), ("w", 0.0)))),
]
EACH = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


def test_presets_have_the_k_and_the_similarity_of_the_documentation():
    # The distances of the systems that they come from; tagged-title finds the pair of its article.
    own = {"ascii-mt": 2, "code": 7, "submissions": 7, "news-md5": 4, "tagged-title": 5}
    own |= {"web": 7, "web-128": 14, "web-zh": 7}
    assert {name: recipe.k for name, recipe in PRESETS.items()} == dict.fromkeys(PRESETS, 3) | own
    similar = {name: recipe.similarity for name, recipe in PRESETS.items() if recipe.similarity}
    own = {"noisy": 0.65, "title": 0.6, "code": 0.65, "submissions": 0.7}
    assert similar == dict.fromkeys(("web", "web-128", "web-zh", "char-4"), 0.8) | own
    features = [name for name, recipe in PRESETS.items() if recipe.sketch == "features"]
    assert features == ["noisy", "title", "submissions"]
    assert all(DESCRIPTIONS[name] for name in PRESETS)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("char4", "did you mean char-4?"),
        ("nothing like it", "fpdb recipes describes them"),
        (None, "fpdb recipes describes them"),
        (["web"], "did you mean web?"),
    ],
)
def test_an_unknown_preset_names_those_there_are_and_a_close_one(name, hint):
    with pytest.raises(RecipeError, match=r"found no recipe .*, expected one of web, ") as caught:
        fpdb.recipe(name)
    assert caught.value.hint == hint


@EACH
def test_plain_data_builds_the_same_recipe(recipe):
    plain = json.loads(json.dumps(recipe.to_dict()))
    again = Recipe.from_dict(plain, secret=recipe.hash.secret)
    assert again.id == recipe.id
    assert again.name == recipe.name
    assert again.k == recipe.k
    if recipe.name != "ascii-mt":
        assert (
            again.batch([TEXT]).fingerprints.tolist() == recipe.batch([TEXT]).fingerprints.tolist()
        )


@EACH
def test_pickles_build_the_same_recipe(recipe):
    recipe.batch(["warm/it_up"])
    again = pickle.loads(pickle.dumps(recipe))
    assert (again, again.id, hash(again)) == (recipe, recipe.id, hash(recipe))
    assert again.batch(["pickled/n"]).fingerprints.tolist() == (
        recipe.batch(["pickled/n"]).fingerprints.tolist()
    )


def test_k_and_similarity_are_no_part_of_the_id_and_inherited():
    web, tagged = fpdb.recipe("web"), fpdb.recipe("tagged-title")
    assert web.replace(k=9, similarity=0.7).id == web.replace(similarity=None).id == web.id
    assert tagged.to_dict()["k"] == 5
    assert tagged.with_bits(128).k == 10
    again = Recipe.from_dict(tagged.to_dict())
    assert (again.k, again.similarity) == (5, None)
    for wrong in (-1, 65, True, 3.0, "3", None):
        with pytest.raises(RecipeError, match="k is "):
            web.replace(k=wrong)
    for wrong in (0, -0.5, 1.01, float("nan"), "0.8"):
        with pytest.raises(RecipeError, match="similarity is "):
            web.replace(similarity=wrong)


CHANGES = {
    "bits": {"bits": 32},
    "clean": {"clean": ("tags", "unicode")},
    "no clean": {"clean": ()},
    "order of clean": {"clean": ("unicode", "tags")},
    "segment": {"segment": "jieba-hmm"},
    "n": {"grams": Grams(n=2)},
    "stop words": {"grams": Grams(stop_words=("the",))},
    "minimum length": {"grams": Grams(min_length=2)},
    "minimum": {"grams": Grams(minimum=2)},
    "empty": {"grams": Grams(keep_empty=True)},
    "damping": {"weights": Weights(by="log")},
    "cap": {"weights": Weights(cap=3)},
    "jieba's idf": {"weights": Weights(idf="jieba")},
    "own idf": {"weights": Weights(idf=IdfTable({"a": 1.0}, 2.0))},
    "another idf": {"weights": Weights(idf=IdfTable({"a": 1.5}, 2.0))},
    "another missing idf": {"weights": Weights(idf=IdfTable({"a": 1.0}, 2.5))},
    "another idf feature": {"weights": Weights(idf=IdfTable({"b": 1.0}, 2.0))},
    "hash": {"hash": Hash(by="md5")},
    "offset": {"hash": Hash(by="md5", offset=8)},
    "multiply-xor": {"hash": Hash(by="multiply-xor")},
    "pad": {"hash": Hash(by="multiply-xor", pad=3)},
    "code units": {"hash": Hash(by="multiply-xor", utf16=True)},
    "blake2b": {"hash": Hash(by="blake2b")},
    "keyed blake2b": {"hash": Hash(by="blake2b", secret=Secret(KEY))},
    "secret": {"hash": Hash(secret=Secret(KEY))},
    "another secret": {"hash": Hash(secret=Secret(KEY[::-1]))},
    "tie": {"tie": 1},
    "mersenne": {"bits": 32, "hash": Hash(by="mersenne")},
    "seed": {"bits": 32, "hash": Hash(by="mersenne", seed=1)},
    "tags": {"segment": "jieba-tags", "weights": Weights(tags=(("n", 2.0),))},
    "other tags": {"segment": "jieba-tags", "weights": Weights(tags=(("n", 3.0),))},
}


def test_every_change_of_meaning_changes_the_id():
    base = Recipe("base")
    ids = {base.id} | {base.replace(**changes).id for changes in CHANGES.values()}
    assert len(ids) == len(CHANGES) + 1


def test_what_changes_no_fingerprint_changes_no_id():
    def stopping(*words):
        return Recipe("a", grams=Grams(stop_words=words))

    def tagging(*tags):
        return Recipe("a", segment="jieba-tags", weights=Weights(tags=tags))

    assert Recipe("a").id == Recipe("b").id
    assert stopping("x", "y").id == stopping("y", "x", "x").id
    assert tagging(("n", 2), ("w", 0)).id == tagging(("w", 0.0), ("n", 2.0)).id
    whole, broken = IdfTable({"a": 1, "b": 2}, 3), IdfTable({"b": 2.0, "a": 1.0}, 3.0)
    assert Recipe("a", weights=Weights(idf=whole)).id == Recipe("a", weights=Weights(idf=broken)).id


def test_another_width_is_another_recipe():
    web = fpdb.recipe("web")
    assert web.with_bits(64) is web
    assert web.with_bits(32).name == "web-32"
    assert web.with_bits(128) == fpdb.recipe("web-128")
    assert web.with_bits(32).fingerprint(TEXT) < 1 << 32


# Secrets


def test_a_key_changes_the_fingerprint_and_each_key_does_so_differently():
    plain = Recipe("plain")
    others = [
        plain.replace(hash=Hash(by=by, secret=secret))
        for by in ("xxh3", "blake2b")
        for secret in (None, Secret(KEY), Secret(KEY[::-1]))
    ]
    for text in (TEXT, "word"):
        assert len({recipe.fingerprint(text) for recipe in others}) == len(others)


@pytest.mark.parametrize("bits", [32, 64, 128])
@given(text=st.text(max_size=30))
def test_keyed_windows_are_those_of_keyed_features(bits, text):
    choice = Hash(secret=Secret(KEY))
    windows = Recipe("w", bits, (), "characters", Grams(n=4, minimum=0), hash=choice)
    features = {text[at : at + 4]: 0 for at in range(max(len(text) - 3, 1)) if text}
    for at in range(max(len(text) - 3, 1) if text else 0):
        features[text[at : at + 4]] += 1
    assert windows.fingerprint(text) == windows.fingerprint_features(features)


def test_secrets_are_never_shown():
    secret = Secret(b"correct horse battery staple")
    recipe = Recipe("keyed", hash=Hash(secret=secret))
    with pytest.raises(RecipeError) as keyless:
        Recipe.from_dict(recipe.to_dict())
    shown = [
        repr(secret),
        str(secret),
        repr(recipe),
        str(recipe.to_dict()),
        fpdb.fingerprint.write_recipe(recipe),
        str(keyless.value) + keyless.value.hint,
        secret.id,
    ]
    for text in shown:
        assert "horse" not in text
        assert secret.key.hex() not in text
        assert str(secret.seed) not in text
    assert secret.id in str(recipe.to_dict())


def test_a_keyed_recipe_comes_back_only_with_its_secret():
    plain = Recipe("keyed", hash=Hash(secret=Secret(KEY))).to_dict()
    with pytest.raises(RecipeError, match="keyed; no secret was given") as caught:
        Recipe.from_dict(plain)
    assert Secret(KEY).id in caught.value.hint
    with pytest.raises(RecipeError, match="keyed; another secret was given"):
        Recipe.from_dict(plain, secret=Secret(KEY[::-1]))


@pytest.mark.parametrize("size", [0, 15, 65])
def test_secrets_have_16_to_64_bytes(size):
    with pytest.raises(RecipeError, match=f"a secret of {size} bytes, expected 16 to 64"):
        Secret(bytes(size))


def test_secrets_are_read_only_from_files_of_their_owner(tmp_path):
    path = tmp_path / "my.key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    assert Secret.from_file(path) == Secret(KEY)
    for mode in (0o640, 0o604, 0o620, 0o644):
        path.chmod(mode)
        with pytest.raises(RecipeError, match=f"mode {mode:o}, expected 600") as caught:
            Secret.from_file(path)
        assert caught.value.hint == f"chmod 600 {path}"


# What is refused

WRONG = {
    "bits is 48, expected 32, 64, 128": {"bits": 48},
    "bits is True": {"bits": True},
    "its name is unusable": {"name": "No Spaces"},
    "a step of clean is 'upper', expected unicode": {"clean": ("upper",)},
    "segment is 'word', expected whitespace, words": {"segment": "word"},
    "tie is 2, expected 0, 1": {"tie": 2},
    "stop_words is no sequence of texts": {"grams": Grams(stop_words=(1,))},
    "stop_words is no sequence of texts, expected texts": {"grams": Grams(stop_words="the")},
    "keep_empty is 1, expected False, True": {"grams": Grams(keep_empty=1)},
    "grams of tagged segments, expected n = 1": {"segment": "jieba-tags", "grams": Grams(n=2)},
    "weights.by is 'tfidf', expected count, binary, log, sqrt": {"weights": Weights(by="tfidf")},
    "idf is 'mine', expected jieba, an idf table": {"weights": Weights(idf="mine")},
    "tags with segments that have none": {"weights": Weights(tags=(("n", 1.0),))},
    "tags is {'n': -1.0}": {"segment": "jieba-tags", "weights": Weights(tags=(("n", -1.0),))},
    "tags is {'n': inf}": {
        "segment": "jieba-tags",
        "weights": Weights(tags=(("n", float("inf")),)),
    },
    "hash.by is 'sha1', expected xxh3, shingle, md5": {"hash": Hash(by="sha1")},
    "grams of shingles, expected n = 1": {"segment": "shingles", "grams": Grams(n=2)},
    "the hash shingle of words, expected the segment shingles": {
        "segment": "words",
        "hash": Hash(by="shingle"),
    },
    "the hash xxh3 has no parameter offset, expected secret": {"hash": Hash(offset=8)},
    "the hash md5 has no parameter secret": {"hash": Hash(by="md5", secret=Secret(KEY))},
    "offset is 7, expected 0, 8, 16, 24, 32, 40, 48, 56, 64": {"hash": Hash(by="md5", offset=7)},
    "offset is 8, expected 0": {
        "bits": 128,
        "hash": Hash(by="md5", offset=8),
    },
    "mersenne with 64 bits, expected 32": {"hash": Hash(by="mersenne")},
}


@pytest.mark.parametrize("message", WRONG)
def test_parts_that_don_t_fit_are_refused(message):
    with pytest.raises(RecipeError) as caught:
        Recipe(**{"name": "own", **WRONG[message]})
    assert message in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"colour": "red"},
        {"grams": {"size": 3}},
        {"grams": {"stop_words": 5}},
        {"weights": {"by": ["log"]}},
        {"weights": {"tags": "n"}},
        {"weights": {"tags": {"n": "2"}}, "segment": "jieba-tags"},
        {"weights": {"idf": {"values": {"a": "1"}, "missing": 1}}},
        {"weights": {"idf": {"values": {"a": -1}, "missing": 1}}},
        {"weights": {"idf": {"values": {}}}},
        {"clean": [["unicode"]]},
        {"segment": None},
        {"name": 5},
    ],
    ids=str,
)
def test_plain_data_that_describes_no_recipe_is_refused(plain):
    with pytest.raises(RecipeError) as caught:
        Recipe.from_dict({"name": "x", **plain} if plain else plain)
    assert caught.value.hint


LIMITS = {
    "n": (lambda n: {"grams": Grams(n=n)}, 1, 100),
    "min_length": (lambda n: {"grams": Grams(min_length=n)}, 1, (1 << 31) - 1),
    "minimum": (lambda n: {"grams": Grams(minimum=n)}, 0, (1 << 31) - 1),
    "cap": (lambda n: {"weights": Weights(cap=n)}, 0, (1 << 31) - 1),
    "pad": (lambda n: {"hash": Hash(by="multiply-xor", pad=n)}, 0, 32),
    "seed": (lambda n: {"bits": 32, "hash": Hash(by="mersenne", seed=n)}, 0, (1 << 32) - 1),
    "largest": (lambda n: {"largest": n}, 1, 1 << 40),
    "k": (lambda n: {"k": n}, 0, 64),
}


@pytest.mark.parametrize(("parts", "least", "most"), LIMITS.values(), ids=LIMITS)
def test_the_limits_of_parts(parts, least, most):
    for number in (least, most):
        assert Recipe("own", **parts(number))
    for number in (least - 1, most + 1):
        with pytest.raises(RecipeError, match=f"is {number}, .* number from {least} to {most}"):
            Recipe("own", **parts(number))


# Idf tables


def test_idf_tables_count_documents(tmp_path):
    documents = [["a", "b", "a"], ["a", "c"], ["a"], ["b"]]
    table = IdfTable.from_documents(documents)
    assert table.values == {"a": 0.223144, "b": 0.510826}  # ln(5/4), ln(5/3)
    assert table.missing == 0.916291  # ln(5/2)
    assert set(IdfTable.from_documents(documents, at_least=1).values) == {"a", "b", "c"}
    assert set(IdfTable.from_documents(documents, at_least=3).values) == {"a"}
    with pytest.raises(fpdb.InputError, match="no documents"):
        IdfTable.from_documents([])


def test_the_limits_of_idf_tables(tmp_path, monkeypatch):
    assert IdfTable({"a": 0.0, "b": 524_288.0}, 0.0).values == {"a": 0.0, "b": 524_288.0}
    for wrong in (-1e-9, 524_288.5):
        with pytest.raises(RecipeError, match="from 0 to 524,288"):
            IdfTable({"a": wrong}, 1.0)
    monkeypatch.setattr(features, "_MOST_VALUES", 2)  # with that of missing features
    (tmp_path / "idf.tsv").write_text("\t1\na\t1\n")
    assert IdfTable.from_file(tmp_path / "idf.tsv") == IdfTable({"a": 1.0}, 1.0)
    with pytest.raises(RecipeError, match="of 3 values, expected at most 2"):
        IdfTable({"a": 1.0, "b": 1.0}, 1.0)
    (tmp_path / "idf.tsv").write_text("\t1\na\t1\nb\t1\n")
    with pytest.raises(RecipeError, match="2 values, expected fewer than 2"):
        IdfTable.from_file(tmp_path / "idf.tsv")


def test_idf_tables_come_back_from_their_file(tmp_path):
    path = tmp_path / "idf.tsv"
    IDF.to_file(path)
    again = IdfTable.from_file(path)
    assert again == IDF
    assert again.id == IDF.id
    assert path.read_text("utf-8").startswith("\t1.75\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\t1\nb\t1\n", "idf.tsv: line 1 isn't a feature in JSON"),
        ("", "line 1 isn't"),
        ("root:secret:1\n", "line 1 isn't"),
        ("\t1\na\tsecret\n", "line 2 isn't"),
        ("\t1\nb\t1\nno secret tab\n", "line 3 isn't"),
        ('\t1\na"b\t1\n', "line 2 isn't"),
        ("\t1\na\tnan\n", "an idf table of 2 values, expected at most 524,288 from 0 to 524,288"),
        ("\t-1\n", "an idf table of 1 values"),
    ],
)
def test_broken_idf_files_are_refused(tmp_path, content, message):
    path = tmp_path / "idf.tsv"
    path.write_text(content, "utf-8")
    with pytest.raises(RecipeError) as caught:
        IdfTable.from_file(path)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
