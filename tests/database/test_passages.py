"""Copied parts: what is found, against all texts read one by one, and how it is kept."""

import gzip
import itertools
import random
from pathlib import Path

import pytest

import fpdb
from fpdb import Document
from fpdb.documents import parts
from fpdb.joins import pairs as pairs_of_parts
from fpdb.tables import passages as tables

WEB = fpdb.recipe("web")


def words(dice: random.Random, count: int) -> list[str]:
    return ["".join(dice.choices("abcdefghij", k=5)) for _ in range(count)]


def mixed(seed: int, count: int = 40) -> dict[str, str]:
    """Make texts, most of which have a part of some other one."""
    dice = random.Random(seed)
    texts: list[list[str]] = []
    for _ in range(count):
        own = words(dice, dice.randrange(20, 150))
        if texts and dice.random() < 0.7:
            other = dice.choice(texts)
            size = min(len(other), dice.randrange(10, 100))
            start = dice.randrange(len(other) - size + 1)
            at = dice.randrange(len(own))
            own[at:at] = other[start : start + size]
        texts.append(own)
    return {f"text {number}": " ".join(own) for number, own in enumerate(texts)}


def numbers(text: str) -> set[int]:
    return set(WEB.placed_passages(text).numbers.tolist())


@pytest.fixture
def texts() -> dict[str, str]:
    return mixed(36)


@pytest.fixture
def filled(tmp_path: Path, texts: dict[str, str]):
    with fpdb.create(tmp_path / "db", passages=True) as db:
        list(db.add_many([Document(key, text) for key, text in texts.items()]))
        yield db


def found(db: fpdb.Database, text: str, **options) -> set[str]:
    return {str(match.key) for match in db.passages(text, **options)}


def expected(texts: dict[str, str], text: str) -> set[str]:
    return {key for key, other in texts.items() if numbers(other) & numbers(text)}


def test_all_documents_that_share_a_number_are_found(filled, texts):
    for text in mixed(37).values():
        assert found(filled, text) == set()
    for key, text in texts.items():
        assert found(filled, text) == expected(texts, text) >= {key}


def test_estimates_are_those_of_the_words(filled, texts):
    for text in texts.values():
        own = text.split()
        for match in filled.passages(text):
            other = texts[match.key].split()
            pairs = set(itertools.pairwise(other))
            shared = sum(pair in pairs for pair in itertools.pairwise(own)) + 1
            assert abs(match.words - shared) <= 30
            assert match.share == match.words / len(own)
            assert match.other_share == pytest.approx(min(match.words / len(other), 1), rel=0.02)
            if text == texts[match.key]:
                assert (match.words, match.share) == (len(own), 1.0)


def test_a_whole_document_in_a_longer_text_is_found_by_its_own_share(filled, texts):
    dice = random.Random(3)
    key, text = max(texts.items(), key=lambda item: len(item[1]))
    longer = " ".join([*words(dice, 300), text, *words(dice, 300)])
    [best, *_] = filled.passages(longer)
    assert best.key == key
    assert best.other_share > 0.85 > 0.4 > best.share
    assert key in found(filled, longer, least=0.8)
    assert key not in found(filled, " ".join([*words(dice, 300), text[:300]]), least=0.9)


def test_each_has_most_that_none_before_it_has(filled, texts):
    both = [" ".join([one, two]) for one, two in itertools.pairwise(texts.values())]
    for text in [*texts.values(), *both]:
        matches, left = filled.passages(text), numbers(text)
        for place, match in enumerate(matches):
            adds = [len(left & numbers(texts[each.key])) for each in matches[place:]]
            rank = [(-more, -each.words) for more, each in zip(adds, matches[place:], strict=True)]
            assert rank[0] == min(rank)
            left -= numbers(texts[match.key])
        assert filled.passages(text, limit=1) == matches[:1]


