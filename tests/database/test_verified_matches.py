"""Verified matches, against brute force over what is stored, and over the texts themselves."""

import itertools
import random
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import Database, Document
from fpdb.documents import lookup
from fpdb.errors import InputError, PlanError
from fpdb.storage import Environment
from fpdb.storage.format import Counters, Stored, pack_record, unpack_record
from fpdb.tables.plan import home_plan

WEB = fpdb.recipe("web")
WORDS = [f"word{number}" for number in range(400)]


def changed(dice: random.Random, words: list[str], edits: int) -> list[str]:
    other = list(words)
    for _ in range(edits):
        other[dice.randrange(len(other))] = dice.choice(WORDS)
    return other


def families(dice: random.Random, count: int, length: int = 60) -> list[str]:
    """Texts of which each resembles some others more or less."""
    found: list[str] = []
    while len(found) < count:
        words = dice.choices(WORDS, k=length)
        edits = dice.choices([0, 1, 2, 4, 8, 20], k=dice.randint(1, 5))
        found += [" ".join(changed(dice, words, count)) for count in edits]
    return found[:count]


@cache
def estimated(first: bytes | None, second: bytes | None) -> float | None:
    """The estimate, counted half byte by half byte."""
    if not first or not second:
        return None
    apart = sum(a != b for a, b in zip(first.hex(), second.hex(), strict=True))
    return max(0.0, 1 - apart / 256 * 16 / 15)


class Model(dict[Any, tuple[str | None, int | None, bytes | None]]):
    """What a database should hold: text, fingerprint and sketch by key."""

    def put(self, key: Any, text: str) -> None:
        batch = WEB.batch([text])
        number = None if batch.short[0] else int(batch.fingerprints[0])
        self[key] = (text, number, WEB.sketch(text) or None)

    def similar(self, text: str, k: int, least: float) -> set[tuple[Any, float]]:
        probe = Model()
        probe.put(0, text)
        _, number, sketch = probe[0]
        found = set()
        for key, (own, other, stored) in self.items():
            share = 1.0 if own == text else estimated(sketch, stored)
            if number is None or other is None:
                near = number is None and other is None and own == text
            else:
                near = (number ^ other).bit_count() <= k
            if near and share is not None and share >= least:
                found.add((key, share))
        return found

    def pairs(self, k: int, least: float) -> set[tuple[Any, Any, float]]:
        found = set()
        for (a, (text, one, mine)), (b, (own, other, its)) in itertools.combinations(
            self.items(), 2
        ):
            if one is None or other is None or (one ^ other).bit_count() > k:
                continue
            share = 1.0 if text is not None and text == own else estimated(mine, its)
            if share is not None and share >= least:
                found.add((*sorted((a, b)), share))
        return found


@pytest.mark.slow("each history is compared with brute force over all documents")
@pytest.mark.parametrize("keys", ["text", "integer"])
@settings(max_examples=examples(2), suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1))
def test_a_history_answers_as_brute_force_over_the_sketches(tmp_path_factory, keys, seed):
    dice = random.Random(seed)
    model = Model()
    texts = [*families(dice, 60), "", "two words", "a b c d e f g h", "四個漢字"]
    path = tmp_path_factory.mktemp("history") / "db"
    with fpdb.create(path, sketch="minhash", keys=keys) as db:
        for _ in range(3):
            batch = [
                Document(n if keys == "integer" else f"{n:02}", dice.choice(texts))
                for n in dice.sample(range(90), 30)
            ]
            list(db.add_many(batch))
            for document in batch:
                model.put(document.key, document.text)
            for _ in range(10):
                number = dice.randrange(90)
                key = number if keys == "integer" else f"{number:02}"
                action = dice.random()
                if action < 0.3:
                    text = dice.choice(texts)
                    db.add(key, text)
                    model.put(key, text)
                elif action < 0.6:
                    fingerprint = dice.choice([dice.getrandbits(64), WEB.fingerprint(texts[0])])
                    db.add_fingerprints([key], [fingerprint])
                    model[key] = (None, fingerprint, None)
                else:
                    db.delete(key)
                    model.pop(key, None)
            compare_answers(db, model, dice, texts)
        assert {d.key: d.sketch for d in db.scan()} == {key: own[2] for key, own in model.items()}


