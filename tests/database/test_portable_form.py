"""The portable form: whatever a database holds comes back whole, and damage is named."""

import dataclasses
import gzip
import importlib
import io
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import Document
from fpdb.maintenance import portable

PAGE = "The library lends books for four weeks; whoever keeps them longer pays a small fee. "
NEAR = PAGE.replace("small", "modest")
NUMBERS = st.integers(-(2**63), 2**64 - 1)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3
        )
    ),
    max_leaves=6,
)
TEXT_KEYS = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12
) | st.integers(500, 700).map(lambda n: "https://example.org/" + "long/" * (n // 5) + str(n))
INTEGER_KEYS = st.integers(0, 2**64 - 1)
TEXTS = st.sampled_from(
    ["", "short", PAGE, NEAR, PAGE * 3, PAGE + NEAR, "图书馆的书可以借四个星期。" * 9]
)


def recipe_of(bits):
    return fpdb.recipe("web").with_bits(bits)


def documents(keys, bits):
    ready = st.builds(
        Document,
        keys,
        meta=PLAIN,
        fingerprint=st.integers(0, 2**bits - 1),
        added=st.none() | st.integers(0, 2**33),
        sketch=st.none() | st.binary(min_size=128, max_size=128),
    )
    return st.lists(ready | st.builds(Document, keys, TEXTS, PLAIN), max_size=12)


@st.composite
def contents(draw):
    """What a database is created with, and what it holds."""
    keys, bits = draw(st.sampled_from(["text", "integer"])), draw(st.sampled_from([32, 64, 128]))
    similarity = draw(st.sampled_from([None, 0.8]))
    held = draw(documents(TEXT_KEYS if keys == "text" else INTEGER_KEYS, bits))
    return {"keys": keys, "recipe": recipe_of(bits), "similarity": similarity}, held


def dumped(database):
    file = io.BytesIO()
    database.dump(file)
    return file.getvalue()


def bare(document):
    """A document without its id, which another database may have chosen otherwise."""
    return dataclasses.replace(document, id=None)


def seen(database):
    """Everything that can be asked."""
    assert list(database.check()) == []
    stats = database.stats()
    held = list(database.scan())
    return {
        "documents": list(map(bare, held)),
        "order": [d.key for d in sorted(held, key=lambda each: each.id)],
        "stats": (
            stats.recipe_id,
            stats.k,
            stats.keys,
            stats.similarity,
            stats.documents,
            stats.short,
            stats.sketches,
        ),
        "pairs": sorted(map(str, database.pairs())),
        "clusters": list(map(str, database.clusters())),
        "queries": [
            [match._replace(id=0) for match in found]
            for found in database.query_many([PAGE, NEAR, PAGE * 3, "", "short"])
        ],
    }


@settings(max_examples=examples(6))
@given(contents())
def test_everything_comes_back(made):
    options, held = made
    with tempfile.TemporaryDirectory() as folder:
        with fpdb.create(Path(folder, "a"), **options) as database:
            list(database.add_many(held))
            wanted, data = seen(database), dumped(database)
        loaded = fpdb.load(Path(folder, "b"), io.BytesIO(data))
        assert loaded.read == len(wanted["documents"])
        assert (loaded.replaced, loaded.unchanged) == (0, 0)
        with fpdb.open(Path(folder, "b")) as copy:
            assert seen(copy) == wanted
            assert dumped(copy) == data
        # So does it into a database that is there, and that other documents were in before.
        with fpdb.create(Path(folder, "c"), **options) as other:
            list(
                other.add_many(
                    [dataclasses.replace(each, fingerprint=5, text=None) for each in held[:2]]
                )
            )
        fpdb.load(Path(folder, "c"), io.BytesIO(data))
        with fpdb.open(Path(folder, "c")) as other:
            assert list(map(bare, other.scan())) == wanted["documents"]
            assert list(other.check()) == []
        again = fpdb.load(Path(folder, "b"), io.BytesIO(data))
        assert again.unchanged == again.read == loaded.read
        # And documents that are scanned are added whole as well.
        with (
            fpdb.open(Path(folder, "a")) as database,
            fpdb.create(Path(folder, "d"), **options) as d,
        ):
            list(d.add_many(database.scan()))
            assert list(map(bare, d.scan())) == wanted["documents"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    path = tmp_path_factory.mktemp("portable") / "filled.fpdb"
    with fpdb.create(path, k=4, capacity=5000) as database:
        database.add("https://a.example/1", PAGE * 3, {"title": "a\x7f\x1b[31m", "n": 2**64 - 1})
        database.add("b", NEAR * 3)
        database.add("c", "short")
        database.add_fingerprints(["https://a.example/0", "d"], [7, 2**64 - 1])
    return path


@pytest.fixture(scope="module")
def data(filled):
    with fpdb.open(filled) as database:
        return dumped(database)


def test_it_is_lines_of_printable_ascii(data):
    assert data.endswith(b"\n")
    assert all(0x20 <= byte < 0x7F or byte == 0x0A for byte in data)
    head, *rest, tail = map(json.loads, data.splitlines())
    assert (head["fpdb_portable"], head["k"], head["capacity"]) == (1, 4, 5000)
    assert head["recipe"] == fpdb.recipe("web").to_dict()
    assert [each["key"] for each in rest] == [
        "https://a.example/1",
        "b",
        "c",
        "https://a.example/0",
        "d",
    ]
    assert (rest[2]["fingerprint"], rest[4]["fingerprint"]) == (None, "f" * 16)
    assert tail["documents"] == 5


def test_files_of_all_kinds(filled, data, tmp_path):
    for number, opened in enumerate((gzip.open, open)):
        path = tmp_path / f"file{number}"
        with fpdb.open(filled) as database, opened(path, "wb") as file:
            assert database.dump(file) == 5
        with opened(path, "rb") as file:
            fpdb.load(tmp_path / f"copy{number}", file)
    with open(tmp_path / "raw", "wb", buffering=0) as raw, fpdb.open(filled) as database:
        database.dump(raw)
    assert (tmp_path / "raw").read_bytes() == data


def test_a_mark_and_a_last_line_without_its_end(data, tmp_path):
    fpdb.load(tmp_path / "new", io.BytesIO(b"\xef\xbb\xbf" + data.rstrip(b"\n")))
    with fpdb.open(tmp_path / "new") as database:
        assert len(database) == 5


@pytest.mark.full
def test_wherever_it_is_cut_nothing_is_there(data, tmp_path):
    whole = data.rstrip(b"\n")
    for end in range(0, len(whole), 1 + len(whole) // 10):
        with pytest.raises(fpdb.InputError) as raised:
            fpdb.load(tmp_path / "new", io.BytesIO(whole[:end]))
        assert raised.value.hint
        assert list(tmp_path.glob("*new*")) == []


@pytest.mark.full
def test_whatever_byte_is_changed_is_noticed(data, tmp_path):
    for place in range(0, len(data) - 1, 1 + len(data) // 10):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(fpdb.FpdbError):
            fpdb.load(tmp_path / "new", io.BytesIO(changed))


def test_lines_that_are_lost_swapped_or_added(data, tmp_path):
    lines = data.splitlines(keepends=True)
    for some, message in (
        (lines[:2] + lines[3:], "the last line says documents 5, found 4"),
        ([*lines[:2], *lines[3:1:-1], *lines[4:]], "says sha256"),
        (lines + lines, "after the last line"),
        (lines[:-1], "without the line that counts"),
        ([], "line 1 doesn't begin"),
    ):
        with pytest.raises(fpdb.InputError, match=message):
            fpdb.load(tmp_path / "new", io.BytesIO(b"".join(some)))


def test_what_precedes_an_error_is_stored_in_a_database_that_is_there(filled, data, tmp_path):
    with fpdb.create(tmp_path / "there") as there:
        lines = data.splitlines(keepends=True)
        with pytest.raises(fpdb.InputError, match="after line 3"):
            fpdb.load(tmp_path / "there", io.BytesIO(b"".join(lines[:3])))
        assert sorted(there) == ["b", "https://a.example/1"]
        lines[3] = b'{"key": 5, "fingerprint": "00000000000000ff"}\n'
        with pytest.raises(fpdb.InputError, match="line 4: found the key 5"):
            fpdb.load(tmp_path / "there", io.BytesIO(b"".join(lines)))
        assert len(there) == 2


def test_it_replaces_and_keeps_times(data, tmp_path):
    with fpdb.create(tmp_path / "there") as there:
        there.add("b", PAGE)
        there.add("z", PAGE)
        lines = data.replace(b'"added":1', b'"added":10').splitlines()
        file = io.BytesIO(b"\n".join([*lines[:-1], b'{"documents":5}']))
        loaded = fpdb.load(tmp_path / "there", file)
        assert (loaded.added, loaded.replaced, loaded.short, loaded.unchanged) == (3, 1, 1, 0)
        assert there["b"].added == json.loads(lines[2])["added"] > 10**10
        assert len(there) == 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": "char-4"}, "recipe"),
        ({"recipe": "web-128"}, "recipe"),
        ({"keys": "integer"}, "keys"),
        ({"similarity": None}, "similarity None, the file has 0.8"),
    ],
)
def test_another_kind_of_database_is_refused(data, tmp_path, options, message):
    with fpdb.create(tmp_path / "there", **options) as there:
        with pytest.raises(fpdb.RecipeMismatchError, match=message):
            fpdb.load(tmp_path / "there", io.BytesIO(data))
        assert len(there) == 0


def test_documents_without_sketches_stay_out_of_a_database_that_keeps_them(tmp_path):
    """There, no similarity would find them."""
    with fpdb.create(tmp_path / "bits", similarity=None, k=3) as bits:
        bits.add("u", PAGE)
        file = io.BytesIO(dumped(bits))
    fpdb.create(tmp_path / "there").close()
    with pytest.raises(fpdb.RecipeMismatchError, match=r"similarity 0\.8, the file has None"):
        fpdb.load(tmp_path / "there", file)


def test_a_keyed_recipe_needs_no_secret(tmp_path):
    secret = fpdb.Secret(b"s" * 16)
    recipe = fpdb.recipe("web").replace(name="keyed", hash=fpdb.Hash(by="xxh3", secret=secret))
    with fpdb.create(tmp_path / "a", recipe=recipe) as database:
        database.add("u", PAGE)
        data = dumped(database)
    assert b"ssss" not in data
    fpdb.load(tmp_path / "b", io.BytesIO(data))
    with fpdb.open(tmp_path / "b", recipe=recipe) as copy:
        assert copy.query(PAGE)[0].key == "u"
    with fpdb.open(tmp_path / "b") as copy:
        assert dumped(copy) == data
        with pytest.raises(fpdb.RecipeError, match="keyed"):
            copy.query(PAGE)
    other = recipe.replace(hash=fpdb.Hash(by="xxh3", secret=fpdb.Secret(b"t" * 16)))
    with pytest.raises(fpdb.RecipeMismatchError):
        fpdb.open(tmp_path / "b", recipe=other)
    wrong = data.replace(secret.id.encode(), b"0" * len(secret.id))
    with pytest.raises(fpdb.InputError, match="of its recipe"):
        fpdb.load(tmp_path / "c", io.BytesIO(wrong))


HEAD = {
    "fpdb_portable": 1,
    "recipe": fpdb.recipe("web").to_dict(),
    "recipe_id": fpdb.recipe("web").id,
    "bits": 64,
    "k": 3,
    "keys": "text",
    "similarity": None,
    "capacity": 1000,
}
DEEP = '{"key":"k","fingerprint":null,"meta":' + "[" * 100_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"key":"k","fingerprint":"0"}', "16 hex digits"),
        ('{"key":"k","fingerprint":"g000000000000000"}', "16 hex digits"),
        ('{"key":"k"}', "no field fingerprint"),
        ('{"key":"k","fingerprint":"٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠"}', "16 hex digits"),
        ('{"key":"k","fingerprint":5}', "16 hex digits"),
        ('{"key":"k","fingerprint":null}', "neither a text nor a fingerprint"),
        ('{"key":"","fingerprint":"0000000000000000"}', "key"),
        ('{"key":"\\ud800","fingerprint":"0000000000000000"}', "surrogate"),
        ('{"key":"k","fingerprint":"0000000000000000","digest":"00"}', "32 hex digits"),
        ('{"key":"k","fingerprint":"0000000000000000","added":999999999999999}', "added"),
        ('{"key":"k","fingerprint":"0000000000000000","sketch":"AAAA"}', "none, by the first line"),
        ('{"key":"k","fingerprint":"0000000000000000","meta":NaN}', "metadata"),
        ('{"key":"k","fingerprint":"0000000000000000","meta":"\\udcff"}', "surrogate"),
        ('{"key":"k","fingerprint":"0000000000000000","meta":' + "9" * 5000 + "}", "JSON"),
        ('{"key":"k","fingerprint":"0000000000000000","meta":"' + "x" * 70_000 + '"}', "65,536"),
        ('{"key":"k","fingerprint":"0000000000000000","text":"t"}', "the field 'text'"),
        ('{"key":"' + "k" * 70_000 + '","fingerprint":"0000000000000000"}', "65,536"),
        (
            '{"key":"' + "k" * 9_000_000 + '","fingerprint":"0000000000000000"}',
            "more than 8,388,608",
        ),
        (DEEP, "nested too deeply"),
        (DEEP + "]" * 100_000 + "}", "nested too deeply"),
        ("[]", "no object"),
        ("", "JSON"),
        ('{"documents":1}', "found 0"),
        ('{"documents":0,"more":1}', "says more 1"),
    ],
)
def test_hostile_lines(tmp_path, line, message):
    data = f"{json.dumps(HEAD)}\n{line}\n".encode()
    with pytest.raises(fpdb.InputError, match=message) as raised:
        fpdb.load(tmp_path / "new", io.BytesIO(data))
    assert len(str(raised.value)) < 400
    assert "line 2" in str(raised.value) or "last line" in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_sketch_of_another_kind(tmp_path):
    head = HEAD | {"similarity": 0.8}
    for sketch, message in (
        ("AAAA", "128 bytes"),
        ("!!!!", "Base64"),
        (5, "Base64"),
        ("é" * 4, "Base64"),
    ):
        line = {"key": "k", "fingerprint": "0" * 16, "sketch": sketch}
        data = "\n".join(map(json.dumps, (head, line))).encode()
        with pytest.raises(fpdb.InputError, match=message):
            fpdb.load(tmp_path / "new", io.BytesIO(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"recipe": 5}, "line 1"),
        ({"recipe": {"name": "web", "hash": 5}}, "line 1"),
        ({"recipe": HEAD["recipe"] | {"clean": [[]]}}, "line 1"),
        ({"recipe": HEAD["recipe"] | {"tie": 1}}, "of its recipe"),
        ({"recipe_id": "0"}, "of its recipe"),
        ({"bits": 128}, "of its recipe"),
        ({"k": True}, "k True"),
        ({"keys": []}, "keys"),
        ({"similarity": []}, "similarity"),
        ({"similarity": 2}, "similarity"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": 2**64}, "out of range"),
        ({"later": 1}, "the field 'later'"),
    ],
)
def test_hostile_first_lines(tmp_path, change, message):
    data = json.dumps(HEAD | change).encode() + b'\n{"documents":0}\n'
    with pytest.raises(fpdb.InputError, match=message):
        fpdb.load(tmp_path / "new", io.BytesIO(data))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("place", "line"), [(0, HEAD), (1, {"key": "k", "fingerprint": None})])
