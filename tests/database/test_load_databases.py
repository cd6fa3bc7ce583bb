"""Loading databases: against a model of dicts, and against one database of everything."""

import itertools
import os
import random
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import Database, Document, Grams, InputError, Recipe
from fpdb.documents import catalog
from fpdb.documents.catalog import View
from fpdb.documents.layout import read_layout
from fpdb.maintenance import rebuild
from fpdb.maintenance.check import check_view
from fpdb.models import Problem
from fpdb.storage import Environment
from fpdb.storage.format import StoredRun

pytestmark = pytest.mark.process

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]

texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)
metas = st.sampled_from([None, {"a": 1}, "b"])
adds = st.lists(st.tuples(st.integers(0, 12), texts | st.integers(0, 40), metas), max_size=9)
# Of each source: what is added, and which keys are deleted again.
crawls = st.lists(st.tuples(adds, st.sets(st.integers(0, 12), max_size=3)), min_size=1, max_size=4)


def recipe_of(bits: int) -> Recipe:
    return Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3), bits=bits)


def named(number: int, keys: str) -> Any:
    # Some keys are longer than LMDB's.
    return number if keys == "integer" else f"k{number}" + "x" * (600 if number % 5 == 0 else 0)


def crawl(
    path: Path, monkeypatch: pytest.MonkeyPatch, moves: Any, times: list[int], **options: Any
) -> None:
    """Make a database, each document added at a time of its own."""
    added, deleted = moves
    keys = options["keys"]
    with fpdb.build(path, **options) as db:  # which doesn't wait for the disk
        for number, what, meta in added:
            now = float(times.pop())
            monkeypatch.setattr("time.time", lambda now=now: now)
            key = named(number, keys)
            if isinstance(what, str):
                db.add(key, what, meta=meta)
            else:
                list(db.add_many([Document(key, fingerprint=what << 20, meta=meta)]))
        monkeypatch.undo()
        for number in deleted:
            key = named(number, keys)
            if key in db:
                db.delete(key)


def model(sources: list[list[Document]]) -> dict[Any, Document]:
    """Of documents with the same key the newest stays, of equally old ones that of the first."""
    newest: dict[Any, Document] = {}
    for document in itertools.chain.from_iterable(sources):
        stored = newest.get(document.key)
        if stored is None or document.added > stored.added:
            newest[document.key] = document
    return newest


def one_by_one(sources: list[list[Document]]) -> dict[str, int]:
    """Of each key, the first document is added, and a newer one replaces what is there."""
    counts = dict.fromkeys(("added", "replaced", "unchanged"), 0)
    newest: dict[Any, Document] = {}
    for document in itertools.chain.from_iterable(sources):
        stored = newest.setdefault(document.key, document)
        newer = document.added > stored.added
        status = "added" if document is stored else "replaced" if newer else "unchanged"
        counts[status] += 1
        newest[document.key] = document if newer else stored
    return counts


def without_id(document: Document) -> tuple[Any, ...]:
    return (
        document.key,
        document.fingerprint,
        document.meta,
        document.short,
        document.sketch,
        document.digest,
        document.characters,
        document.added,
    )


@pytest.mark.parametrize("keys", ["text", "integer"])
@settings(max_examples=examples(50))
@given(
    crawls,
    st.sampled_from([64, 128, 32]),
    st.booleans(),
    st.randoms(use_true_random=False),
    st.lists(st.sampled_from([1, 2, 3]), min_size=4, max_size=4),
)
def test_a_new_database_is_like_one_of_everything(
    tmp_path_factory: pytest.TempPathFactory,
    keys: str,
    moves: list[Any],
    bits: int,
    sketched: bool,
    dice: random.Random,
    tables: list[int],
) -> None:
    where = tmp_path_factory.mktemp("load")
    times = [dice.randrange(1000, 1020) for _ in range(100)]
    options = {"recipe": recipe_of(bits), "keys": keys, "similarity": 0.8 if sketched else None}
    with pytest.MonkeyPatch.context() as patch:
        # The check of each would start a process; whether one finds what is wrong is another test.
        patch.setattr(rebuild, "check", check_here)
        patch.setattr(catalog, "_BLOCK", 3)
        with pytest.MonkeyPatch.context() as clockwork:
            for number, own in enumerate(moves):
                plan = fpdb.plans(bits, 3, 1000)[tables[number] - 1]
                crawl(where / f"{number}", clockwork, own, times, plan=plan, **options)
        paths = [where / f"{number}" for number in range(len(moves))]
        sources = [documents_of(path) for path in paths]
        expected = model([sorted(documents, key=by_id) for documents in sources])
        counts = fpdb.load(where / "c", paths)
    require_loaded(where / "c", expected, sources, keys)
    total = sum(map(len, sources))
    assert (counts.read, counts.added + counts.short) == (total, len(expected))
    wanted = one_by_one(sources)
    assert (counts.replaced, counts.unchanged) == (wanted["replaced"], wanted["unchanged"])
    with fpdb.build(where / "union", **options) as union:
        ingest(union, expected, where / "c")
        require_same_answers(where / "c", union)
    shutil.rmtree(where)