def compare_answers(db: Database, model: Model, dice: random.Random, texts: list[str]) -> None:
    assert not list(db.check())
    stats = db.stats()
    assert stats.documents == len(model)
    assert stats.sketches == sum(own[2] is not None for own in model.values())
    asked = [*dice.sample(texts, 6), *texts[-4:]]
    for least, k in ((0.8, None), (0.55, None), (0.3, 20), (1.0, 3)):
        within = fpdb.first_look(64, 3, least) if k is None else k
        expected = [model.similar(text, within, least) for text in asked]
        for ask in (
            db.query_many(asked, k=k, min_jaccard=least),
            (db.query(text, k=k, min_jaccard=least) for text in asked),
        ):
            answers = list(ask)
            assert [{(m.key, m.jaccard) for m in matches} for matches in answers] == expected
        for matches in answers:
            ranks = [(-match.jaccard, match.distance, match.key) for match in matches]
            assert ranks == sorted(ranks)
            assert matches.complete
        found = list(db.pairs(k, min_jaccard=least))
        shown = {(*sorted((pair.key, pair.other)), pair.jaccard) for pair in found}
        assert shown == model.pairs(within, least)
        assert len(shown) == len(found)
        clusters = {cluster.keys for cluster in db.clusters(k, min_jaccard=least)}
        assert {frozenset(keys) for keys in clusters} == connected(shown)


def connected(pairs: set[tuple[Any, Any, float]]) -> set[frozenset[Any]]:
    trees: dict[Any, frozenset[Any]] = {}
    for a, b, _ in pairs:
        joined = trees.get(a, frozenset([a])) | trees.get(b, frozenset([b]))
        trees.update(dict.fromkeys(joined, joined))
    return set(trees.values())


@pytest.mark.process
@pytest.mark.slow("it asks each question alone, in batches and in workers")
def test_many_questions_are_answered_as_one_is(tmp_path):
    texts = families(random.Random(5), 400)
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many(Document(str(n), text) for n, text in enumerate(texts)))
        alone = [db.query(text, min_jaccard=0.7, limit=3) for text in texts]
        assert list(db.query_many(texts, min_jaccard=0.7, limit=3)) == alone
        assert list(db.query_many(texts, min_jaccard=0.7, limit=3, jobs=2)) == alone
        prepared = db.preparer.prepare([Document("any", text) for text in texts])
        assert list(db.query_prepared(prepared, min_jaccard=0.7, limit=3)) == alone
        with db.snapshot() as snapshot:
            assert list(snapshot.query_many(texts, min_jaccard=0.7, limit=3)) == alone
            assert snapshot.query(texts[0], min_jaccard=0.7, limit=3) == alone[0]


def test_candidates_are_verified_in_parts_as_well_as_at_once(tmp_path, monkeypatch):
    texts = families(random.Random(6), 200)
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many(Document(str(n), text) for n, text in enumerate(texts)))
        whole = list(db.query_many(texts, min_jaccard=0.6))
        monkeypatch.setattr(lookup, "_VERIFIED", 3)
        assert list(db.query_many(texts, min_jaccard=0.6)) == whole


@pytest.mark.full
def test_pairs_compared_exactly_are_those_of_brute_force_but_for_few(tmp_path):
    texts = families(random.Random(7), 5000, 100)
    keys = [f"{number:04}" for number in range(len(texts))]
    stored = dict(zip(keys, texts, strict=True))
    holders: dict[tuple[str, ...], list[int]] = {}
    sets = [set(zip(*(text.split()[at:] for at in range(3)), strict=False)) for text in texts]
    for number, own in enumerate(sets):
        for shingle in own:
            holders.setdefault(shingle, []).append(number)
    together = {pair for numbers in holders.values() for pair in itertools.combinations(numbers, 2)}
    expected = {}
    for a, b in together:
        share = len(sets[a] & sets[b]) / len(sets[a] | sets[b])
        if share >= 0.8:
            expected[keys[a], keys[b]] = share
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many(Document(key, text) for key, text in stored.items()))
        found = {
            (pair.key, pair.other): share
            for pair in db.pairs(7, min_jaccard=0.7)
            if (share := fpdb.compare(WEB, stored[pair.key], stored[pair.other]).shingle_jaccard)
            >= 0.8
        }
        numbers = dict(zip(keys, WEB.fingerprint_many(texts).tolist(), strict=True))
    assert found.items() <= expected.items()
    missed = expected.keys() - found.keys()
    assert all((numbers[a] ^ numbers[b]).bit_count() > 7 for a, b in missed)
    assert (len(expected), len(missed)) == (1716, 46)  # as docs/explanation says