def test_a_field_of_a_later_version_is_no_damage(tmp_path, place, line):
    lines = [HEAD, {"documents": 0}]
    lines[place : place + 1] = [line | {"later": 1}]
    with pytest.raises(fpdb.InputError, match=f"line {place + 1} has the field 'later'") as raised:
        fpdb.load(tmp_path / "new", io.BytesIO("\n".join(map(json.dumps, lines)).encode()))
    assert raised.value.hint == "install a newer fpdb, which may have written it"


def test_a_first_line_that_lacks_something_or_comes_from_the_future(tmp_path):
    for name in ("recipe", "keys"):
        some = {each: value for each, value in HEAD.items() if each != name}
        with pytest.raises(fpdb.InputError, match=f"no field {name}"):
            fpdb.load(tmp_path / "new", io.BytesIO(json.dumps(some).encode()))
    for version in (0, 2, "1"):
        head = HEAD | {"fpdb_portable": version}
        with pytest.raises(fpdb.FormatError, match="this fpdb reads 1"):
            fpdb.load(tmp_path / "new", io.BytesIO(json.dumps(head).encode()))
    for k in (-1, 60):
        with pytest.raises(fpdb.PlanError):
            fpdb.load(tmp_path / "new", io.BytesIO(json.dumps(HEAD | {"k": k}).encode()))
    assert list(tmp_path.iterdir()) == []


