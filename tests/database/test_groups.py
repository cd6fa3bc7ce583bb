"""The groups that a database keeps: for one document as for many, of keepers that go, of copies."""

import io
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from similar import WORDS, decided, jaccard, near_the_limit
from tiers import examples

import fpdb
from fpdb import Database, Document
from fpdb.arrays import Column
from fpdb.documents import groups, lookup
from fpdb.documents.catalog import Catalog
from fpdb.documents.groups import Grouping
from fpdb.documents.lookup import Search
from fpdb.models import Group, Key, Match
from fpdb.storage import ReadTransaction
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables import bands
from fpdb.tables.groups import GroupTables


def defined(texts: dict[Key, str], bands: fpdb.Bands, *, known: bool = False) -> dict[Key, Key]:
    """Return the keepers of documents that are added one after the other: the definition."""
    kept: dict[Key, Key] = {}
    for key, text in texts.items():
        nearest, keeper = 0.0, key
        for other in (own for own in kept if kept[own] == own):
            near = decided(text, texts[other], bands, known=known)
            if near and near[0] > nearest:
                nearest, keeper = near[0], other
        kept[key] = keeper
    return kept


def seen(database: Database) -> dict[Key, Key]:
    """Return the keepers of all documents, which `group` has as well."""
    assert not list(database.check())
    kept = {document.key: document.group for document in database.scan()}
    keys = defaultdict[Key, list[Key]](list)
    for key, keeper in kept.items():
        keys[keeper].append(key)
    for keeper, own in keys.items():
        found = database.group(keeper)
        assert found == database.group(own[0]) == database.group(own[-1])
        assert (found.keeper, {*found.members, keeper}) == (keeper, {*own})
        ids = [database[member].id for member in found.members]
        assert ids == sorted(ids)
    return kept


def versions(share: float, count: int, seed: int = 1) -> list[str]:
    """Return texts of which each is about so similar to the one before."""
    dice = random.Random(seed)
    words = dice.choices(WORDS, k=400)
    texts = [" ".join(words)]
    while len(texts) < count:
        # Most of the shingles with a word that is replaced are three.
        words[dice.randrange(len(words))] = dice.choice(WORDS)
        if jaccard(texts[-1], " ".join(words)) <= share:
            texts.append(" ".join(words))
    return texts


@given(
    seed=st.integers(0, 2**32 - 1),
    together=st.sampled_from([1, 7, 1000]),
    known=st.booleans(),
    keys=st.sampled_from(["text", "integer"]),
)
@settings(max_examples=examples(30), deadline=None)
def test_groups_are_those_of_the_definition(
    tmp_path_factory: pytest.TempPathFactory, seed: int, together: int, known: bool, keys: str
) -> None:
    name = "{:03}".format if keys == "text" else int
    texts = {name(place): text for place, text in enumerate(near_the_limit(seed, 60))}
    path = tmp_path_factory.mktemp("groups") / "db"
    with fpdb.create(path, keys=keys, groups=True) as db:
        documents = (Document(key, text) for key, text in texts.items())
        at_hand: dict[str, Any] = {"texts": texts} if known else {}
        added = list(db.add_many(documents, transaction=together, **at_hand))
        expected = defined(texts, db.plan.bands, known=known)
        assert {own.key: own.group for own in added} == expected == seen(db)


def test_no_chain_is_followed(tmp_path: Path) -> None:
    texts = dict(enumerate(versions(0.85, 9)))
    with fpdb.create(tmp_path / "db", keys="integer", groups=True) as db:
        list(db.add_many(Document(key, text) for key, text in texts.items()))
        kept = seen(db)
        assert len(set(kept.values())) > 2
        assert all(jaccard(texts[key], texts[keeper]) > 0.75 for key, keeper in kept.items())
        [chain] = db.clusters(chains=True)
        assert sorted(chain.keys) == sorted(texts)


def test_what_is_not_added_has_the_group_of_what_it_resembles(tmp_path: Path) -> None:
    first, second, third, *_ = versions(0.85, 9)
    with fpdb.create(tmp_path / "db", groups=True) as db:
        assert db.add("first", first).group == "first"
        assert db.add("first", first) == fpdb.Added(
            "first", 0, "unchanged", fpdb.Matches(), group="first"
        )
        assert db.add("second", second).group == "first"
        # It resembles the member alone.
        skipped = db.add("third", third, skip_duplicates=True)
        assert [match.key for match in skipped.matches] == ["second"]
        assert (skipped.status, skipped.group) == ("duplicate", "first")
        assert db.add("third", third).group == "third"
        assert db.group("second") == Group("first", ("second",))


