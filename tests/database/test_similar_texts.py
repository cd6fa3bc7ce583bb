"""Similar texts: against brute force over sketches and bands, and over the texts themselves."""

import functools
import io
import random
import shutil
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import fpdb
from fpdb import Database, Document
from fpdb.documents import lookup
from fpdb.errors import InputError
from fpdb.fingerprint.sketches import least_estimate
from fpdb.joins import pairs as joins
from fpdb.storage.block import Block
from fpdb.storage.format import (
    Stored,
)
from fpdb.tables import Bands, bands, choose_bands

# Most tests compare answers with those by brute force over the bands, whatever these find.
pytestmark = pytest.mark.filterwarnings("ignore::fpdb.IncompleteWarning")

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


def connected(pairs: set[tuple[Any, Any, float]]) -> set[frozenset[Any]]:
    trees: dict[Any, frozenset[Any]] = {}
    for a, b, _ in pairs:
        joined = trees.get(a, frozenset([a])) | trees.get(b, frozenset([b]))
        trees.update(dict.fromkeys(joined, joined))
    return set(trees.values())


def prepared(dice: random.Random, count: int) -> list[Stored]:
    """Documents of every kind, of which each resembles others: by sketch, by text or by bits."""
    sketches = [dice.randbytes(128) for _ in range(4)]
    digests = [dice.randbytes(16) for _ in range(6)]
    found = []
    for number in range(count):
        sketch = bytearray(dice.choice(sketches))
        for place in dice.sample(range(128), dice.choice([0, 1, 10, 20, 40])):
            sketch[place] = dice.randrange(256)
        digest = dice.choice([dice.choice(digests), dice.randbytes(16)])
        fingerprint = dice.getrandbits(4) << 30 | dice.getrandbits(2)
        kind = dice.choice(["text"] * 5 + ["few words", "short", "fingerprint", "zeros"])
        found.append(
            Stored(
                id=0,
                key=f"{number:04}",
                fingerprint=None if kind == "short" else fingerprint,
                added=0,
                digest=b"" if kind == "fingerprint" else digest,
                sketch=bytes(sketch) if kind == "text" else bytes(128) if kind == "zeros" else b"",
            )
        )
    return found


def resembling(
    asked: Stored, stored: list[Stored], bands: Bands, k: int, similarity: float | None
) -> list[tuple[float | None, int, Any]]:
    """Compare with every document."""
    found: list[tuple[float | None, int, Any]] = []
    for other in stored:
        if asked.fingerprint is None or other.fingerprint is None:
            same = asked.fingerprint == other.fingerprint and asked.digest == other.digest
            if same and any(asked.digest):  # zeros are of texts that equal none
                found.append((-1.0, 0, other.key))
            continue
        apart = (asked.fingerprint ^ other.fingerprint).bit_count()
        if similarity is None or not (asked.sketch or asked.digest):
            if apart <= k:
                found.append((None, apart, other.key))
            continue
        same = bool(asked.digest) and asked.digest == other.digest
        one, two = ((each.sketch or b"").strip(b"\0") for each in (asked, other))
        if one and two:
            bins = [[*each.hex()] for each in (asked.sketch or b"", other.sketch or b"")]
            bins = [
                [bit for pair in zip(e[1::2], e[::2], strict=True) for bit in pair] for e in bins
            ]
            width = bands.bins
            starts = range(0, width * bands.count, width)
            if not any(bins[0][at : at + width] == bins[1][at : at + width] for at in starts):
                continue
        elif one or two or not same:
            continue
        share = 1.0 if same else estimated(asked.sketch, other.sketch) or 0.0
        if share >= least_estimate(similarity):
            found.append((-share, apart, other.key))
    return sorted(found, key=lambda match: (match[0] or 0.0, *match[1:]))


@pytest.mark.parametrize("similarity", [0.8, 0.5, None])
def test_questions_of_every_kind_and_pairs_are_those_of_brute_force(
    tmp_path, monkeypatch, similarity
):
    dice = random.Random(8)
    stored, asked = prepared(dice, 250), prepared(dice, 50)
    asked += dice.sample(stored, 10)
    with fpdb.create(tmp_path / "db", k=2) as db:
        db.add_prepared(Block.of(stored, 64))
        for limit in (None, 2):
            options = {"k": 2} if similarity is None else {"similarity": similarity}
            ask = functools.partial(db.query_prepared, limit=limit, **options)
            alone = [next(ask(Block.of([question], 64))) for question in asked]
            for question, matches in zip(asked, alone, strict=True):
                expected = resembling(question, stored, db.plan.bands, 2, similarity)
                ranks = [(m.similarity and -m.similarity, m.distance, m.key) for m in matches]
                assert ranks == expected[:limit]
                assert matches.complete != bool(db.shortfall(similarity))
            monkeypatch.setattr(lookup, "FEW", 200)
            together = Block.of(asked * 2, 64)
            assert list(ask(together)) == alone * 2
            monkeypatch.setattr(lookup, "FEW", 10)
            assert list(ask(together)) == alone * 2
        assert sum(map(len, alone)) > 20
        if similarity:
            pairs = {
                (key, one.key, -(share or 0.0))
                for number, one in enumerate(stored)
                if one.fingerprint is not None
                for share, _, key in resembling(one, stored[:number], db.plan.bands, -1, similarity)
            }
            found = list(db.pairs(similarity=similarity))
            assert {(pair.key, pair.other, pair.similarity) for pair in found} == pairs
            assert len(found) == len(pairs) > 100