def check_here(path: Path, *, deep: bool) -> Any:
    assert deep
    with Environment.open(path, readonly=True) as environment:
        _, index, catalog = read_layout(environment)
        with environment.read() as txn:
            yield from check_view(View(txn, index, catalog))


def by_id(document: Document) -> int:
    assert document.id is not None
    return document.id


def documents_of(path: Path) -> list[Document]:
    with fpdb.open(path, readonly=True) as db:
        return list(db.scan())


def require_loaded(
    path: Path, expected: dict[Any, Document], sources: list[list[Document]], keys: str
) -> None:
    """Documents and ids are those of the model."""
    found = documents_of(path)
    assert {d.key: without_id(d) for d in found} == {
        key: without_id(d) for key, d in expected.items()
    }
    if keys == "integer":
        assert all(document.id == document.key for document in found)
        return
    # In the order of the sources, and of the ids in each.
    place = {id(document): at for at, own in enumerate(sources) for document in own}
    order = sorted(expected.values(), key=lambda d: (place[id(d)], by_id(d)))
    assert [d.key for d in sorted(found, key=by_id)] == [d.key for d in order]


def ingest(union: Database, expected: dict[Any, Document], path: Path) -> None:
    """Add the same documents to an empty database, in the order of their new ids."""
    for document in sorted(documents_of(path), key=by_id):
        list(union.add_many([replace(document, id=None)]))


def require_same_answers(path: Path, union: Database) -> None:
    with fpdb.open(path, readonly=True) as db:
        assert db.similarity == union.similarity
        numbers = [d.fingerprint for d in db.scan() if d.fingerprint is not None]
        probes = [number ^ mask for number in numbers for mask in (0, 5, 1 << 30 | 1)]
        for probe in probes:
            mine, others = db.query_fingerprint(probe), union.query_fingerprint(probe)
            assert [(m.key, m.distance, m.meta) for m in mine] == [
                (m.key, m.distance, m.meta) for m in others
            ]
        for k in (None, 3):
            assert sorted(db.pairs(k=k)) == sorted(union.pairs(k=k))
        asked = [" ".join(some) for some in itertools.product(WORDS[:3], repeat=3)]
        mine, others = (
            [[match._replace(id=0) for match in found] for found in each.query_many(asked)]
            for each in (db, union)
        )
        assert mine == others


few = st.tuples(st.integers(0, 2), st.sampled_from(["", "one two three", 7]), metas)


