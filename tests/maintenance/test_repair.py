"""A repair brings back what is intact, names what is lost, and invents nothing."""

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damaged import tree_pages
from tiers import examples

import fpdb
from fpdb import Document, Grams, Recipe
from fpdb.errors import (
    DamagedError,
    DatabaseExistsError,
    DatabaseNotFoundError,
    StorageError,
)
from fpdb.maintenance import repair as maintenance_repair
from fpdb.models import Problem
from fpdb.storage.format import unpack_record
from fpdb.storage.lmdb_file import BRANCH
from fpdb.storage.open_checks import open_data
from fpdb.storage.survey import Survey

pytestmark = pytest.mark.slow("its cases damage and repair databases, 10 s together")

TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
PAGE = 4096
Contents = dict[Any, tuple[Any, ...]]


def named(number: int, keys: str) -> Any:
    return number * 3 if keys == "integer" else f"page/{number:05d}"


def filled(path: Path, keys: str, bits: int = 64, bare: int = 1200, recipe: Recipe = TINY) -> Path:
    """Make a database with a past: loaded, added, replaced, deleted, with big and short ones."""
    dice = random.Random(5)
    with fpdb.create(path, recipe=recipe.with_bits(bits), keys=keys, k=2) as db:
        numbers = [dice.getrandbits(bits) for _ in range(bare)]
        numbers[5:9] = [numbers[4]] * 4
        db.add_fingerprints([named(n, keys) for n in range(bare)], numbers)
        for turn in range(3):
            chosen = dice.sample(range(bare, bare + 300), 150)
            list(db.add_many(document(n, keys, turn) for n in chosen))
        db.delete_many([named(n, keys) for n in range(bare - 50, bare + 60, 2)])
    return path


def document(number: int, keys: str, turn: int) -> Document:
    text = "short" if number % 13 == 0 else f"one two three four {number} {turn}"
    meta: Any = {"n": number, "turn": turn}
    if number % 50 == 0:
        meta["big"] = "ab" * random.Random(number).choice([1500, 4000])
    return Document(named(number, keys), text, meta if number % 3 else None)


def contents(path: Path) -> Contents:
    with fpdb.open(path, readonly=True) as db, db._environment.read() as txn:
        found = {}
        for each in db.scan():
            stored = db._catalog.find(txn, each.key)
            assert stored
            found[each.key] = stored[2:]
        return found


def repaired(path: Path, **options: Any) -> tuple[fpdb.models.Repaired, Contents]:
    """Repair; the damaged one stays as it is, and the new one is sound."""
    before = files(path)
    new = path.parent / "new"
    shutil.rmtree(new, ignore_errors=True)
    result = fpdb.repair(path, new, **options)
    assert files(path) == before
    assert result.path == new
    with fpdb.open(new, readonly=True) as db:
        assert list(db.check()) == []
        assert len(db) == result.documents
    return result, contents(new)


def files(path: Path) -> dict[str, tuple[bytes, int]]:
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in sorted(path.iterdir())
    }


def overwrite(path: Path, place: int, data: bytes) -> None:
    with (path / "data.mdb").open("r+b") as file:
        file.seek(place)
        file.write(data)


def lose(path: Path, *pages: int) -> None:
    for page in pages:
        overwrite(path, page * PAGE, bytes(PAGE))


def survey_of(path: Path) -> Survey:
    return Survey(open_data(path))


def leaves(path: Path, name: str) -> list[int]:
    with survey_of(path) as survey:
        return list(dict.fromkeys(entry.page for entry in survey.entries(name)))


@pytest.fixture(params=["text", "integer"])
def keys(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path, keys: str) -> Path:
    return filled(tmp_path / "db", keys)


@pytest.mark.process
@pytest.mark.parametrize("bits", [pytest.param(32, marks=pytest.mark.full), 128])
def test_a_sound_database_gives_an_equal_one(tmp_path: Path, keys: str, bits: int) -> None:
    path = filled(tmp_path / "db", keys, bits)
    result, found = repaired(path)
    assert found == contents(path)
    assert (result.missing, result.lost, result.problems) == (0, (), ())
    assert list(fpdb.check(result.path, deep=True)) == []
    with fpdb.open(path) as old, fpdb.open(result.path) as new:
        assert (old.plan, old.key_type, old.recipe) == (new.plan, new.key_type, new.recipe)
        assert old.stats().short == new.stats().short
        assert old.stats().uuid != new.stats().uuid
        for each in [*old.scan()][::50]:
            assert old.get(each.key) == new.get(each.key)
        assert new.add("new" if keys == "text" else 1, "one two three four").status == "added"
        assert list(new.check()) == []