def test_the_sources_of_all_parts_come_before_others_of_one(tmp_path):
    dice = random.Random(4)
    first, second = words(dice, 150), words(dice, 60)
    with fpdb.create(tmp_path / "db", passages=True) as db:
        for size in (75, 100, 125, 150):
            db.add(str(size), " ".join(first[:size] + words(dice, 200)))
        db.add("second", " ".join(second))
        matches = db.passages(" ".join(first + second))
    assert [match.key for match in matches] == ["150", "second", "125", "100", "75"]


def test_replaced_and_deleted_documents_are_not_found(filled, texts):
    first, second, *_ = texts
    new = mixed(38, 1)["text 0"]
    filled.add(first, new)
    filled.delete(second)
    assert first not in expected({first: texts[first]}, new)
    assert found(filled, texts[first]) == expected(texts, texts[first]) - {first, second}
    assert found(filled, new) == {first}
    assert not list(filled.check())
    for key in texts:
        filled.delete(key)
    assert filled.stats().tables[-1].name == "passages"
    assert filled.stats().tables[-1].pages == 0


@pytest.mark.process
def test_they_outlive_all_ways_to_make_a_database_anew(filled, texts, tmp_path):
    text = texts["text 30"]
    wanted = filled.passages(text)
    filled.compact(tmp_path / "compact", capacity=100)
    filled.backup(tmp_path / "backup")
    fpdb.repair(filled.path, tmp_path / "repaired")
    with fpdb.create(tmp_path / "empty", passages=True):
        pass
    fpdb.load(tmp_path / "copied", [filled.path, tmp_path / "empty"])
    with gzip.open(tmp_path / "dump.fpdb.jsonl.gz", "wb") as file:
        filled.dump(file)
    fpdb.load(tmp_path / "loaded", str(tmp_path / "dump.fpdb.jsonl.gz"))
    for name in ("compact", "backup", "repaired", "copied", "loaded"):
        with fpdb.open(tmp_path / name) as other:
            matches = other.passages(text)
            assert [match[2:] for match in matches] == [match[2:] for match in wanted], name
            assert not list(other.check())


def test_a_database_without_passages_is_no_place_for_them(filled, texts, tmp_path):
    with fpdb.create(tmp_path / "plain") as plain:
        with pytest.raises(fpdb.InputError, match="keeps no passages"):
            plain.passages("a text")
        with pytest.raises(fpdb.InputError, match="keeps no passages"):
            plain.passage_pairs()
    with pytest.raises(fpdb.RecipeMismatchError, match="passages"):
        fpdb.load(tmp_path / "copied", [filled.path, tmp_path / "plain"])


def test_a_database_gets_passages_when_its_texts_are_added_again(filled, texts, tmp_path):
    documents = [Document(key, text, {"size": len(text)}) for key, text in texts.items()]
    with fpdb.create(tmp_path / "plain") as plain:
        list(plain.add_many(documents))
        before = list(plain.scan())
        plain.compact(passages=True)
    with fpdb.open(tmp_path / "plain") as plain:
        assert list(plain.scan()) == before
        assert not plain.passages(texts["text 30"])
        changed = Document("text 1", "another text", before[1].meta)
        statuses = [each.status for each in plain.add_many([*documents[2:], changed])]
        assert {*statuses[:-1]} == {"replaced"}
        assert [each.id for each in plain.scan()] == [each.id for each in before]
        for text in texts.values():
            assert found(plain, text) == expected(texts, text) - {"text 0", "text 1"}
        assert {each.status for each in plain.add_many(documents[2:])} == {"unchanged"}
        assert not list(plain.check())


@pytest.mark.parametrize("least", [-0.1, 1.1])
def test_a_share_is_from_0_to_1(filled, least):
    with pytest.raises(fpdb.InputError, match=str(least)):
        filled.passages("a text", least=least)