def test_candidates_are_compared_in_parts_as_well_as_at_once(tmp_path, monkeypatch):
    texts = families(random.Random(6), 200)
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(Document(str(n), text) for n, text in enumerate(texts)))
        whole, pairs = list(db.query_many(texts, similarity=0.6)), sorted(db.pairs())
        monkeypatch.setattr(lookup, "_KEPT", 3)
        monkeypatch.setattr(lookup, "_HELD", 50)
        for name in ("_ROWS", "_PAIRS", "_HELD"):
            monkeypatch.setattr(joins, name, 50)
        assert list(db.query_many(texts, similarity=0.6)) == whole
        assert sorted(db.pairs()) == pairs


SENTENCES = {
    "English": [f"{' '.join(random.Random(n).choices(WORDS, k=12))}. " for n in range(3000)],
    "Chinese": [
        "".join(chr(0x4E00 + random.Random(n).randrange(3000)) for n in range(m, m + 30)) + "。"
        for m in range(0, 90_000, 30)
    ],
}


COUNT = 15


def exact(one: str, other: str) -> float:
    share = fpdb.compare(one, other).shingle_jaccard
    assert share is not None
    return share


@pytest.mark.slow("a few hundred texts are edited, and each is compared with its original")
@pytest.mark.parametrize(
    ("language", "keys", "bits"),
    [
        ("English", "text", 64),
        ("Chinese", "integer", 128),
        pytest.param("Chinese", "text", 64, marks=pytest.mark.full),
        pytest.param("English", "integer", 32, marks=pytest.mark.full),
    ],
)
def test_edited_texts_are_found_from_085_on_and_nothing_below_07(tmp_path, language, keys, bits):
    """Sentences are replaced, inserted, moved and dropped; exact Jaccard is the truth."""
    dice = random.Random(bits)
    originals, edited = [], []
    for _ in range(COUNT):
        sentences = dice.sample(SENTENCES[language], dice.randint(10, 30))
        originals.append("".join(sentences))
        for edits in (1, 2, 3, 6):
            other = list(sentences)
            for _ in range(edits):
                place, new = dice.randrange(len(other)), dice.choice(SENTENCES[language])
                kind = dice.choice(["replace", "insert", "move", "drop"])
                if kind in {"replace", "drop", "move"}:
                    moved = other.pop(place)
                if kind in {"replace", "insert"}:
                    other.insert(place, new)
                elif kind == "move":
                    other.insert(dice.randrange(len(other) + 1), moved)
            edited.append("".join(other))
    recipe = WEB.with_bits(bits)
    names = range(COUNT) if keys == "integer" else [f"{number:02}" for number in range(COUNT)]
    with fpdb.create(tmp_path / "db", recipe=recipe, keys=keys) as db:
        list(db.add_many(map(Document, names, originals)))
        alone = [db.query(text) for text in edited]
        assert list(db.query_many(edited)) == alone
        places = dict(zip(names, originals, strict=True))
        found = wanted = 0
        for number, (text, matches) in enumerate(zip(edited, alone, strict=True)):
            share = exact(text, originals[number // 4])
            assert all(exact(text, places[match.key]) >= 0.7 for match in matches)
            if share >= 0.85:
                wanted += 1
                found += names[number // 4] in [match.key for match in matches]
        assert wanted > COUNT
        assert found >= 0.97 * wanted
        # As a crawler adds them: nothing that is found is stored.
        other = [n + 100 if keys == "integer" else f"new {n}" for n in range(len(edited))]
        added = db.add_many(map(Document, other, edited), skip_duplicates=True)
        assert {each.status for each in added} == {"added", "duplicate"}
        assert list(db.check()) == []


def test_a_text_without_shingles_is_found_by_an_equal_one(tmp_path):
    with fpdb.create(tmp_path / "db", recipe="char-4") as db:
        db.add("a", "abcdefghijklmnop")  # thirteen features, one word
        db.add("b", "abcdefghijklmnopq")
        [match] = db.query("abcdefghijklmnop", similarity=0.5)
        assert (match.key, match.similarity) == ("a", 1.0)


def test_a_popular_band_is_cut_and_says_so(tmp_path, monkeypatch):
    text = " ".join(WORDS[:50])
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(Document(f"{n:02}", text) for n in range(10)))
        assert db.query(text).complete
        pairs = sorted(db.pairs())
        assert len(pairs) == 45
        for name in ("MOST_OF_A_BAND", "MOST_COMPARED"):
            with monkeypatch.context() as patch:
                patch.setattr(bands, name, 4)
                matches = db.query(text)
                assert [match.key for match in matches] == ["00", "01", "02", "03"]
                assert not matches.complete
                assert not db.query(text, limit=1).complete
                answers = list(db.query_many([text] * 200))
                assert answers == [matches] * 200
                assert {found.complete for found in answers} == {False}
        monkeypatch.setattr(joins, "MOST_MET", 3)
        with pytest.warns(fpdb.IncompleteWarning):
            some = list(db.pairs())
        assert set(some) < set(pairs)
        assert len(set(some)) == len(some) == 9 + 8 + 7


@pytest.mark.parametrize("similarity", [0.8, 0, 1.5, float("nan")])
def test_wrong_questions_are_refused(tmp_path, similarity):
    with fpdb.create(tmp_path / "db", similarity=None) as db:
        for ask in (functools.partial(db.query, "x"), db.pairs, db.clusters, db.delete_duplicates):
            with pytest.raises(InputError, match="sketches" if similarity == 0.8 else "above 0"):
                ask(similarity=similarity)


@pytest.mark.filterwarnings("error")
def test_a_similarity_below_that_of_the_bands_is_warned_of(tmp_path):
    text = " ".join(WORDS[:50])
    with fpdb.create(tmp_path / "db") as db:
        db.add("a", text)
        assert db.query(text).complete
        assert db.query(text, similarity=0.9).complete
        assert db.query(text, k=9).complete
        for ask in (
            lambda least: db.query(text, similarity=least),
            lambda least: db.query_many([text], similarity=least),
            lambda least: db.pairs(similarity=least),
            lambda least: db.clusters(similarity=least),
            lambda least: db.clustering(similarity=least),
            lambda least: db.delete_duplicates(similarity=least),
            lambda least: db.add("a", text, skip_duplicates=True, similarity=least),
        ):
            with pytest.warns(fpdb.IncompleteWarning, match="and 19% of what is similar from 0.5"):
                ask(0.5)
            ask(0.79)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert not db.query(text, similarity=0.5).complete
            assert [found.complete for found in db.query_many([text] * 2, similarity=0.5)] == [
                False,
                False,
            ]
            with db.snapshot() as snapshot:
                assert not snapshot.query(text, similarity=0.5).complete


def test_bands_are_chosen_for_the_documents(tmp_path):
    with fpdb.create(tmp_path / "db", recipe="web-128") as db:
        assert db.similarity == 0.8
        assert db.plan == fpdb.plans(128, 14, 1_000_000, similarity=0.8)[0]
        db.compact(tmp_path / "large", capacity=100_000_000)
        db.compact(tmp_path / "other", similarity=0.9)
    with fpdb.open(tmp_path / "large") as db:
        assert db.plan == fpdb.plans(128, 14, 100_000_000, similarity=0.8)[0]
        assert db.stats().sketches == 0
    with fpdb.open(tmp_path / "other") as db:
        assert (db.similarity, db.plan.bands) == (0.9, choose_bands(0.9, 1_000_000))


@pytest.mark.process
@pytest.mark.slow("a database is copied in nine ways, and each copy is checked")
@pytest.mark.parametrize(("keys", "bits"), [("text", 64), ("integer", 128)])
def test_copies_keep_the_bands_or_make_them_anew(tmp_path, keys, bits):
    """Also those that are made of a database whose bands are lost, since records have all."""
    texts = [*families(random.Random(10), 50), "short", "short"]
    options = {"recipe": WEB.with_bits(bits), "keys": keys}
    documents = [
        Document(n if keys == "integer" else f"{n:02}", text) for n, text in enumerate(texts)
    ]
    with fpdb.create(tmp_path / "db", **options) as db:
        list(db.add_many(documents, jobs=2))
        db.add_fingerprints([99 if keys == "integer" else "bare"], [7])
        wanted = sorted(db.pairs()), answers_of(db, texts)
        stored = list(db.scan())
        assert wanted[0]
        db.backup(tmp_path / "backup")
        file = io.BytesIO()
        db.dump(file)
        with fpdb.create(tmp_path / "added", **options) as copy:
            list(copy.add_many(db.scan()))
    shutil.copytree(tmp_path / "db", tmp_path / "lost")
    file.seek(0)
    fpdb.load(tmp_path / "loaded", file)
    with fpdb.open(tmp_path / "lost") as db:
        with db._environment.write() as txn, txn.cursor("bands") as cursor:
            names = [bytes(key) for key, _ in cursor]
            for name in names:
                txn.delete("bands", name)
        assert {problem.where for problem in db.check()} == {"bands"}
        assert db.query(texts[0]) == []
        db.compact(tmp_path / "same")
        db.compact(tmp_path / "other", k=4)
        db.compact(tmp_path / "larger", capacity=10**8)
    fpdb.repair(tmp_path / "lost", tmp_path / "repaired")
    fpdb.load(tmp_path / "copied", tmp_path / "lost")
    with fpdb.open(tmp_path / "lost") as db:
        db.compact()
    for name in ("backup", "added", "loaded", "same", "other", "repaired", "copied", "lost"):
        with fpdb.open(tmp_path / name) as copy:
            assert not list(copy.check()), name
            assert (sorted(copy.pairs()), answers_of(copy, texts)) == wanted, name
            assert copy.stats().sketches == 50
            if name in {"backup", "same", "other", "repaired", "lost"}:  # which keep ids
                assert list(copy.scan()) == stored, name
    with fpdb.open(tmp_path / "larger") as copy:
        assert not list(copy.check())
        assert copy.plan.bands == choose_bands(0.8, 10**8)
        equal, all_equal = (
            {pair for pair in found if pair.similarity == 1} for found in (copy.pairs(), wanted[0])
        )
        assert equal == all_equal
        assert equal


def answers_of(db: Database, texts: list[str]) -> list[list[Any]]:
    return [
        [match._replace(id=0) for match in matches]
        for matches in db.query_many(texts * 3, similarity=0.7)
    ]


def test_clusters_of_many_copies_are_those_of_all_pairs(tmp_path):
    dice = random.Random(11)
    kinds = families(dice, 25)
    # Few words in another order have the same fingerprint, and other shingles.
    words = dice.choices(WORDS, k=12)
    kinds += [" ".join(dice.sample(words, 12)) for _ in range(5)]
    texts = [dice.choice(kinds[:6] + kinds[20:]) for _ in range(300)] + kinds
    stored = {f"{number:03}": text for number, text in enumerate(texts)}
    with fpdb.create(tmp_path / "db") as db:
        list(db.add_many(Document(key, text) for key, text in stored.items()))
        db.add_fingerprints([f"bare {n}" for n in range(20)], [WEB.fingerprint(kinds[0])] * 20)
        pairs = {(pair.key, pair.other, pair.similarity) for pair in db.pairs(similarity=0.6)}
        expected = connected(pairs)
        clusters = [cluster.keys for cluster in db.clusters(similarity=0.6, chains=True)]
        assert {frozenset(keys) for keys in clusters} == expected
        assert len(clusters) == len(expected)
        assert [keys[0] for keys in clusters] == sorted(map(min, clusters))
        deleted = [key for each in db.delete_duplicates(similarity=0.6) for key in each.duplicates]
        assert len(deleted) == sum(map(len, expected)) - len(expected)


def test_a_digest_is_made_where_a_text_is_compared_only(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(1)
    page, other = (" ".join(f"w{dice.random()}" for _ in range(90)) for _ in range(2))
    made: list[str] = []
    digest, digests = fpdb.Recipe.digest, fpdb.Recipe.digests
    with fpdb.create(path) as db:
        list(db.add_many([Document("page", page), Document("short", "C++")]))

        def counted(recipe: fpdb.Recipe, text: str, *, short: bool = False) -> bytes:
            made.append(text)
            return digest(recipe, text, short=short)

        def counted_many(recipe: fpdb.Recipe, texts: list[str], short: list[bool]) -> list[bytes]:
            made.extend(texts)
            return digests(recipe, texts, short)

        monkeypatch.setattr(fpdb.Recipe, "digest", counted)
        monkeypatch.setattr(fpdb.Recipe, "digests", counted_many)
        for ask in (db.query, lambda text, **how: next(iter(db.query_many([text], **how)))):
            for text, how, keys in (
                (page, {}, ["page"]),
                ("C++", {}, ["short"]),
                (other, {}, []),
                (page, {"k": 3}, ["page"]),
            ):
                made.clear()
                assert [match.key for match in ask(text, **how)] == keys
                assert bool(made) == (bool(keys) and not how)