def test_where_the_root_is_lost_the_leaves_are_read(tmp_path: Path) -> None:
    path = filled(tmp_path / "db", "text")
    with survey_of(path) as survey:
        root = survey.trees["documents"].root
    assert tree_pages(path)[root] == BRANCH
    expected = contents(path)
    lose(path, root)
    result, found = repaired(path)
    assert found == expected  # and nothing that was deleted or replaced
    assert (result.missing, result.lost) == (0, ())
    assert Problem("documents", f"page {root} is lost") in result.problems


@pytest.mark.parametrize("further", [0, 20])
def test_the_leaves_of_an_only_commit_are_read_without_any_root(
    tmp_path: Path, keys: str, further: int
) -> None:
    """The roots are on pages that are cut off, and the state before has no document."""
    path = tmp_path / "db"
    with fpdb.create(path, recipe=TINY, keys=keys, k=2) as db:
        list(db.add_many(document(n, keys, 0) for n in range(1, 1000)))
    expected = contents(path)
    with survey_of(path) as survey:
        last_page = survey.trees["names"].root - further
        last_pages = [
            max([entry.page, *survey.file.run(node)])
            for entry in survey.entries("documents")
            for node in survey.file.nodes(entry.page)
            if node.key == entry.key
        ]
    os.truncate(path / "data.mdb", last_page * PAGE)
    result, found = repaired(path)
    assert all(value == expected[key] or bare(value, expected[key]) for key, value in found.items())
    intact = sum(found.get(key) == value for key, value in expected.items())
    assert intact == sum(page < last_page for page in last_pages)
    assert found.keys() | set(result.lost) == expected.keys()
    assert result.missing is None
    assert any("the last commit" in problem.what for problem in result.problems)
    assert any("read page by page" in problem.what for problem in result.problems)


def test_without_the_page_of_names_the_last_commit_is_undone(path: Path, keys: str) -> None:
    expected = contents(path)
    with fpdb.open(path) as db:
        db.add(named(9000, keys), "one two three four five six")
    with survey_of(path) as survey:
        root = survey.trees["names"].root
    lose(path, root)
    result, found = repaired(path)
    assert found == expected
    assert any("the last commit" in problem.what for problem in result.problems)


def test_a_lost_leaf_costs_what_stood_on_it_and_its_keys_are_named(tmp_path: Path) -> None:
    path = filled(tmp_path / "db", "text")
    expected = contents(path)
    leaf = leaves(path, "documents")[7]
    with survey_of(path) as survey:
        records = [entry for entry in survey.entries("documents") if entry.page == leaf]
    lose(path, leaf)
    result, found = repaired(path)
    assert result.missing == len(records) == len(result.lost)
    assert found == {key: expected[key] for key in expected.keys() - set(result.lost)}


def test_a_lost_page_of_ids_costs_the_times_of_adding_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = filled(tmp_path / "db", "integer")
    later = int(time.time()) + 100
    monkeypatch.setattr(maintenance_repair, "now", lambda: later)
    expected = contents(path)
    with survey_of(path) as survey:
        page = survey.file.nodes(leaves(path, "ids")[0])[1].number
    lose(path, page)
    result, found = repaired(path)
    assert found.keys() == expected.keys()
    changed = [key for key in found if found[key] != expected[key]]
    assert changed
    assert all(found[key][0] == expected[key][0] for key in changed)
    assert (result.missing, result.lost) == (0, ())
    assert any(f"{len(changed)} documents have lost their time" in p.what for p in result.problems)


def bare(value: tuple[Any, ...], true: tuple[Any, ...]) -> bool:
    """Whether nothing but the fingerprint is left of a document."""
    fingerprint, _, digest, meta, characters, *_ = value
    return fingerprint == true[0] and not (digest or meta or characters)