@pytest.mark.parametrize("keys", ["text", "integer"])
@settings(max_examples=examples(100))
@given(
    st.lists(st.lists(few, max_size=3), min_size=2, max_size=4),
    st.lists(st.integers(1000, 1002), min_size=12, max_size=12),
    st.booleans(),
)
def test_of_equal_keys_the_newest_stays_and_then_the_first(
    tmp_path_factory: pytest.TempPathFactory,
    keys: str,
    added: list[Any],
    times: list[int],
    sketched: bool,
) -> None:
    """In a new database, and in one that is there, which is like a first source."""
    where = tmp_path_factory.mktemp("load")
    options = {"recipe": recipe_of(64), "keys": keys, "similarity": 0.8 if sketched else None}
    paths = [where / f"{number}" for number in range(len(added))]
    with pytest.MonkeyPatch.context() as patch:
        for path, documents in zip(paths, added, strict=True):
            crawl(path, patch, (documents, ()), times, **options)
        sources = [documents_of(path) for path in paths]
        expected = {key: without_id(stored) for key, stored in model(sources).items()}
        patch.setattr(rebuild, "check", check_here)
        counts, wanted = fpdb.load(where / "new", paths), one_by_one(sources)
        assert (counts.added + counts.short, counts.replaced, counts.unchanged) == (
            *wanted.values(),
        )
        assert {d.key: without_id(d) for d in documents_of(where / "new")} == expected
        for attempt in ("first", "again"):
            counts = fpdb.load(paths[0], paths[1:])
            assert counts.read == sum(map(len, sources[1:]))
            if attempt == "first":
                assert counts.unchanged == wanted["unchanged"]
            assert (counts.unchanged == counts.read) or attempt == "first"
            assert {d.key: without_id(d) for d in documents_of(paths[0])} == expected
        assert not list(check_here(paths[0], deep=True))
    shutil.rmtree(where)


# One by one


@pytest.fixture
def checked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each merged database is checked, but in this process."""
    monkeypatch.setattr(rebuild, "check", check_here)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Two databases with text keys, which share one key."""
    for name, keys in (("a", ("x", "y")), ("b", ("y", "z"))):
        with fpdb.create(tmp_path / name, recipe=recipe_of(64)) as db:
            for key in keys:
                db.add(key, f"one two three {name}")
    return [tmp_path / "a", tmp_path / "b"]


def test_loading_leaves_its_sources_alone_and_nothing_beside(
    paths: list[Path], tmp_path: Path
) -> None:
    before = [(path / "data.mdb").read_bytes() for path in paths]
    with fpdb.open(paths[0]) as busy:  # as a crawler of this process has it
        fpdb.load(tmp_path / "c", paths)
        busy.add("more", "seven eight one two")
    assert [(path / "data.mdb").read_bytes() for path in paths][1] == before[1]
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "c"]
    assert sorted(os.listdir(tmp_path / "c")) == ["data.mdb", "fpdb.lock", "fpdb.seal", "lock.mdb"]
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "c").iterdir()} == {0o600}
    with fpdb.open(tmp_path / "c") as db:
        db.add("new", "one two three")
        assert len(db) == 4


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize("there", [False, True])
def test_the_newest_replaces_and_the_counts_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Older, newer, and as old: of three sources into a new database, and of two into the first."""
    paths = [tmp_path / name for name in "abc"]
    times = {"falls": (9, 8, 7), "rises": (7, 8, 9), "ties": (8, 8, 8), "peaks": (7, 9, 9)}
    for path, *added in zip(paths, *times.values(), strict=True):
        with fpdb.create(path, recipe=recipe_of(64)) as db:
            for key, seconds in zip(times, added, strict=True):
                monkeypatch.setattr("time.time", lambda seconds=seconds: float(seconds))
                db.add(key, f"one two three {path.name}")
    monkeypatch.undo()
    place, sources = (paths[0], paths[1:]) if there else (tmp_path / "new", paths)
    counts = fpdb.load(place, sources)
    done = counts.read, counts.added, counts.replaced, counts.unchanged
    assert done == ((8, 0, 3, 5) if there else (12, 4, 3, 5))
    with fpdb.open(place) as db:
        stayed = {name: db[name].digest for name in times}
        texts = {name: f"one two three {path}" for name, path in zip(times, "acab", strict=True)}
        assert stayed == {name: db.recipe.digest(text) for name, text in texts.items()}


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize("there", [False, True])
def test_deliveries_come_with_their_documents(tmp_path: Path, there: bool) -> None:
    """What `dedupe` has added to a source isn't delivered again to where it was loaded."""
    records = [{"id": f"r{n}", "text": f"one two three {n} four five"} for n in range(3)]
    list(fpdb.dedupe(records, database=tmp_path / "north"))
    if there:
        fpdb.create(tmp_path / "all").close()
    for _ in range(2):
        fpdb.load(tmp_path / "all", tmp_path / "north")
        with pytest.raises(InputError, match="the very same records were added"):
            list(fpdb.dedupe(records, database=tmp_path / "all"))
        there or shutil.rmtree(tmp_path / "all")


