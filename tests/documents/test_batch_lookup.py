"""Documents that are added together resemble what they do if they are added one after the other."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb import Document
from fpdb.documents import batch_lookup, groups, lookup
from fpdb.documents.writer import Writer
from fpdb.storage.block import Block
from fpdb.storage.format import Stored
from fpdb.tables import bands, batch

KINDS = [(None, 3, "web"), (None, 3, "web-128"), (None, 5, "web"), (0.8, 3, "web")]


def edited(dice, sketch, most):
    changed = bytearray(sketch)
    for place in dice.sample(range(128), dice.randrange(most)):
        changed[place] ^= 255
    return bytes(changed)


def documents(dice, count, bits=64, *, numbered=False, sketched=True):
    """Make documents of a few families, under few keys, some of them in each way that there is."""
    families = [(dice.getrandbits(bits), dice.randbytes(128)) for _ in range(6)]
    digests = [dice.randbytes(16) for _ in range(9)]
    found = []
    for _ in range(count):
        key = dice.randrange(count)
        fingerprint, sketch = dice.choice(families)
        for place in dice.sample(range(bits), dice.choice([0, 0, 1, 2, 5])):
            fingerprint ^= 1 << place
        fields = {"digest": dice.choice(digests), "sketch": edited(dice, sketch, 40)}
        match dice.randrange(6):
            case 0:  # a ready fingerprint
                fields = {}
            case 1:
                fingerprint, fields = None, {"digest": dice.choice([bytes(16), *digests[:3]])}
            case 2:  # a text without a sketch
                del fields["sketch"]
        if not sketched:
            fields.pop("sketch", None)
        number, name = (key, key) if numbered else (0, f"key {key}")
        meta = dice.choice([b"", b"\x01"])
        found.append(Stored(number, name, fingerprint, 1000, meta=meta, **fields))
    return found


def one_by_one(db, added, *, skip=True, newer=False, similarity=None):
    """Add each document when those before it are written, but wait for no disk."""
    search = db._search(None, None, similarity) if skip else None
    with db._environment.write() as txn:
        return [
            own
            for each in added
            for own in Writer(txn, db._index, db._catalog).add(
                Block.of([each], db.plan.bits), search, newer=newer
            )
        ]


def assert_the_same(together, alone):
    assert together == alone
    assert [own.matches.complete for own in together] == [own.matches.complete for own in alone]


@pytest.mark.filterwarnings("ignore::fpdb.errors.IncompleteWarning")  # of a lower similarity
@pytest.mark.parametrize("keys", ["text", "integer"])
@pytest.mark.parametrize(("similarity", "k", "recipe"), KINDS)
@settings(max_examples=examples(14))
@given(
    seed=st.integers(0, 2**32 - 1),
    most=st.sampled_from([3, 8, 10_000]),
    held=st.sampled_from([4, 100, 1 << 20]),
    few=st.sampled_from([1, 20, 128]),
    newer=st.booleans(),
    grouped=st.booleans(),
    least=st.sampled_from([None, 0.7, 0.9]),
)
def test_a_batch_is_as_one_document_after_the_other(
    tmp_path_factory, keys, similarity, k, recipe, seed, most, held, few, newer, grouped, least
):
    dice, path = random.Random(seed), tmp_path_factory.mktemp("added")
    bits = 128 if recipe == "web-128" else 64
    kind = {"numbered": keys == "integer", "sketched": similarity is not None}
    batches = [documents(dice, 30, bits, **kind) for _ in range(3)]
    # Some of them are unchanged, and may be newer all the same.
    batches[2] = [
        document._replace(added=dice.choice([1000, 2000]))
        for document in dice.sample(batches[0] + batches[1], 25)
    ]
    options = {"similarity": similarity, "k": k, "recipe": recipe, "keys": keys, "capacity": 1000}
    options["groups"] = grouped and similarity is not None
    least = least if similarity else None
    with (
        pytest.MonkeyPatch.context() as patch,
        fpdb.create(path / "together", **options) as db,
        fpdb.create(path / "alone", **options) as other,
    ):
        patch.setattr(lookup, "DOCUMENTS", most)
        patch.setattr(bands, "MOST_OF_A_BAND", most)
        patch.setattr(bands, "MOST_COMPARED", most + 2)
        patch.setattr(batch_lookup, "_HELD", held)
        patch.setattr(batch, "_HELD", 10 * held)
        patch.setattr(lookup, "FEW", few)
        patch.setattr(groups, "CHECKED", 2)
        for number, some in enumerate(batches):
            skip = number > 0  # the first ones are stored in any case, so that there are crowds
            similar = {"similarity": least if skip else None}
            together = db.add_prepared(
                Block.of(some, bits), skip_duplicates=skip, newer=newer, **similar
            )
            assert_the_same(together, one_by_one(other, some, skip=skip, newer=newer, **similar))
            gone = [document.key for document in db.scan() if dice.random() < 0.1]
            assert db.delete_many(gone) == other.delete_many(gone)
            assert list(db.scan()) == list(other.scan())
        assert not list(db.check())


def test_a_budget_cuts_the_search_of_a_batch_as_that_of_a_document(tmp_path, monkeypatch):
    """What a cut search finds depends on the pages, but an equal fingerprint is always found."""
    monkeypatch.setattr(lookup, "CANDIDATES", 50)
    crowd = [Stored(0, f"{n}", n << 4, 1000) for n in range(90)]
    with fpdb.create(tmp_path / "db", similarity=None, k=3) as db:
        db.add_prepared(Block.of(crowd, 64))
        again = [each._replace(key=f"again {each.key}") for each in crowd]
        added = db.add_prepared(Block.of(again + again[:3], 64), skip_duplicates=True)
    assert {each.status for each in added} == {"duplicate"}
    assert not any(each.matches.complete for each in added)
    assert all(own.key[6:] in [match.key for match in own.matches] for own in added)


def test_many_equal_documents_are_compared_in_parts(tmp_path, monkeypatch):
    """All with all would be too many pairs to hold."""
    monkeypatch.setattr(batch_lookup, "_HELD", 2000)
    monkeypatch.setattr(batch_lookup, "_FEW", 40)
    text = " ".join(f"word{n}" for n in range(50))
    with fpdb.create(tmp_path / "db") as db:
        same = [Document(f"{n}", f"{text} {n}") for n in range(300)]
        added = list(db.add_many(same, skip_duplicates=True))
    assert [each.status for each in added] == ["added", *["duplicate"] * 299]
    assert all([match.key for match in each.matches] == ["0"] for each in added[1:])
