"""Texts that users have: what they compare is exact, by brute force over sets of shingles."""

import random
import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from similar import LIMIT, WEB, WORDS, decided, estimate, jaccard, near_the_limit
from tiers import examples

import fpdb
from fpdb import Document, database
from fpdb.cli.output import near_dict
from fpdb.fingerprint.sketches import standard_error


def matched(text, stored, known, bands, limit=LIMIT):
    """Return the keys of the documents that a text matches, with what is said of them.

    Those that are known are texts, since equal ones are known together.
    """
    found = {}
    for key, other in stored.items():
        near = decided(text, other, bands, known=other in known, limit=limit)
        if near:
            found[key] = near
    return found


def said(matches):
    return {match.key: (pytest.approx(match.similarity), match.exact) for match in matches}


@pytest.mark.parametrize("keys", ["text", "integer"])
@given(seed=st.integers(0, 2**32 - 1), limit=st.sampled_from([0.8, 0.7, 0.9]))
@settings(max_examples=examples(20), deadline=None)
def test_a_query_is_exact_where_texts_are_known(tmp_path_factory, keys, seed, limit):
    texts = near_the_limit(seed, 60)
    name = str if keys == "text" else int
    stored = {name(number): text for number, text in enumerate(texts[:50])}
    dice = random.Random(seed)
    known = {key for key in stored if dice.random() < 0.7}
    # Those that aren't known have another text, or none.
    given_texts = {
        key: text if key in known else dice.choice([None, texts[0] + " more"])
        for key, text in stored.items()
    }
    path = tmp_path_factory.mktemp("query")
    with fpdb.create(path / "db", keys=keys, similarity=limit) as db:
        list(db.add_many(Document(key, text) for key, text in stored.items()))
        for asked in texts:
            matches = db.query(asked, texts=given_texts)
            texts_known = {stored[key] for key in known} | {asked}
            expected = matched(asked, stored, texts_known, db.plan.bands, limit)
            assert said(matches) == expected
            ranks = [(-match.similarity, match.distance, match.key) for match in matches]
            assert ranks == sorted(ranks)
            assert db.query(asked, texts=given_texts.get, limit=2) == matches[:2]
            with db.snapshot() as snapshot:
                assert snapshot.query(asked, texts=given_texts) == matches


def test_texts_change_decisions_in_both_directions(tmp_path):
    """Else the other tests could pass by estimates."""
    texts = near_the_limit(1, 400, families=1, length=120, edits=[2, 3])
    stored = dict(zip(map(str, range(400)), texts, strict=True))
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(Document(key, text) for key, text in stored.items()))
        exact = {(pair.key, pair.other) for pair in db.pairs(texts=stored)}
        estimated = {(pair.key, pair.other) for pair in db.pairs()}
        assert len(exact - estimated) >= 5
        assert len(estimated - exact) >= 5
        for one, other in exact - estimated:
            assert other in [match.key for match in db.query(stored[one], texts=stored)]
            assert other not in [match.key for match in db.query(stored[one])]
    one, other = min(exact - estimated)
    with fpdb.create(tmp_path / "two") as db:
        list(db.add_many(Document(key, stored[key]) for key in (one, other)))
        assert [cluster.keys for cluster in db.clusters(texts=stored)] == [(one, other)]
        assert list(db.clusters()) == []


def selected(batches, bands, known, stored=()):
    """Add documents in order unless they match a stored one; yield what becomes of each.

    The documents of one transaction know each other's texts.
    """
    stored = dict(stored)
    for batch in batches:
        own = {text for _, text in batch}
        for key, text in batch:
            texts = {stored[key] for key in known & stored.keys()}
            matches = matched(text, stored, texts | own, bands)
            if not matches:
                stored[key] = text
            yield key, "duplicate" if matches else "added", matches