@pytest.mark.parametrize("there", [False, True])
def test_an_unfinished_delivery_stays_where_it_can_be_finished(tmp_path: Path, there: bool) -> None:
    with fpdb.create(tmp_path / "north") as north:
        north.runs.begin(StoredRun(bytes(16), bytes(16), 1, finished=False, command="dedupe"))
    if there:
        fpdb.create(tmp_path / "all").close()
    fpdb.load(tmp_path / "all", tmp_path / "north")
    records = [{"id": "r", "text": "one two three four five"}]
    assert list(fpdb.dedupe(records, database=tmp_path / "all")) == records
    with pytest.raises(InputError, match="hasn't added them"):
        list(fpdb.dedupe(records, database=tmp_path / "north"))


def test_another_recipe_is_refused_by_name(paths: list[Path], tmp_path: Path) -> None:
    fpdb.create(tmp_path / "other", recipe="char-4").close()
    with pytest.raises(fpdb.RecipeMismatchError) as caught:
        fpdb.load(tmp_path / "c", [*paths, tmp_path / "other"])
    for word in (str(paths[0]), str(tmp_path / "other"), "tiny", "char-4"):
        assert word in str(caught.value)
    assert caught.value.hint
    assert "c" not in os.listdir(tmp_path)


@pytest.mark.usefixtures("checked_here")
def test_what_cant_stand_in_one_database_is_refused(paths: list[Path], tmp_path: Path) -> None:
    recipe = recipe_of(64)
    fpdb.create(tmp_path / "numbers", recipe=recipe, keys="integer").close()
    fpdb.create(tmp_path / "bits", recipe=recipe, similarity=None).close()
    fpdb.create(tmp_path / "nearer", recipe=recipe, k=2).close()
    fpdb.create(tmp_path / "looser", recipe=recipe, similarity=0.6).close()
    for name, words in (
        ("numbers", "keys=integer"),
        ("bits", "similarity=None"),
        ("looser", "similarity=0.8, .* with similarity=0.6"),
        ("nearer", "k=3, .* with k=2"),
    ):
        with pytest.raises(fpdb.RecipeMismatchError, match=words) as caught:
            fpdb.load(tmp_path / "c", [paths[0], tmp_path / name])
        assert caught.value.hint
        with pytest.raises(fpdb.RecipeMismatchError, match=words):
            fpdb.load(paths[0], tmp_path / name)
    assert len(documents_of(paths[0])) == 2


def test_bad_use_is_an_error_and_leaves_nothing(paths: list[Path], tmp_path: Path) -> None:
    one, new, file = paths[0], tmp_path / "c", tmp_path / "ready.tsv"
    file.write_text("key\tfingerprint\n")
    before = (one / "data.mdb").read_bytes()
    uses: list[tuple[type[fpdb.FpdbError], Any, Path, dict[str, Any]]] = [
        (InputError, [], new, {}),
        (InputError, one, one, {}),
        (InputError, paths[::-1], one, {}),
        (InputError, paths, new, {"keys": "text"}),
        (InputError, [one, file], new, {}),
        (InputError, [one, "-"], new, {}),
        (InputError, [one, one], new, {}),
        (fpdb.DatabaseExistsError, paths, one / "c", {}),
        (fpdb.DatabaseNotFoundError, [*paths, new / "none"], new, {}),
        (fpdb.DatabaseNotFoundError, [paths[1], new / "none"], one, {}),
        (InputError, paths, new, {"memory": 1}),
        (InputError, paths, new, {"capacity": 0}),
    ]
    for error, sources, path, options in uses:
        with pytest.raises(error) as caught:
            fpdb.load(path, sources, **options)
        assert caught.value.hint
        assert sorted(os.listdir(tmp_path)) == ["a", "b", "ready.tsv"]
    assert (one / "data.mdb").read_bytes() == before


