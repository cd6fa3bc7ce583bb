"""What the database's methods promise, one fact at a time."""

import hashlib
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdb
from fpdb import Database, Document, Grams, Hash, Recipe, Secret
from fpdb.errors import InputError, RecipeError, RecipeMismatchError
from fpdb.storage.format import LARGEST_KEY, Counters

TEXT = "the quick brown fox jumps over the lazy dog and runs away from it"
OTHER = "completely different words stand here so that nothing looks alike at all"
SHORT = "on and on"  # enough words to equal others, and too few distinct ones for a fingerprint
TOP = 2**64 - 1


def keys_of(matches: fpdb.Matches) -> list[Any]:
    return [match.key for match in matches]


# Adding


def test_a_new_document_is_added(db: Database, tiny: Recipe) -> None:
    before = int(time.time())
    assert db.add("a", TEXT, {"n": 1}) == ("a", 0, "added", [], False, None)
    document = db["a"]
    assert document == Document(
        "a",
        meta={"n": 1},
        fingerprint=tiny.fingerprint(TEXT),
        id=0,
        added=document.added,
        digest=hashlib.blake2b(TEXT.encode(), digest_size=16).digest(),
        characters=len(TEXT),
        sketch=tiny.batch([TEXT], sketches=True).sketches[0].tobytes(),
    )
    assert before <= document.added <= time.time()
    assert (document.text, document.short) == (None, False)


def test_a_duplicate_is_named_and_not_stored(db: Database) -> None:
    db.add("b", TEXT, {"title": "B"})
    db.add("a", TEXT)
    added = db.add("c", TEXT, skip_duplicates=True)
    assert added[:3] == ("c", None, "duplicate")
    assert [(m.key, m.distance, m.similarity, m.meta) for m in added.matches] == [
        ("a", 0, 1.0, None),
        ("b", 0, 1.0, {"title": "B"}),
    ]
    assert added.matches.complete
    assert "c" not in db
    assert len(db) == 2
    itself = db.add("a", f"{TEXT} again", skip_duplicates=True)
    assert (itself.status, keys_of(itself.matches)) == ("replaced", ["b"])
    assert keys_of(db.query(TEXT, similarity=1.0)) == ["b"]


def test_ids_arent_given_twice(db: Database) -> None:
    ids = [db.add(key, TEXT).id for key in "abc"]
    db.delete("b")
    assert ids == [0, 1, 2]
    assert db.add("d", TEXT).id == 3
    assert db.add("b", TEXT).id == 4


def test_each_transaction_is_one_write(db: Database) -> None:
    for count, write in enumerate((lambda: db.add("a", TEXT), lambda: db.delete("a")), 1):
        write()
        with db._environment.read() as txn:
            counters = Counters.unpack(bytes(txn.get("counters", b"counters") or b""))
        assert counters.writes == count


def test_add_many_yields_what_is_durable_already(db: Database, path: Path) -> None:
    results = db.add_many(Document(f"{n:05d}", fingerprint=n) for n in range(2500))
    assert next(results).key == "00000"
    with fpdb.open(path) as other:
        assert len(other) == 1000
    results.close()
    assert len(db) == 1000


# Fingerprints


def test_128_bits_come_as_two_words_high_one_first(tmp_path: Path) -> None:
    recipe = fpdb.recipe("web").with_bits(128)
    with fpdb.create(tmp_path / "db", recipe=recipe, keys="integer") as db:
        assert db.add_fingerprints([1, 2], np.array([[1, 2], [0, TOP]], np.uint64)) == 2
        assert db[1].fingerprint == 2**64 + 2
        assert db[2].fingerprint == TOP
        assert db.add_fingerprints([3], [2**128 - 1]) == 1
        assert keys_of(db.query_fingerprint(2**128 - 1)) == [3]
        with pytest.raises(InputError, match=r"expected uint64\[n, 2\]"):
            db.add_fingerprints([4], np.array([4], np.uint64))


