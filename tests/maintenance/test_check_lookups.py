"""A check notices what only lookups meet: wrong ways down a tree, and entries out of order."""

from pathlib import Path

import lmdb
import pytest
from damaged import tree_pages

import fpdb
from fpdb import Grams, Recipe
from fpdb.errors import DamagedError
from fpdb.storage.lmdb_file import BRANCH, PAGE_HEAD, parse_page
from fpdb.storage.open_checks import open_data
from fpdb.storage.seal import seal
from fpdb.storage.survey import Survey

TINY = Recipe("tiny", clean=(), segment="whitespace", grams=Grams(minimum=3))
PAGE = 4096
COUNT = 3000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    where = tmp_path / "db"
    with fpdb.create(where, recipe=TINY) as db:
        db.add_fingerprints([key(n) for n in range(COUNT)], range(0, COUNT << 40, 1 << 40))
    return where


def key(number: int) -> str:
    return f"page/{2 * number:06d}"


def change(path: Path, place: int, data: bytes) -> None:
    with (path / "data.mdb").open("r+b") as file:
        file.seek(place)
        file.write(data)
    seal(path)  # else it is a copy, and verified


def wrong_way(path: Path) -> int:
    """Let a branch lead one id, which it names, to the leaf before its own."""
    data = (path / "data.mdb").read_bytes()
    for number, kind in tree_pages(path).items():
        names = [node.key for node in parse_page(data[number * PAGE :][:PAGE]).nodes]
        if kind == BRANCH and len(names) > 5:
            place = data.index(names[5], number * PAGE)
            change(path, place + len(names[5]) - 1, bytes([names[5][-1] + 1]))
            return int.from_bytes(names[5])
    raise AssertionError("no branch of the documents")


@pytest.mark.process
def test_a_wrong_way_down_a_tree(path: Path) -> None:
    lost = wrong_way(path)
    with fpdb.open(path, readonly=True) as db:
        with pytest.raises(DamagedError, match=f"document {lost} isn't there"):
            db.get(key(lost))
        [problem] = db.check()  # an iteration of the records doesn't meet it
        assert problem == ("documents", f"1 keys aren't found, first {lost:016x}")
    assert problem in list(fpdb.check(path, deep=True))


def test_entries_out_of_order(path: Path) -> None:
    with Survey(open_data(path)) as survey:
        leaf = list(dict.fromkeys(entry.page for entry in survey.entries("documents")))[3]
    with (path / "data.mdb").open("rb") as file:
        file.seek(leaf * PAGE + PAGE_HEAD.size + 20)
        one, other = file.read(2), file.read(2)
    change(path, leaf * PAGE + PAGE_HEAD.size + 20, other + one)
    with fpdb.open(path, readonly=True) as db:
        whats = [problem.what for problem in db.check() if problem.where == "documents"]
    assert any("1 keys aren't in order" in what for what in whats)


def test_a_tree_of_another_kind_or_length(path: Path) -> None:
    data = (path / "data.mdb").read_bytes()
    with Survey(open_data(path)) as survey:
        short = survey.trees["short"]
        keys = survey.trees["keys"]
    assert short.entries == 0
    described = keys.entries.to_bytes(8, "little") + keys.root.to_bytes(8, "little")
    at = data.rindex(described)
    change(path, at, (keys.entries + 1).to_bytes(8, "little"))
    with fpdb.open(path, readonly=True) as db:
        assert list(db.check()) == [
            ("keys", f"{keys.entries} entries, expected {keys.entries + 1}")
        ]
    (path / "data.mdb").write_bytes(data)
    with lmdb.open(str(path), lib_version=0, max_dbs=80) as raw, raw.begin(write=True) as txn:
        txn.drop(raw.open_db(b"short", txn=txn))
    with lmdb.open(str(path), lib_version=0, max_dbs=80) as raw, raw.begin(write=True) as txn:
        raw.open_db(b"short", txn=txn, dupsort=True)
    seal(path)
    with fpdb.open(path, readonly=True) as db:
        assert ("short", "its entries are kept as dupsort, expected none") in list(db.check())