def test_a_link_to_a_source_is_that_source(paths: list[Path], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(paths[0])
    with pytest.raises(InputError, match="the same database"):
        fpdb.load(tmp_path / "c", [paths[0], tmp_path / "link"])


@pytest.mark.usefixtures("checked_here")
def test_the_tables_suit_all_documents(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with fpdb.create(tmp_path / name, keys="integer", k=3, capacity=1000) as db:
            numbers = np.random.default_rng(ord(name)).integers(0, 1 << 64, 900, np.uint64)
            db.add_fingerprints([n + 900 * (name == "b") for n in range(900)], numbers)
    pair = [tmp_path / "a", tmp_path / "b"]
    fpdb.load(tmp_path / "c", pair)
    with fpdb.open(tmp_path / "c") as db:
        assert db.stats().capacity == 1800
        assert db.plan == fpdb.plans(64, 3, 1800, similarity=0.8)[0]
    fpdb.load(tmp_path / "d", pair, capacity=10**7)
    with fpdb.open(tmp_path / "d") as db:
        assert db.stats().capacity == 10**7
        assert db.plan == fpdb.plans(64, 3, 10**7, similarity=0.8)[0]


@pytest.mark.usefixtures("checked_here")
def test_no_secret_is_needed(tmp_path: Path) -> None:
    keyed = recipe_of(64).replace(hash=fpdb.Hash(secret=fpdb.Secret(b"0123456789abcdef")))
    for name in ("a", "b"):
        with fpdb.create(tmp_path / name, recipe=keyed) as db:
            db.add(name, "one two three four five")
    fpdb.load(tmp_path / "c", [tmp_path / "a", tmp_path / "b"])
    with fpdb.open(tmp_path / "c", recipe=keyed) as db:
        assert len(db.query("one two three four five")) == 2


@pytest.mark.parametrize("name", ["documents", "keys", "table-00"])
def test_damage_of_a_source_never_gets_into_the_new_one(
    paths: list[Path], tmp_path: Path, name: str
) -> None:
    with fpdb.open(paths[1]) as db, db._environment.write() as txn:
        with txn.cursor(name) as cursor:
            assert cursor.first()
            key, value = bytes(cursor.key()), bytearray(cursor.value())
        value[len(value) // 2] ^= 1
        txn.put(name, key, bytes(value))
    with pytest.raises(fpdb.FpdbError) as caught:
        fpdb.load(tmp_path / "c", paths)
    assert caught.value.hint
    assert "c" not in os.listdir(tmp_path)


def test_what_the_check_finds_is_an_error(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "_sketches", lambda source: 2)
    for path in paths:
        shutil.rmtree(path)
        with fpdb.create(path, recipe=recipe_of(64)) as db:
            db.add(path.name, "one two three four")
    with pytest.raises(fpdb.DamagedError, match="is damaged: counters"):
        fpdb.load(tmp_path / "c", paths)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_the_check_pins_no_snapshot_and_keeps_no_file_open(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(path: Path, deep: bool) -> Iterator[Problem]:
        links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        names = [os.readlink(link) for link in links if os.path.lexists(link)]
        assert not [name for name in names if name.endswith(".mdb")]
        return iter(())

    monkeypatch.setattr(rebuild, "check", check)
    assert fpdb.load(tmp_path / "c", paths).added == 3


@pytest.mark.full
@pytest.mark.parametrize("keys", ["text", "integer"])
def test_memory_doesnt_grow_with_the_documents(
    tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "check", lambda path, deep: iter(()))
    monkeypatch.setattr(rebuild, "BLOCK", 1 << 12)
    monkeypatch.setattr(catalog, "_BLOCK", 1 << 10)
    peaks = []
    for count in (100, 10_000, 30_000):  # the first time, other things are imported and kept
        for name, first in (("a", 0), ("b", count // 2)):
            with fpdb.build(tmp_path / f"{name}{count}", keys=keys, capacity=1000) as db:
                numbers = np.random.default_rng(first).integers(0, 1 << 64, count, np.uint64)
                names = range(first, first + count)
                db.add_fingerprints(
                    names if keys == "integer" else [f"k{n:09}" for n in names], numbers
                )
        pair = [tmp_path / f"{name}{count}" for name in "ab"]
        tracemalloc.start()
        fpdb.load(tmp_path / f"c{count}", pair, memory=1 << 20)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.3 * peaks[1] + 1_000_000
    assert peaks[2] < 4_000_000