@given(
    seed=st.integers(0, 2**32 - 1),
    transaction=st.sampled_from([1, 7, 1000]),
    share=st.sampled_from([0, 0.6, 1]),
    memory=st.sampled_from([0, 300, 1 << 24]),
)
@settings(max_examples=examples(40), deadline=None)
def test_what_is_added_is_selected_exactly(tmp_path_factory, seed, transaction, share, memory):
    dice, path = random.Random(seed), tmp_path_factory.mktemp("added")
    documents = [(f"{n:03}", text) for n, text in enumerate(near_the_limit(seed, 70))]
    known = {key for key, _ in documents if dice.random() < share}
    texts = {key: text if key in known else None for key, text in documents}
    with fpdb.create(path / "db") as db, pytest.MonkeyPatch.context() as patch:
        if share == 1:  # else a transaction that is divided knows less of its own
            patch.setattr(database, "_MOST_SHINGLES", memory)
        first = documents[:20]
        list(db.add_many(Document(*each) for each in first))
        later = documents[20:]
        batches = [later[at : at + transaction] for at in range(0, len(later), transaction)]
        added = list(
            db.add_many(
                (Document(*each) for each in later),
                skip_duplicates=True,
                texts=texts.get,
                transaction=transaction,
            )
        )
        expected = list(selected(batches, db.plan.bands, known, first))
        assert [(one.key, one.status, said(one.matches)) for one in added] == expected
        assert not list(db.check())
    assert {one.status for one in added} == {"added", "duplicate"}


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(20), deadline=None)
def test_histories_of_documents_are_decided_by_the_texts_they_have_now(tmp_path_factory, seed):
    """Documents are replaced and deleted meanwhile, and texts that are out of date don't count."""
    dice, stored, texts = random.Random(seed), {}, {}
    path = tmp_path_factory.mktemp("histories")
    with fpdb.create(path / "db") as db:
        for number, text in enumerate(near_the_limit(seed, 80, families=4)):
            key = str(dice.randrange(30))
            match dice.randrange(5):
                case 0:
                    assert db.delete(key) == (stored.pop(key, None) is not None)
                case 1:  # without skip_duplicates
                    db.add(key, text)
                    stored[key] = text
                case _:
                    known = {it for own, it in stored.items() if texts.get(own) == it}
                    others = {own: it for own, it in stored.items() if own != key}
                    expected = matched(text, others, known | {text}, db.plan.bands)
                    added = db.add(key, text, number, skip_duplicates=True, texts=texts)
                    assert said(added.matches) == expected
                    assert (added.status == "duplicate") == bool(expected and key not in stored)
                    if added.status != "duplicate":
                        stored[key] = text
            if dice.random() < 0.6:  # the one who has the texts learns of this one
                texts[key] = text
        assert {document.key for document in db.scan()} == stored.keys()


@pytest.mark.parametrize("keys", ["text", "integer"])
@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.6, 1]))
@settings(max_examples=examples(20), deadline=None)
def test_pairs_clusters_and_deletions_are_exact(tmp_path_factory, keys, seed, share):
    dice, path = random.Random(seed), tmp_path_factory.mktemp("pairs")
    name = str if keys == "text" else int
    texts = near_the_limit(seed, 60, families=5)
    texts += dice.sample(texts, 5)  # copies
    stored = {name(number + 100): text for number, text in enumerate(texts)}
    given_texts = {key: text for key, text in stored.items() if dice.random() < share}
    # Of two equal texts it is enough that one is known.
    known = {key for key, text in stored.items() if text in given_texts.values()}
    with fpdb.create(path / "db", keys=keys) as db:
        list(db.add_many(Document(key, text) for key, text in stored.items()))
        bands = db.plan.bands

        def near(one, other):
            both = one in known and other in known
            return decided(stored[one], stored[other], bands, known=both)

        ordered = list(stored)
        expected = {
            (one, other): found
            for place, other in enumerate(ordered)
            for one in ordered[:place]
            if (found := near(one, other))
        }
        pairs = list(db.pairs(texts=given_texts))
        assert {(p.key, p.other): (pytest.approx(p.similarity), p.exact) for p in pairs} == expected
        assert len(pairs) == len(expected)

        chained = {frozenset(cluster.keys) for cluster in db.clusters(chains=True, texts=stored)}
        trees = {key: frozenset([key]) for key in stored}
        for one, other in {pair for pair in expected if share == 1}:
            tree = trees[one] | trees[other]
            trees.update(dict.fromkeys(tree, tree))
        if share == 1:
            assert chained == {tree for tree in trees.values() if len(tree) > 1}

        clusters = list(db.clusters(texts=given_texts.get, jobs=2))
        deleted = db.delete_duplicates(texts=given_texts)
        # The text of a copy may become known after its original was compared.
        assert deleted == clusters or share < 1
        for cluster in clusters + deleted:
            for key in cluster.duplicates:
                one, other = stored[cluster.representative], stored[key]
                both = cluster.representative in known and key in known
                if both or one == other:
                    assert jaccard(one, other) >= LIMIT
                else:
                    assert estimate(one, other) >= LIMIT - 1.5 * standard_error(LIMIT)
        gone = {key for cluster in deleted for key in cluster.duplicates}
        left = [key for key in ordered if key not in gone]
        assert not any(pair in expected for pair in ((a, b) for a in left for b in left))
        assert sorted(db) == sorted(left)


def columns_of(clustering):
    names = ("ids", "firsts", "originals", "least", "shares")
    return [getattr(clustering, name).tolist() for name in names]