def test_the_oldest_member_follows_a_keeper_and_the_others_are_checked_in_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "CHECKED", 2)
    dice, words = random.Random(3), WORDS[:400]
    texts = {"keeper": " ".join(words)}
    for name in ("oldest", "a", "b", "c", "d"):  # .82 to the keeper, less to each other
        changed = list(words)
        for place in dice.sample(range(0, 396, 3), 14):
            changed[place] = f"{name}{place}"
        texts[name] = " ".join(changed)
    texts["d"] = texts["oldest"] + " more"
    with fpdb.create(tmp_path / "db", groups=True) as db:
        for key, text in texts.items():
            assert db.add(key, text).group == "keeper"
        assert db.delete("keeper")
        group = Group("oldest", ("a", "b", "c", "d"))
        assert db.group("oldest") == db.group("d") == group
        assert set(seen(db).values()) == {"oldest"}
        db.delete("nothing")  # a write of any kind checks two
        assert db.group("oldest") == Group("oldest", ("c", "d"))
        assert seen(db) | {"c": "c"} == {key: key for key in "abc"} | {
            "oldest": "oldest",
            "d": "oldest",
        }
        assert db.add("e", texts["c"]).group == "c"  # those two were checked before
        assert db.group("d") == Group("oldest", ("d",))
        assert seen(db)["c"] == "c"


@pytest.mark.parametrize("order", ["by age", "by age, the newest first", "mixed"])
def test_a_group_has_one_heir_of_many_that_are_deleted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    dice, asked = random.Random(order), Counter[int]()

    def members_of(tables: GroupTables, txn: ReadTransaction, keeper: int) -> Column:
        asked[keeper] += 1
        return read(tables, txn, keeper)

    read = GroupTables.members_of
    texts = near_the_limit(7, 60) + ["not found"] * 9
    with fpdb.create(tmp_path / "db", keys="integer", groups=True) as db:
        list(db.add_many(Document(key, text) for key, text in enumerate(texts)))
        kept = seen(db)
        going = sorted(dice.sample(sorted(kept), 40), reverse=order.endswith("first"))
        going += [key for key in range(60, 69) if key not in going]  # a whole group
        if order == "mixed":
            dice.shuffle(going)
        heirs: dict[Key, Key] = {}
        for key in sorted(kept.keys() - {*going}):
            heirs.setdefault(kept[key], key)
        monkeypatch.setattr(GroupTables, "members_of", members_of)
        assert db.delete_many(going) == len(going)
        assert asked.keys() == {key for key in going if kept[key] == key}
        assert set(asked.values()) == {1}
        monkeypatch.undo()
        assert seen(db) == {key: heirs[kept[key]] for key in kept.keys() - {*going}}


def test_a_replaced_text_is_decided_anew(tmp_path: Path) -> None:
    text, near, *_ = versions(0.85, 2)
    other = " ".join(WORDS[:300])
    with fpdb.create(tmp_path / "db", groups=True) as db:
        for key, own in {"a": text, "b": near, "c": other}.items():
            db.add(key, own)
        assert db.add("b", near, "other metadata").group == "a"
        assert db.add("a", other).group == "c"  # not that of what it was
        assert seen(db) == {"a": "c", "b": "b", "c": "c"}
        assert db.add("c", near).group == "b"
        assert seen(db) == {"a": "a", "b": "b", "c": "b"}
        db.add_fingerprints(["b"], [5])  # which has no text, and is alone
        assert seen(db) == {"a": "a", "b": "b", "c": "c"}