def test_what_resembles_by_its_sketch_is_not_added(tmp_path):
    dice = random.Random(9)
    words = dice.choices(WORDS, k=100)
    near, far = (" ".join(changed(dice, words, edits)) for edits in (2, 40))
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        documents = [
            Document(name, text)
            for name, text in (("first", " ".join(words)), ("near", near), ("far", far))
        ]
        added = list(db.add_many(documents, skip_duplicates=True, min_jaccard=0.8))
        assert [each.status for each in added] == ["added", "duplicate", "added"]
        [match] = added[1].matches
        assert match.key == "first"
        assert match.jaccard == estimated(WEB.sketch(" ".join(words)), WEB.sketch(near))
        # What has no sketch is no duplicate of anything but an equal text.
        fingerprint = Document("ready", fingerprint=WEB.fingerprint(near))
        [ready] = db.add_many([fingerprint], skip_duplicates=True, min_jaccard=0.8)
        assert ready.status == "added"
        for text, statuses in (("one two", ["short", "duplicate"]), ("", ["short", "duplicate"])):
            found = [
                db.add(f"{text}{n}", text, skip_duplicates=True, min_jaccard=0.8) for n in (1, 2)
            ]
            assert [each.status for each in found] == statuses


def test_a_text_without_shingles_is_found_by_an_equal_one(tmp_path):
    with fpdb.create(tmp_path / "db", recipe="char-4", sketch="minhash") as db:
        db.add("a", "abcdefghijklmnop")  # thirteen features, one word
        db.add("b", "abcdefghijklmnopq")
        [match] = db.query("abcdefghijklmnop", k=20, min_jaccard=0.5)
        assert (match.key, match.jaccard) == ("a", 1.0)


def test_a_cut_first_look_says_so(tmp_path, monkeypatch):
    text = " ".join(WORDS[:50])
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many(Document(str(n), text) for n in range(10)))
        assert db.query(text, min_jaccard=0.8).complete
        monkeypatch.setattr(lookup, "DOCUMENTS", 4)
        matches = db.query(text, min_jaccard=0.8)
        assert (len(matches), matches.complete) == (4, False)
        answers = list(db.query_many([text] * 200, min_jaccard=0.8))
        assert {(len(found), found.complete) for found in answers} == {(4, False)}


@pytest.mark.parametrize(
    ("arguments", "error", "found"),
    [
        ({"min_jaccard": 0.8}, InputError, "keeps no sketches"),
        ({"min_jaccard": 0}, InputError, "above 0"),
        ({"min_jaccard": 1.5}, InputError, "at most 1"),
        ({"min_jaccard": float("nan")}, InputError, "above 0"),
    ],
)
def test_wrong_questions_are_refused(tmp_path, arguments, error, found):
    with fpdb.create(tmp_path / "db") as db:
        for ask in (
            lambda: db.query("x", **arguments),
            lambda: list(db.pairs(**arguments)),
            lambda: list(db.clusters(**arguments)),
            lambda: db.delete_duplicates(**arguments),
        ):
            with pytest.raises(error, match=found):
                ask()


def test_more_wrong_questions_are_refused(tmp_path):
    with pytest.raises(InputError, match="found sketch='simhash'"):
        fpdb.create(tmp_path / "db", sketch="simhash")
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        with pytest.raises(InputError, match="without skip_duplicates"):
            db.add("a", "b", min_jaccard=0.8)
        with pytest.raises(InputError, match="no k is known"):
            db.query("x", min_jaccard=0.2)
        with pytest.raises(InputError, match="expected 128 bytes"):
            list(db.add_many([Document("a", fingerprint=1, sketch=b"x")]))
    narrow = home_plan(64, 0, 32)
    with (
        fpdb.create(tmp_path / "home", k=0, plan=narrow, sketch="minhash") as db,
        pytest.raises(PlanError, match="probes on these tables"),
    ):
        db.query("x", min_jaccard=0.8)


def test_tables_are_chosen_for_the_first_look(tmp_path):
    with fpdb.create(tmp_path / "db", recipe="web-128", sketch="minhash") as db:
        assert db.plan.name == "8 tables, p=16"
        assert db.sketch == "minhash"
        db.compact(tmp_path / "large", capacity=100_000_000)
    with fpdb.open(tmp_path / "large") as db:
        assert db.plan == fpdb.plans(128, 3, 100_000_000, query_k=14)[0]
        assert db.stats().sketches == 0