@pytest.fixture
def versions(tmp_path):
    """A database of versions of some texts, and these by their keys."""
    texts = {f"{n:03}": text for n, text in enumerate(near_the_limit(3, 60, families=3))}
    with fpdb.create(tmp_path / "db", timeout=2) as db:
        list(db.add_many(Document(key, text) for key, text in texts.items()))
        yield db, texts


def test_a_clustering_says_how_similar_texts_are_exactly(versions):
    db, texts = versions
    found = db.clustering(texts=texts)
    keys = db.keys_of(found.ids)
    assert len(keys) > 20
    for row, first in enumerate(found.firsts.tolist()):
        assert found.least[row] == jaccard(texts[keys[row]], texts[keys[first]]) >= LIMIT
    assert found.estimated == 0
    unknown = db.clustering(texts=lambda key: None)
    assert columns_of(unknown) == columns_of(db.clustering())
    assert unknown.estimated == unknown.shares.sum() > 20


@pytest.mark.parametrize("ask", ["add", "add_many", "add_prepared", "delete", "query", "pairs"])
def test_a_function_of_a_user_may_write_to_the_database(versions, ask):
    """It would wait for itself under the lock, and another thread would."""
    db, texts = versions
    new, ended = texts["010"] + " more", []

    def text_of(key):
        db.add(f"from within {key}", f"{key} {' '.join(WORDS[:60])} {key}")
        assert db.query(new)
        other = threading.Thread(target=lambda: ended.append(db.add("other thread", "few words")))
        other.start()
        other.join()
        return texts.get(key)

    if ask == "add":
        assert db.add("new", new, skip_duplicates=True, texts=text_of).matches[0].exact
    elif ask == "add_many":
        [added] = db.add_many([Document("new", new)], skip_duplicates=True, texts=text_of)
        assert added.matches[0].exact
    elif ask == "add_prepared":
        prepared = db.preparer.prepare([Document("new", new)], keep_texts=True)
        [added] = db.add_prepared(prepared, skip_duplicates=True, texts=text_of)
        assert added.matches[0].exact
    elif ask == "delete":
        assert db.delete_duplicates(texts=text_of)
    elif ask == "query":
        assert db.query(new, texts=text_of)[0].exact
    else:
        assert all(pair.exact for pair in db.pairs(texts=text_of))
    assert ended
    assert any(str(key).startswith("from within") for key in db)


def test_what_others_add_meanwhile_is_compared_by_estimates(tmp_path):
    """Two texts only seem to be similar: the text of one is known, the other one came too late."""
    texts = near_the_limit(5, 300, families=1)
    new, others = texts[0], texts[1:]
    false = [it for it in others if jaccard(new, it) < LIMIT <= estimate(new, it)]
    with fpdb.create(tmp_path / "db") as db:
        bands = db.plan.bands
        false = [it for it in false if decided(new, it, bands, known=False)]
        db.add("before", false[0])
        texts = {"before": false[0], "late": false[1]}

        def text_of(key):
            db.add("late", false[1])
            return texts[key]

        added = db.add("new", new, skip_duplicates=True, texts=text_of)
        assert [(match.key, match.exact) for match in added.matches] == [("late", False)]
        assert db.query(new) != []
        assert db.query(new, texts=texts) == []
        assert db.add("new", new, skip_duplicates=True, texts=texts).status == "added"


class FailureError(Exception):
    pass


@pytest.mark.parametrize("ask", ["add", "add_many", "delete", "query", "pairs", "clusters"])
def test_an_exception_of_a_user_changes_nothing(versions, ask):
    db, texts = versions
    stored, new = list(db.scan()), texts["010"] + " more"

    def text_of(key):
        raise FailureError(key)

    documents = [Document("other", "some other words " * 20), Document("new", new)]
    asks = {
        "add": lambda: db.add("new", new, skip_duplicates=True, texts=text_of),
        "add_many": lambda: list(db.add_many(documents, skip_duplicates=True, texts=text_of)),
        "delete": lambda: db.delete_duplicates(texts=text_of),
        "query": lambda: db.query(new, texts=text_of),
        "pairs": lambda: list(db.pairs(texts=text_of)),
        "clusters": lambda: list(db.clusters(texts=text_of)),
    }
    with pytest.raises(FailureError):
        asks[ask]()
    assert list(db.scan()) == stored
    assert db.add("new", new, skip_duplicates=True, texts=texts).matches