def test_lost_records_of_integer_keys_leave_fingerprints(tmp_path: Path) -> None:
    path = filled(tmp_path / "db", "integer")
    expected = contents(path)
    leaf = leaves(path, "documents")[1]
    with survey_of(path) as survey:
        on_leaf = [entry for entry in survey.entries("documents") if entry.page == leaf]
    lose(path, leaf)
    result, found = repaired(path)
    changed = {key for key, value in found.items() if value != expected[key]}
    assert changed
    assert all(bare(found[key], expected[key]) for key in changed)
    # A short text has no fingerprint, and so no row of the first table.
    assert {key for key in expected if key not in found} == set(result.lost)
    assert all(expected[key][0] is None for key in result.lost)
    assert len(changed) + len(result.lost) == len(on_leaf)
    [problem] = [p for p in result.problems if p.what.endswith("are fingerprints")]
    assert problem.what.startswith(f"{len(on_leaf)} records are lost")


def test_a_changed_byte_in_a_record_costs_one_document(tmp_path: Path) -> None:
    path = filled(tmp_path / "db", "text")
    expected = contents(path)
    key = sorted(expected)[-60]
    assert key in expected
    data = (path / "data.mdb").read_bytes()
    place = data.rindex(bytes([len(key)]) + key.encode())  # as a record has it
    overwrite(path, place + 1, b"PAGE")
    result, found = repaired(path)
    lost = expected.keys() - found.keys()
    assert lost == set(result.lost)
    assert len(lost) <= 1
    assert all(found[other] == expected[other] for other in found)


def test_pages_in_each_others_place_are_lost(path: Path, keys: str) -> None:
    expected = contents(path)
    one, other = leaves(path, "documents")[2], leaves(path, "documents")[5]
    data = (path / "data.mdb").read_bytes()
    overwrite(path, one * PAGE, data[other * PAGE :][:PAGE])
    overwrite(path, other * PAGE, data[one * PAGE :][:PAGE])
    result, found = repaired(path)
    assert expected.keys() - found.keys() == set(result.lost)
    changed = {key for key, value in found.items() if value != expected[key]}
    assert all(bare(found[key], expected[key]) for key in changed)
    assert bool(changed) == (keys == "integer")
    assert result.problems


@pytest.mark.parametrize("place", [3, 10, 12, 14, 16], ids=str)
def test_a_damaged_head_of_a_leaf_costs_its_documents(tmp_path: Path, place: int) -> None:
    path = filled(tmp_path / "db", "text")
    expected = contents(path)
    leaf = leaves(path, "documents")[3]
    overwrite(path, leaf * PAGE + place, b"\x55")
    result, found = repaired(path)
    assert 0 < len(result.lost) < 100
    assert found == {key: expected[key] for key in expected.keys() - set(result.lost)}
    assert any(f"page {leaf} is" in problem.what for problem in result.problems)