@pytest.mark.process
def test_copies_keep_the_sketches(tmp_path):
    texts = families(random.Random(10), 50)
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many((Document(str(n), text) for n, text in enumerate(texts)), jobs=2))
        pairs = sorted(db.pairs(min_jaccard=0.8))
        assert [db[str(n)].sketch for n in range(50)] == [WEB.sketch(text) for text in texts]
        db.backup(tmp_path / "backup")
        db.compact(tmp_path / "compact", k=4)
        with fpdb.create(tmp_path / "copied", sketch="minhash") as copy:
            list(copy.add_many(db.scan()))
    for name in ("backup", "compact", "copied"):
        with fpdb.open(tmp_path / name) as copy:
            assert sorted(copy.pairs(min_jaccard=0.8)) == pairs
            assert copy.stats().sketches == 50
            assert not list(copy.check())


def damage(path, change):
    """Change the record of the document 0."""
    environment = Environment.open(path)
    with environment.write(10) as txn:
        record = unpack_record(txn.get("documents", bytes(8)) or b"", 0, 64)
        txn.put("documents", bytes(8), pack_record(change(record), 64))
    environment.close()


@pytest.mark.parametrize("sketch", [None, b"too short", b""])
def test_check_finds_wrong_sketches(tmp_path, sketch):
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        db.add("a", " ".join(WORDS[:20]))
    damage(tmp_path / "db", lambda record: record._replace(sketch=sketch))
    with fpdb.open(tmp_path / "db") as db:
        problems = [str(problem) for problem in db.check()]
        assert any("sketches" in each or "fields" in each for each in problems)


def test_check_finds_a_sketch_where_none_should_be(tmp_path):
    with fpdb.create(tmp_path / "db") as db:
        db.add("a", " ".join(WORDS[:20]))
    damage(tmp_path / "db", lambda record: record._replace(sketch=bytes(128)))
    with fpdb.open(tmp_path / "db") as db:
        assert list(db.check())


def test_records_and_counters_without_sketches_are_as_they_were():
    record = Stored(3, "key", 12345678, 1, b"digest", b"", 5)
    assert unpack_record(pack_record(record, 64), 3, 64) == record
    assert len(Counters(1, 2, 3, 4).pack()) == 40
    with_sketches = Counters(1, 2, 3, 4, 5)
    assert Counters.unpack(with_sketches.pack()) == with_sketches


def test_clusters_of_many_copies_are_those_of_all_pairs(tmp_path):
    dice = random.Random(11)
    kinds = families(dice, 25)
    # Few words in another order have the same fingerprint, and other shingles.
    words = dice.choices(WORDS, k=12)
    kinds += [" ".join(dice.sample(words, 12)) for _ in range(5)]
    texts = [dice.choice(kinds[:6] + kinds[20:]) for _ in range(300)] + kinds
    stored = {f"{number:03}": text for number, text in enumerate(texts)}
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many(Document(key, text) for key, text in stored.items()))
        db.add_fingerprints([f"bare {n}" for n in range(20)], [WEB.fingerprint(kinds[0])] * 20)
        pairs = {(pair.key, pair.other, pair.jaccard) for pair in db.pairs(min_jaccard=0.6)}
        expected = connected(pairs)
        clusters = [cluster.keys for cluster in db.clusters(min_jaccard=0.6)]
        assert {frozenset(keys) for keys in clusters} == expected
        assert len(clusters) == len(expected)
        assert [keys[0] for keys in clusters] == sorted(map(min, clusters))
        deleted = [key for each in db.delete_duplicates(min_jaccard=0.6) for key in each.duplicates]
        assert len(deleted) == sum(map(len, expected)) - len(expected)


@pytest.mark.full
def test_a_great_many_copies_take_no_time(tmp_path):
    text = " ".join(WORDS[:40])
    with fpdb.create(tmp_path / "db", sketch="minhash") as db:
        list(db.add_many(Document(f"{n}", text) for n in range(20_000)))
        [cluster] = db.clusters(min_jaccard=0.8)
        assert len(cluster.keys) == 20_000


@pytest.mark.parametrize("keys", ["text", "integer"])
def test_a_sketch_is_kept_without_its_text(tmp_path, keys):
    text, key = " ".join(WORDS[:50]), "a" if keys == "text" else 7
    with fpdb.create(tmp_path / "db", sketch="minhash", keys=keys) as db:
        ready = Document(key, fingerprint=WEB.fingerprint(text), sketch=WEB.sketch(text))
        [added] = db.add_many([ready])
        assert added.status == "added"
        assert db.get(key).sketch == WEB.sketch(text)
        assert list(db.check()) == []
        assert db.delete(key)
        assert list(db.check()) == []