def test_each_text_is_asked_for_once_and_only_those_that_may_be_similar(versions):
    db, texts = versions
    list(db.add_many(Document(f"copy of {key}", text) for key, text in texts.items()))
    db.add("alone", " ".join(WORDS[:50]))
    asked = []

    def text_of(key):
        asked.append(key)
        return texts.get(key)

    paired = {key for pair in db.pairs() for key in pair[:2]}
    assert all(pair.exact for pair in db.pairs(texts=text_of))
    assert len(asked) == len(set(asked)) < len(paired)  # copies have one text
    asked.clear()
    list(db.clusters(texts=asked.append))
    assert len(asked) == len(set(asked)) > 20
    asked.clear()
    db.query(" ".join(WORDS[:50]) + " " + WORDS[99], texts=text_of)
    assert asked == ["alone"]
    asked.clear()
    assert db.add("000", texts["000"], skip_duplicates=True, texts=text_of).status == "unchanged"
    assert asked == []


def test_a_text_without_a_digest_is_taken_as_it_is(tmp_path):
    """A document can be loaded with a sketch alone."""
    one, other = near_the_limit(7, 2, families=1)
    [sketch] = WEB.batch([one], sketches=True).sketches
    fingerprint = WEB.fingerprint(one)
    with fpdb.create(tmp_path / "db", similarity=0.5) as db:
        [_] = db.add_many([Document("a", fingerprint=fingerprint, sketch=bytes(sketch))])
        [match] = db.query(other, texts={"a": one})
        assert (match.similarity, match.exact) == (pytest.approx(jaccard(one, other)), True)
        assert db.query(other, texts={"a": "no shingle"})[0].exact is False


def test_short_and_equal_texts_are_exact_without_texts(tmp_path):
    text = " ".join(WORDS[:40])
    with fpdb.create(tmp_path / "db") as db:
        for key, own in (("a", text), ("b", text), ("c", text + " more"), ("d", "few words")):
            db.add(key, own)
        assert [match.exact for match in db.query(text)] == [True, True, False]
        assert [match.exact for match in db.query("few words", texts={})] == [True]
        assert {pair[:2]: pair.exact for pair in db.pairs()} == {
            ("a", "b"): True,
            ("a", "c"): False,
            ("b", "c"): False,
        }
        assert [match.exact for match in db.query(text, k=20)] == [None] * 3
        assert {pair.exact for pair in db.pairs(k=20)} == {None}
        assert "exact" not in near_dict(db.query(text, k=20)[0])
        assert near_dict(db.query(text)[2])["exact"] is False


def test_a_text_larger_than_a_handle_takes_can_be_compared(tmp_path):
    text = " ".join(WORDS)
    with fpdb.create(tmp_path / "db", recipe=WEB.replace(largest=1000)) as db:
        small = db.preparer.adapted(1 << 20)
        db.add_prepared(small.prepare([Document("a", text)]))
        asked = small.prepare([Document("b", text + " more")], keep_texts=True)
        [added] = db.add_prepared(asked, skip_duplicates=True, texts={"a": text})
        assert added.matches[0].exact


def test_tables_say_what_is_exact(versions):
    db, texts = versions
    found = db.pairs(texts={key: text for key, text in texts.items() if key < "030"}).to_arrow()
    assert found.schema.field("exact").type == pa.bool_()
    assert set(found["exact"].to_pylist()) == {True, False}


def test_what_the_texts_cant_do_is_refused(versions, tmp_path):
    db, texts = versions
    with pytest.raises(fpdb.InputError, match="found texts without skip_duplicates"):
        db.add("a", "b", texts=texts)
    with pytest.raises(fpdb.InputError, match="found texts without skip_duplicates"):
        list(db.add_many([], texts=texts))
    with pytest.raises(fpdb.InputError, match="found texts=7, expected a function"):
        db.query(texts["001"], texts=7)
    with pytest.raises(fpdb.InputError, match="found b'text' for the text of '001'"):
        db.query(texts["001"] + " more", texts=lambda key: b"text" if key == "001" else None)
    for ask in (db.pairs, db.clusters, db.delete_duplicates, lambda **o: db.query("a", **o)):
        with pytest.raises(fpdb.InputError, match="found texts where bits are compared"):
            ask(k=3, texts=texts)
    with fpdb.create(tmp_path / "bits", similarity=None) as bits:
        with pytest.raises(fpdb.InputError, match="found texts where bits are compared"):
            bits.add("a", texts["001"], skip_duplicates=True, texts=texts)
        assert len(bits) == 0


def test_a_transaction_that_is_divided_fetches_all_texts(tmp_path, monkeypatch):
    texts = {str(number): " ".join(WORDS[60 * number :][:60]) for number in range(5)}
    monkeypatch.setattr(database, "_MOST_SHINGLES", 0)
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(Document(key, text) for key, text in texts.items()))
        edited = [Document(f"edited {key}", text + " more") for key, text in texts.items()]
        added = list(db.add_many(edited, skip_duplicates=True, texts=texts))
        assert [(match.key, match.exact) for one in added for match in one.matches] == [
            (key, True) for key in texts
        ]