def test_boilerplate_leads_to_no_document_but_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST_OF_A_PASSAGE", 5)
    dice = random.Random(5)
    footer, own = words(dice, 100), words(dice, 100)
    with fpdb.create(tmp_path / "db", passages=True) as db:
        documents = [Document(str(n), " ".join(words(dice, 50) + footer)) for n in range(6)]
        list(db.add_many(documents))
        db.add("own", " ".join(own + footer))
        alone = db.passages(" ".join(footer))
        assert not alone
        assert alone.boilerplate == pytest.approx(100, abs=20)
        assert not alone.complete
        assert db.passages(" ".join(own)).complete
        [match] = db.passages(" ".join(own + footer))
        assert (match.key, match.words) == ("own", 200)


def test_an_answer_with_too_many_documents_is_not_complete(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST_COMPARED", 3)
    dice = random.Random(6)
    text = words(dice, 120)
    with fpdb.create(tmp_path / "db", passages=True) as db:
        for size in (40, 60, 80, 100):
            db.add(str(size), " ".join(text[:size]))
        matches = db.passages(" ".join(text))
        assert not matches.complete
        assert {match.key for match in matches} == {"60", "80", "100"}


def test_a_crowd_that_hides_a_document_makes_its_answer_incomplete(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOST_OF_A_PASSAGE", 20)
    victim = words(random.Random(7), 200)
    pieces = [" ".join(victim[at : at + 60]) for at in range(0, 150, 10)]
    with fpdb.create(tmp_path / "db", passages=True) as db:
        db.add("victim", " ".join(victim))
        assert db.passages(" ".join(victim)).complete
        for number in range(21):
            list(db.add_many(Document(f"{number} {at}", own) for at, own in enumerate(pieces)))
        matches = db.passages(" ".join(victim))
    assert (list(matches), matches.complete) == ([], False)
    assert matches.boilerplate > 150


def test_equal_upper_bits_alone_are_no_match(filled, texts, monkeypatch):
    monkeypatch.setattr(tables, "row_numbers", lambda numbers: numbers & 1)
    monkeypatch.setattr(parts, "row_numbers", lambda numbers: numbers & 1)
    with fpdb.create(filled.path.with_name("narrow"), passages=True) as db:
        list(db.add_many([Document(key, text) for key, text in texts.items()]))
        for text in texts.values():
            assert found(db, text) == expected(texts, text)


@pytest.mark.parametrize("held", [1, 1 << 23])
@pytest.mark.parametrize("least", [0.0, 0.3])
def test_pairs_are_all_that_share_numbers(filled, texts, monkeypatch, held, least):
    monkeypatch.setattr(pairs_of_parts, "_HELD_PARTS", held)
    monkeypatch.setattr(pairs_of_parts, "_READ_PARTS", 7)
    pairs = list(filled.passage_pairs(least=least))
    keys = list(texts)
    own = {key: numbers(text) for key, text in texts.items()}
    wanted = {
        (a, b): (len(own[a] & own[b]) / len(own[a]), len(own[a] & own[b]) / len(own[b]))
        for at, a in enumerate(keys)
        for b in keys[at + 1 :]
        if own[a] & own[b]
    }
    wanted = {pair: shares for pair, shares in wanted.items() if max(shares) >= least}
    assert len(wanted) > 10
    assert {(pair.key, pair.other): pair[3:] for pair in pairs} == wanted
    assert len(pairs) == len(wanted)


def test_integer_keys(tmp_path, texts):
    with fpdb.create(tmp_path / "numbered", passages=True, keys="integer") as db:
        list(db.add_many([Document(n, text) for n, text in enumerate(texts.values())]))
        for text in texts.values():
            keys = {f"text {match.key}" for match in db.passages(text)}
            assert keys == expected(texts, text)
        assert all(type(pair.key) is int for pair in db.passage_pairs())
        assert not list(db.check())
        # The largest key is in the last range of ids.
        db.add(2**64 - 1, next(iter(texts.values())))
        assert (0, 2**64 - 1, 1.0) in [(p.key, p.other, p.share) for p in db.passage_pairs()]