def test_more_than_one_batch(tmp_path):
    with fpdb.create(tmp_path / "a", keys="integer") as database:
        database.add_fingerprints(range(0, 7501, 3), range(2501))
        file = io.BytesIO()
        assert database.dump(file) == 2501
    file.seek(0)
    assert fpdb.load(tmp_path / "b", file).added == 2501
    with fpdb.open(tmp_path / "a") as a, fpdb.open(tmp_path / "b") as b:
        assert all(map(dataclasses.astuple, a.scan()))
        assert all(x == y for x, y in itertools.zip_longest(a.scan(), b.scan()))
    lines = file.getvalue().splitlines()
    lines[2200] = b'{"key": "x", "fingerprint": "0000000000000000"}'
    with fpdb.create(tmp_path / "c", keys="integer") as there:
        with pytest.raises(fpdb.InputError, match="line 2201: found the key 'x'"):
            fpdb.load(tmp_path / "c", io.BytesIO(b"\n".join(lines)))
        assert len(there) == 2199


def test_stored_parts_of_a_document_are_checked(tmp_path):
    with fpdb.create(tmp_path / "a") as database:
        for wrong in (
            {"digest": b"x"},
            {"digest": "x" * 16},
            {"characters": -1},
            {"characters": 1.5},
            {"characters": np.array([1, 2])},
            {"digest": np.array([1, 2])},
            {"added": "now"},
            {"added": 2**63},
            {"added": True},
        ):
            with pytest.raises(fpdb.InputError):
                list(database.add_many([Document("k", fingerprint=1, **wrong)]))
        text = Document("k", PAGE, added=5, digest=b"x" * 16, characters=3)
        list(database.add_many([text]))
        assert (database["k"].added, database["k"].characters) == (5, len(PAGE))
        assert database["k"].digest != b"x" * 16


def test_what_is_held_at_once_is_bounded(data, tmp_path, monkeypatch):
    monkeypatch.setattr("fpdb.maintenance.portable._ROOM", 300)
    sizes = []
    source = portable.PortableFile(io.BytesIO(data))
    for line, batch in source.batches(2):
        assert line == 2 + sum(sizes)
        sizes.append(len(batch))
    assert sum(sizes) == 5
    assert set(sizes) == {1, 2}
    monkeypatch.setattr(importlib.import_module("fpdb.load"), "GATHERED", 2)
    fpdb.load(tmp_path / "new", io.BytesIO(data))
    with fpdb.open(tmp_path / "new") as database:
        assert dumped(database) == data