def test_short_texts_and_bare_fingerprints(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db", groups=True) as db:
        for key, text in {"a": "Not found", "b": "Not found", "c": "", "d": ""}.items():
            db.add(key, text)
        db.add_fingerprints(["e", "f"], [1, 1])
        list(db.add_many([Document("g", fingerprint=1)]))
        assert seen(db) == {key: key for key in "acdefg"} | {"b": "a"}


def test_a_database_of_bits_has_no_groups(tmp_path: Path) -> None:
    with pytest.raises(fpdb.InputError, match="groups in a database of bits"):
        fpdb.create(tmp_path / "db", similarity=None, groups=True)
    assert not (tmp_path / "db").exists()
    with fpdb.create(tmp_path / "db", similarity=None) as db:
        with pytest.raises(fpdb.InputError, match="groups in a database of bits"):
            db.compact(tmp_path / "new", groups=True)
        assert db.add("a", "Not found").group is None
        assert db["a"].group is None
        with pytest.raises(fpdb.InputError, match="keeps no groups"):
            db.group("a")
    with fpdb.create(tmp_path / "grouped", groups=True) as db:
        with pytest.raises(fpdb.DocumentNotFoundError, match="'a'"):
            db.group("a")
        assert db.stats().groups


def test_documents_alone_cost_nothing_and_a_member_at_most_25_bytes(tmp_path: Path) -> None:
    texts = [" ".join(random.Random(place).choices(WORDS, k=60)) for place in range(3000)]
    sizes = {}
    for name, of_all in {"alone": texts, "members": texts[:200] * 15}.items():
        for grouped in (False, True):
            with fpdb.create(tmp_path / f"{name}{grouped}", groups=grouped) as db:
                list(db.add_many(Document(f"{n}", text) for n, text in enumerate(of_all)))
                sizes[name, grouped] = db.stats().bytes_used
    assert sizes["alone", True] == sizes["alone", False]
    assert sizes["members", True] - sizes["members", False] <= 25 * len(texts)


@pytest.mark.process
@pytest.mark.parametrize("keys", ["text", "integer"])
def test_copies_keep_groups_and_other_databases_decide_them_anew(tmp_path: Path, keys: str) -> None:
    texts = {(str(n) if keys == "text" else n): t for n, t in enumerate(near_the_limit(5, 90))}
    first = next(iter(texts))
    documents = [Document(key, text) for key, text in texts.items()]
    old, plain = tmp_path / "db", tmp_path / "plain"
    with fpdb.create(plain, keys=keys) as db:
        list(db.add_many(documents))
        db.delete(first)
    with fpdb.create(old, keys=keys, groups=True) as db:
        list(db.add_many(documents))
        db.delete(first)  # so that some are unchecked, and not as if they were added anew
        kept, file = seen(db), io.BytesIO()
        db.dump(file)
        db.compact(tmp_path / "copied")
        db.compact(tmp_path / "tighter", similarity=0.9)
        db.backup(tmp_path / "backup")
    with fpdb.open(plain) as db:
        db.compact(tmp_path / "grouped", groups=True)
    fpdb.load(tmp_path / "loaded", [str(plain), str(old)])
    fpdb.load(tmp_path / "dumped", io.BytesIO(file.getvalue()))
    with fpdb.create(tmp_path / "filled", keys=keys, groups=True):
        fpdb.load(tmp_path / "filled", [str(plain)])
    fpdb.repair(old, tmp_path / "repaired")
    for name in ("copied", "backup"):
        with fpdb.open(tmp_path / name) as db:
            assert seen(db) == kept
    del texts[first]
    for name in ("grouped", "loaded", "dumped", "filled", "repaired"):
        with fpdb.open(tmp_path / name) as db:
            assert seen(db) == defined(texts, db.plan.bands), name
    with fpdb.open(tmp_path / "tighter") as db:
        assert len(set(seen(db).values())) > len(set(kept.values()))


RACER = """
db = fpdb.open(argv[0])
for line in iter(sys.stdin.readline, "\\n"):
    number, text = line.rstrip("\\n").split("\\t")
    added = db.add(f"{argv[1]}-{number}", text)
    print(added.key, added.group, sep="\\t", flush=True)
print(flush=True)
"""


@pytest.mark.process
def test_four_processes_decide_as_one_does(
    tmp_path: Path, start: Callable[..., Popen[str]]
) -> None:
    path, texts = tmp_path / "db", near_the_limit(8, 40)
    fpdb.create(path, groups=True).close()
    racers = [start(RACER, path, f"{number}") for number in range(4)]
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("".join(f"{number}\t{text}\n" for number, text in enumerate(texts)))
        racer.stdin.write("\n")
        racer.stdin.flush()
    said: dict[str, str] = {}
    for racer in racers:
        assert racer.stdout
        said.update(line.split() for line in iter(racer.stdout.readline, "\n"))
    with fpdb.open(path) as db:
        written = sorted(db.scan(), key=lambda document: document.id or 0)
        stored = {document.key: texts[int(str(document.key)[2:])] for document in written}
        assert len(said) == len(stored) == 4 * len(texts)
        assert said == seen(db) == defined(stored, db.plan.bands)


def change_a_row(db: Database) -> None:
    tables = db._index.groups
    with db._environment.write() as txn:
        tables.change(txn, [((0, 1), False), ((2, 1), True)])


def lose_a_keeper(db: Database) -> None:
    with db._environment.write() as txn:
        stored = db._catalog.record(txn, 0)
        kept = Block.of([stored], 64)
        kept.further["keeper"] = [(2).to_bytes(8)]
        db._catalog.put_records(txn, kept)
        db._index.groups.change(txn, [((2, 0), True)])


def doubt_a_member(db: Database) -> None:
    table = db._index.groups.unchecked
    with db._environment.write() as txn:
        numbers = [np.array([number], np.uint64) for number in (2, 0)]
        table.splice(txn, numbers, table.empty())


DAMAGE = {
    change_a_row: ("groups", "some of its rows aren't those of the documents"),
    lose_a_keeper: ("groups", "the document 0 keeps no group"),
    doubt_a_member: ("unchecked", "it has 1 rows, expected 0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_check_sees_groups_that_are_not_those_of_the_documents(
    tmp_path: Path, damage: Callable[[Database], None]
) -> None:
    with fpdb.create(tmp_path / "db", groups=True) as db:
        for key, text in {"a": WORDS, "b": WORDS, "c": WORDS[::-1]}.items():
            db.add(key, " ".join(text[:300]))
        assert seen(db) == {"a": "a", "b": "a", "c": "c"}
        damage(db)
        assert DAMAGE[damage] in [tuple(problem) for problem in db.check()]


@pytest.mark.parametrize("together", [1, 20, 1000])
def test_the_keeper_of_a_crowd_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    for name in ("MOST_OF_A_BAND", "MOST_COMPARED"):
        monkeypatch.setattr(bands, name, 20)
    dice, words = random.Random(4), WORDS[:150]
    texts = {"keeper": " ".join(["other", *words[1:70], "other", *words[71:]])}
    for number in range(100):  # which resemble each other more than the keeper
        changed = list(words)
        changed[dice.randrange(len(words))] = f"other{number}"
        texts[f"{number}"] = " ".join(changed)
    with fpdb.create(tmp_path / "db", groups=True) as db:
        documents = (Document(key, text) for key, text in texts.items())
        assert {it.group for it in db.add_many(documents, transaction=together)} == {"keeper"}
        assert set(seen(db).values()) == {"keeper"}


@pytest.mark.parametrize("near", [False, True])
def test_members_are_no_candidates_that_crowd_a_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, near: bool
) -> None:
    words, alone, find = WORDS[:150], list[Stored](), Grouping.find

    def counted(grouping: Grouping, question: Stored, search: Search) -> Sequence[Match]:
        alone.append(question)
        return find(grouping, question, search)

    with fpdb.create(tmp_path / "db", groups=True) as db:
        for name in ("MOST_OF_A_BAND", "MOST_COMPARED"):
            monkeypatch.setattr(bands, name, 25 * db.plan.bands.count)
        monkeypatch.setattr(Grouping, "find", counted)
        copies = [" ".join([*words, f"more{number}"] if near else words) for number in range(300)]
        documents = (Document(f"{number}", text) for number, text in enumerate(copies))
        added = list(db.add_many(documents, transaction=20))
        assert {it.group for it in added} == {"0"}
        assert not alone


def test_equal_short_texts_are_found_once_for_all_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, read = list[bytes](), Catalog.short_ids

    def short_ids(catalog: Catalog, txn: ReadTransaction, digest: bytes) -> Iterator[int]:
        asked.append(digest)
        return read(catalog, txn, digest)

    monkeypatch.setattr(Catalog, "short_ids", short_ids)
    monkeypatch.setattr(lookup, "DOCUMENTS", 40)
    with fpdb.create(tmp_path / "db", groups=True) as db:
        documents = (Document(f"{number}", "Not found") for number in range(80))
        added = list(db.add_many(documents, transaction=20))
        assert {it.group for it in added} == {"0"}
        assert len(asked) == 4
        monkeypatch.undo()
        assert set(seen(db).values()) == {"0"}