def test_a_fingerprint_wider_than_the_database_is_refused(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db", recipe="bigram-32", keys="integer") as db:
        for numbers in ([2**32], np.array([2**32], np.uint64)):
            with pytest.raises(InputError, match="0x100000000"):
                db.add_fingerprints([1], numbers)
        assert db.add_fingerprints([1], np.array([2**32 - 1], np.uint64)) == 1
        assert keys_of(db.query_fingerprint(2**32 - 1)) == [1]


# Keys


def test_any_text_is_a_key_and_keys_come_in_order(db: Database) -> None:
    keys = ["b", "a", "ключ", "键", "\0", "a\nb", " ", "é", "e\u0301", "ä", "B", "aa", "a\0"]
    keys += ["\U0001f600", "\uffff", "\U0010ffff", "z" * 505]
    for key in keys:
        db.add(key, TEXT)
    assert list(db) == keys_of(db.query(TEXT)) == sorted(keys)
    for key in keys:
        assert db[key].key == key
        assert db.delete(key)


@pytest.mark.parametrize("length", [478, 479, 480, 509, 510, 511, 512, 2000, LARGEST_KEY])
def test_keys_that_share_a_long_beginning_are_told_apart(db: Database, length: int) -> None:
    start = "https://example.org/" + "x" * (length - 21)
    keys = [start + last for last in "abc"]
    for number, key in enumerate(keys):
        assert db.add(key, f"{TEXT} {number}", number).status == "added"
    assert [db[key].meta for key in keys] == [0, 1, 2]
    assert sorted(db) == keys
    assert start not in db
    assert [d.key for d in db.scan(prefix=start + "b")] == [keys[1]]
    assert sorted(d.key for d in db.scan(prefix=start)) == keys
    assert db.delete(keys[1])
    assert sorted(db) == [keys[0], keys[2]]
    assert list(db.check()) == []


def test_the_longest_key_counts_bytes(db: Database) -> None:
    longest = "ü" * (LARGEST_KEY // 2)
    db.add(longest, TEXT)
    assert longest in db
    for key in ("x" * (LARGEST_KEY + 1), longest + "x"):
        with pytest.raises(InputError, match=f"{LARGEST_KEY + 1:,} bytes") as caught:
            db.add(key, TEXT)
        assert "digest" in caught.value.hint
    assert len(db) == 1


# Texts


def test_half_surrogates_in_texts_are_kept(db: Database) -> None:
    db.add("a", "\ud800 x x x")
    assert keys_of(db.query("\ud800 x x x")) == ["a"]


# Querying


def test_a_crowd_of_equal_documents_is_cut_and_says_so(
    numbered: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fpdb.documents.lookup.DOCUMENTS", 100)
    numbered.add_fingerprints(range(2000), [5] * 2000)
    matches = numbered.query_fingerprint(5)
    assert (keys_of(matches), matches.complete) == (list(range(100)), False)
    again = pickle.loads(pickle.dumps(matches))
    assert (again, again.complete) == (matches, False)
    numbered.delete_many(range(100, 2000))
    assert numbered.query_fingerprint(5).complete
    for key in range(101):
        numbered.add(key, SHORT)
    short = numbered.query(SHORT)
    assert (len(short), short.complete) == (100, False)


def test_a_million_copies_are_one_entry_in_every_further_table(numbered: Database) -> None:
    """As many as a test can afford."""
    numbered.add_fingerprints(range(20_000), [7] * 20_000)
    stats = numbered.stats()
    _, *further, bands = stats.tables
    assert [table.pages for table in further] == [1] * len(further)
    assert (bands.name, bands.pages) == ("bands", 0)  # where only texts are
    assert stats.bytes_used < 20 * 20_000
    assert numbered.delete_many(range(19_999)) == 19_999
    assert keys_of(numbered.query_fingerprint(7)) == [19_999]
    assert list(numbered.check()) == []


# Reading


def test_a_scan_takes_a_prefix(db: Database) -> None:
    long = "https://ü.example/" + "ü" * 250
    keys = ["a", "ab", "abc", "b", "ü", "üb", "https://ü.example/1", long + "1", long + "2", long]
    for key in keys:
        db.add(key, TEXT)

    def found(prefix: str) -> list[str]:
        return sorted(document.key for document in db.scan(prefix=prefix))

    for prefix in ("", "a", "ab", "abc", "abcd", "ü", "https://ü.example/", long, long + "2", "zz"):
        assert found(prefix) == sorted(key for key in keys if key.startswith(prefix))
    assert found("x" * 100_000) == []
    assert found("\ud800") == []


def test_a_scan_takes_what_was_added_before(
    db: Database, numbered: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000
    monkeypatch.setattr(time, "time", lambda: now + 0.9)
    for number in range(10):
        now += 10
        db.add(f"{number}", TEXT)
        numbered.add(number, TEXT if number % 2 else "short")
        numbered.add_fingerprints([100 + number], [number])
    assert db["3"].added == 1_000_040
    assert [d.key for d in db.scan(added_before=1_000_040)] == ["0", "1", "2"]
    assert [d.key for d in db.scan(added_before=1_000_040.5)] == ["0", "1", "2", "3"]
    assert [d.key for d in db.scan(prefix="2", added_before=1_000_040)] == ["2"]
    assert [d.key for d in numbered.scan(added_before=1_000_030)] == [0, 1, 100, 101]
    # What is replaced counts from then on; what is unchanged keeps its time.
    now += 10
    db.add("0", OTHER)
    db.add("1", TEXT)
    assert [d.key for d in db.scan(added_before=1_000_040)] == ["1", "2"]


def test_a_scan_goes_on_while_the_database_changes(db: Database) -> None:
    db.add_fingerprints([f"{n:05d}" for n in range(3000)], range(3000))
    seen = []
    for key in db:
        seen.append(key)
        if key == "00010":
            db.delete_many([f"{n:05d}" for n in range(500, 2500)])
            db.add("99999", TEXT)
    assert seen[:11] == [f"{n:05d}" for n in range(11)]
    assert seen[-1] == "99999"
    assert len(seen) == len(set(seen))
    assert {f"{n:05d}" for n in range(2500, 3000)} <= set(seen)


def test_the_stats_tell_of_open_snapshots(
    db: Database, path: Path, start: Callable[..., Any]
) -> None:
    """Those of this process and of others, without the one that the question is asked in."""
    assert db.stats().snapshots == fpdb.models.Snapshots(0, None, 0)
    with db.snapshot():
        assert db.stats().snapshots == fpdb.models.Snapshots(1, os.getpid(), 0)
        db.add("a", TEXT)
        db.add("b", TEXT)
        assert db.stats().snapshots == fpdb.models.Snapshots(1, os.getpid(), 2)
    other = start(
        """
        with fpdb.open(argv[0], readonly=True) as db, db.snapshot():
            print("reading", flush=True)
            time.sleep(60)
        """,
        path,
    )
    assert other.stdout.readline() == "reading\n"
    for number in range(3):
        db.add(f"c{number}", TEXT)
    with db.snapshot():
        assert db.stats().snapshots == fpdb.models.Snapshots(2, other.pid, 3)
    other.kill()
    other.wait()
    assert db.stats().snapshots.open == 0


# Opening


def test_another_recipe_or_k_is_refused_and_changes_nothing(db: Database, path: Path) -> None:
    db.add("a", TEXT)
    db.close()
    before = (path / "data.mdb").read_bytes()
    for options, message in (
        ({"recipe": "web"}, "was created with the recipe tiny"),
        ({"recipe": db_recipe(minimum=4)}, "was created with the recipe tiny"),
        ({"k": 4}, "was created for k=3"),
    ):
        for readonly in (False, True):
            with pytest.raises(RecipeMismatchError, match=message) as caught:
                fpdb.open(path, readonly=readonly, **options)
            assert caught.value.hint
    assert (path / "data.mdb").read_bytes() == before
    with fpdb.open(path, recipe=db_recipe(minimum=3, name="other-name"), k=3) as again:
        assert keys_of(again.query(TEXT)) == ["a"]
        assert again.recipe.name == "other-name"
        assert again.stats().recipe == "tiny"


def db_recipe(minimum: int, name: str = "tiny") -> Recipe:
    return Recipe(name, clean=(), segment="whitespace", grams=Grams(minimum=minimum))


def test_a_recipe_comes_back_whole(path: Path) -> None:
    idf = fpdb.IdfTable({"fox": 2.5, "狐狸": 1.5}, missing=0.5)
    recipe = Recipe("weighed", weights=fpdb.Weights(by="log", idf=idf), grams=Grams(minimum=2))
    with fpdb.create(path, recipe=recipe) as db:
        db.add("a", TEXT)
    with fpdb.open(path) as db:
        assert db.recipe == recipe
        assert db.recipe.id == recipe.id
        assert keys_of(db.query(TEXT, k=0)) == ["a"]


@pytest.fixture
def keyed() -> Recipe:
    return Recipe(
        "keyed",
        clean=(),
        segment="whitespace",
        grams=Grams(minimum=3),
        hash=Hash(secret=Secret(b"sixteen bytes or more")),
    )


def test_a_keyed_recipe_is_needed_to_open(path: Path, keyed: Recipe) -> None:
    with fpdb.create(path, recipe=keyed) as db:
        db.add("a", TEXT)
        fingerprint = db["a"].fingerprint
    assert b"sixteen bytes" not in (path / "data.mdb").read_bytes()
    with fpdb.open(path) as db:
        for use in (lambda: db.query(TEXT), lambda: db.add("b", TEXT), lambda: db.recipe):
            with pytest.raises(RecipeError, match="keyed is keyed; no secret was given") as caught:
                use()
            assert keyed.hash.secret is not None
            assert keyed.hash.secret.id in caught.value.hint
        # What needs no text needs no secret.
        assert keys_of(db.query_fingerprint(fingerprint)) == ["a"]
        assert db.add_fingerprints(["b"], [fingerprint ^ 1]) == 1
        assert [match.key for match in db.query_fingerprint(fingerprint)] == ["a", "b"]
        assert db.delete("b")
        assert list(db) == ["a"]
        assert list(db.check()) == []
    other = keyed.replace(hash=Hash(secret=Secret(b"another secret, as long")))
    with pytest.raises(RecipeMismatchError):
        fpdb.open(path, recipe=other)
    with fpdb.open(path, recipe=keyed) as db:
        assert keys_of(db.query(TEXT)) == ["a"]


def test_a_handle_is_pickled_as_its_path(db: Database, path: Path) -> None:
    db.add("a", TEXT)
    with pickle.loads(pickle.dumps(db)) as again:
        assert keys_of(again.query(TEXT)) == ["a"]
        assert again.add("b", TEXT).status == "added"
    with fpdb.open(path, readonly=True) as reader, pickle.loads(pickle.dumps(reader)) as again:
        assert again.readonly
        assert list(again) == ["a", "b"]


def test_a_database_becomes_a_dictionary(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db") as db:
        db.add("a", "red kites nest above the quarry", {"n": 1})
        db.add("b", "short")
        documents = dict(db)
        assert list(documents) == list(db.keys()) == ["a", "b"]
        assert documents["a"] == db["a"]
        assert db.key_type == "text"
        with db.snapshot() as snapshot:
            assert dict(snapshot) == documents