def test_what_was_deleted_or_replaced_stays_away_whatever_is_lost(path: Path, keys: str) -> None:
    """Unless the last commit deleted it, and is reported as lost."""
    expected = contents(path)
    deleted_last = {named(number, keys) for number in range(1150, 1260, 2)}
    data = (path / "data.mdb").read_bytes()
    dice = random.Random(3)
    pages = [page for page in range(2, len(data) // PAGE) if page not in headers(path)]
    for _ in range(examples(4)):
        lose(path, *dice.sample(pages, dice.choice([1, 3, 20])))
        result, found = repaired(path)
        undone = any("the last commit" in problem.what for problem in result.problems)
        for key, value in found.items():
            if undone and key in deleted_last:
                continue
            undated = value[:1] + value[2:] == expected[key][:1] + expected[key][2:]
            assert undated or bare(value, expected[key])
        assert found == expected or result.problems
        (path / "data.mdb").write_bytes(data)


def headers(path: Path) -> list[int]:
    """The pages that have the header, the old ones among them."""
    data = (path / "data.mdb").read_bytes()
    pages = range(2, len(data) // PAGE)
    return [page for page in pages if b"recipe_id" in data[page * PAGE :][:PAGE]]


def newest_meta(path: Path) -> int:
    data = (path / "data.mdb").read_bytes()
    numbers = [int.from_bytes(data[slot * PAGE + 144 :][:8], "little") for slot in (0, 1)]
    return numbers.index(max(numbers))


@pytest.mark.process
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path, meta: overwrite(path, meta * PAGE + 16, b"\0\0\0\0"),
        lambda path, meta: overwrite(path, (1 - meta) * PAGE + 150, b"\1"),
    ],
    ids=["no magic", "the other has a higher number"],
)
def test_the_newest_state_is_found_by_its_counters(
    path: Path, spoil: Callable[[Path, int], None]
) -> None:
    expected = contents(path)
    spoil(path, newest_meta(path))
    assert list(fpdb.check(path))  # even where LMDB takes the older state without a word
    result, found = repaired(path)
    assert found == expected
    assert any(problem.where == "data.mdb" for problem in result.problems)


def test_without_the_newest_meta_page_the_last_commit_is_undone(path: Path, keys: str) -> None:
    expected = contents(path)
    with fpdb.open(path) as db:
        db.add(named(9000, keys), "one two three four five six")
    lose(path, newest_meta(path))
    result, found = repaired(path)
    assert found == expected
    assert any("the last commit" in problem.what for problem in result.problems)


def test_without_both_meta_pages_nothing_can_be_told_from_what_was_deleted(
    path: Path, tmp_path: Path
) -> None:
    lose(path, 0, 1)
    with pytest.raises(DamagedError, match="both meta pages"):
        fpdb.repair(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_lost_header(path: Path, tmp_path: Path) -> None:
    lose(path, *headers(path))
    with pytest.raises(DamagedError, match="has lost its header") as caught:
        fpdb.repair(path, tmp_path / "new")
    assert caught.value.hint == "restore a backup"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("further", [100, pytest.param(2 * PAGE, marks=pytest.mark.full)])
def test_a_truncated_file_loses_what_was_on_the_missing_pages(
    tmp_path: Path, keys: str, further: int
) -> None:
    path = filled(tmp_path / "db", keys, bare=3000)
    expected = contents(path)
    intact = set()
    with survey_of(path) as survey:
        last_pages = [
            (max([leaf, *survey.file.run(node)]), node)
            for leaf in {entry.page for entry in survey.entries("documents")}
            for node in survey.file.nodes(leaf)
        ]
        middle = sorted(page for page, _ in last_pages)[len(last_pages) // 2]
        length = (max(survey.trees["documents"].root, middle) + 1) * PAGE + further
        for page, node in last_pages:
            if (page + 1) * PAGE <= length:
                number = int.from_bytes(node.key)
                intact.add(unpack_record(survey.file.value(node) or b"", number, 64).key)
    assert intact
    os.truncate(path / "data.mdb", length)
    with pytest.raises(DamagedError, match="is cut short"):
        fpdb.open(path)
    result, found = repaired(path)
    assert all(found[key] == expected[key] for key in intact)
    assert all(value == expected[key] or bare(value, expected[key]) for key, value in found.items())
    assert result.problems


def test_a_keyed_database_is_repaired_without_its_secret(tmp_path: Path) -> None:
    keyed = TINY.replace(hash=fpdb.Hash(secret=fpdb.Secret(b"0123456789abcdef")))
    path = filled(tmp_path / "db", "text", recipe=keyed)
    before = files(path)
    result = fpdb.repair(path, tmp_path / "new")
    assert files(path) == before
    assert result.problems == ()
    with fpdb.open(tmp_path / "new", recipe=keyed) as db:
        assert list(db.check()) == []


def test_what_stands_in_the_way(path: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(DatabaseExistsError):
        fpdb.repair(path, tmp_path / "taken")
    with pytest.raises(DatabaseExistsError):
        fpdb.repair(path, path)
    with pytest.raises(DatabaseNotFoundError):
        fpdb.repair(tmp_path / "nowhere", tmp_path / "new")
    with pytest.raises(fpdb.InputError):
        fpdb.repair(path, tmp_path / "new", memory=1)


def test_a_database_that_is_written_to_meanwhile(
    path: Path, tmp_path: Path, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = Survey.entries

    def late(self: Survey, name: str) -> Any:
        if name == "documents":
            with fpdb.open(path) as db:
                db.add(named(1, keys), "one two three four")
        return entries(self, name)

    monkeypatch.setattr(Survey, "entries", late)
    with pytest.raises(StorageError, match="was written to"):
        fpdb.repair(path, tmp_path / "new")
    assert not (tmp_path / "new").exists()
