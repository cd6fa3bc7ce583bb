"""Pages of text keys: the same bytes with kernels and without, and what a sorted list holds."""

import random
from pathlib import Path
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples
from twins import defined

import fpdb
from fpdb import kernels
from fpdb.documents.catalog import find_key, key_pages
from fpdb.errors import DamagedError
from fpdb.storage.number_pages import LARGEST, summed
from fpdb.storage.text_pages import (
    TextEntry,
    find_texts,
    pack_texts,
    unpack_texts,
)

SEEDS = st.integers(0, 2**32 - 1)


def drawn(dice: random.Random, count: int) -> list[TextEntry]:
    """Draw sorted texts that share much, little or nothing, some of them as long as LMDB allows."""
    longest = dice.choice([3, 20, 200, 511])
    start = dice.randbytes(dice.randrange(longest))
    texts = {
        (start[: dice.randrange(longest)] + dice.randbytes(dice.randrange(1, 9)))[:longest].ljust(
            dice.choice([0, longest]), dice.choice([b"a", b"\0", b"\xff"])
        )
        for _ in range(count)
    }
    bits = dice.choice([0, 1, 20, 64])
    return [(text, dice.getrandbits(dice.randint(0, bits))) for text in sorted(texts)]


def page_of(entries: list[TextEntry], seed: int) -> bytes:
    return bytes(summed(pack_texts(entries)[0], seed))


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_pages_are_packed_and_read_as_defined(seed: int) -> None:
    dice = random.Random(seed)
    entries = drawn(dice, dice.randrange(1, 400))
    first = dice.randrange(len(entries))
    page, after = pack_texts(entries, first)
    assert first < after
    assert len(page) <= LARGEST
    packed = summed(bytearray(page), seed)
    kept = entries[first:after]
    assert unpack_texts(packed, seed) == kept
    asked = [text for text, _ in dice.sample(entries, min(len(entries), 20))]
    asked += [text + b"!" for text in asked]
    asked += dice.choices(asked, k=3)
    asked.sort()
    place = dice.randrange(len(asked))
    found = find_texts(memoryview(packed), seed, asked, place)
    known = dict(kept)
    end = place + len(found)
    assert found == [known.get(text) for text in asked[place:end]]
    assert end > place
    assert all(text <= kept[-1][0] for text in asked[place + 1 : end])
    assert all(text > kept[-1][0] for text in asked[end:])
    with defined():
        assert pack_texts(entries, first) == (page, after)
        assert unpack_texts(packed, seed) == kept
        assert find_texts(memoryview(packed), seed, asked, place) == found


@pytest.mark.skipif(not kernels.available, reason="compares kernels with their definition")
@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_entries_are_put_into_a_page_as_packed_with_them(seed: int) -> None:
    dice = random.Random(seed)
    every = drawn(dice, dice.randrange(2, 300))
    news = [entry for entry in every if dice.random() < dice.choice([0.02, 0.5])] or every[:1]
    olds = [entry for entry in every if entry not in news or dice.random() < 0.2]
    olds = [(text, dice.getrandbits(8) if (text, own) in news else own) for text, own in olds]
    page, after = pack_texts(olds)
    olds, old = olds[:after], bytes(summed(page, seed))
    digest = xxhash.xxh3_64_intdigest(old[4:], seed)
    grown = kernels.text_pages.inserted(old, digest, [*news, *every], 0, len(news))
    both = sorted((dict(olds) | dict(news)).items())
    wanted, end = pack_texts(both)
    wider = page[6] < wanted[6] or page[6] < max(number.bit_length() + 7 for _, number in news) // 8
    if grown is None:
        # Packed anew, ids may become narrower too, and so more entries may fit.
        assert end < len(both) or page[6] != wanted[6] or wider
    else:
        assert not wider
        if grown[6] == wanted[6]:  # an id that is replaced may have been the widest
            assert grown == wanted
        assert unpack_texts(summed(grown, seed), seed) == both
    assert kernels.text_pages.inserted(old, digest ^ 1, news, 0, len(news)) is None


@settings(max_examples=examples(300))
@given(seed=SEEDS)
def test_a_forged_page_is_read_as_defined_or_not_at_all(seed: int) -> None:
    """Whatever has the right checksum."""
    dice = random.Random(seed)
    page = bytearray(page_of(drawn(dice, dice.randrange(1, 30)), 0))
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(4, len(page))
        page[at] = dice.choice([0, 1, 127, 128, 255, dice.randrange(256)])
    if dice.random() < 0.3:
        del page[dice.randrange(4, len(page)) :]
    summed(page, 0)
    outcomes: list[Any] = []
    for once in (lambda: unpack_texts(page, 0), lambda: unpack_texts(bytes(page), 0)):
        try:
            outcomes.append(once())
        except DamagedError as error:
            outcomes.append(str(error))
        with defined():
            try:
                outcomes.append(once())
            except DamagedError as error:
                outcomes.append(str(error))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    if kernels.available:
        entries = drawn(dice, 9)
        digest = xxhash.xxh3_64_intdigest(bytes(page[4:]), 0)
        kernels.text_pages.inserted(page, digest, entries, 0, len(entries))
        kernels.text_pages.numbers_of(page, digest, [text for text, _ in entries], 0)


@pytest.mark.parametrize("compiled", [True, False])
def test_keys_are_spliced_as_into_a_sorted_list(tmp_path: Path, *, compiled: bool) -> None:
    dice = random.Random(5)
    known: dict[bytes, int] = {}
    with fpdb.create(tmp_path / "db") as db, pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "enabled", compiled and kernels.available)
        for _ in range(25):
            come = dict(drawn(dice, dice.choice([1, 1, 30, 300])))
            gone = set(dice.sample(sorted(known), min(len(known), dice.choice([0, 2, 100]))))
            gone |= {text + b"!" for text in [*known][:3]}
            gone -= come.keys()
            with db._environment.write() as txn:
                key_pages.splice(txn, sorted(come.items()), [(text, 0) for text in sorted(gone)])
                known = {text: own for text, own in known.items() if text not in gone} | come
                pages = list(key_pages.scan(txn))
                assert [entry for page in pages for entry in page] == sorted(known.items())
                for text in dice.sample(sorted(known), min(len(known), 9)):
                    assert find_key(txn, text) == known[text]
                    assert find_key(txn, text + b"!") == known.get(text + b"!")
        with db._environment.write() as txn:
            key_pages.splice(txn, [], sorted(known.items()))
            assert txn.entries("keys") == 0
            assert find_key(txn, b"x") is None


def test_pages_of_keys_are_well_filled(tmp_path: Path) -> None:
    dice = random.Random(6)
    keys = sorted({b"https://www.example.org/%020x" % dice.getrandbits(80) for _ in range(9000)})
    entries = list(zip(keys, range(9000), strict=False))
    least = sum(len(page_of(entries[start : start + 100], 0)) for start in range(0, 9000, 100))

    def fill_of(name: str, *batches: list[TextEntry]) -> float:
        with fpdb.create(tmp_path / name) as db, db._environment.write() as txn:
            for batch in batches:
                key_pages.splice(txn, batch, [])
            return least / LARGEST / txn.entries("keys")

    with fpdb.create(tmp_path / "loaded") as db, db._environment.write() as txn:
        key_pages.fill(txn, [entries])
        assert least / LARGEST / txn.entries("keys") > 0.97
    # What comes in its order fills pages, as in a load.
    in_order = [entries[start : start + 50] for start in range(0, 9000, 50)]
    assert fill_of("in order", *in_order) > 0.97
    dice.shuffle(entries)
    assert fill_of("random", *(sorted(entries[n : n + 50]) for n in range(0, 9000, 50))) > 0.75


def test_the_bytes_of_a_page_of_keys_stay_what_they_are() -> None:
    """The format of released databases: this must not change."""
    long = b"http://b" + b"c" * 130
    entries = [(b"http://a", 5), (b"http://ab", 258), (long, 0)]
    page = page_of(entries, key_pages.seed_at(entries[0][0]))
    body = b"\3\0\2" + b"\0\x08http://a\5\0" + b"\x08\1b\2\1" + b"\7\x83\1b" + b"c" * 130 + b"\0\0"
    assert page[4:] == body
    assert page[:4].hex() == "e598e88b"


def test_a_key_before_all_others_is_the_first_of_its_page(tmp_path: Path) -> None:
    with fpdb.create(tmp_path / "db") as db:
        for key in ("14", "20", "10", "05"):
            db.add(key, f"these are some words of the text {key}")
            assert not list(db.check())
        assert list(db) == ["05", "10", "14", "20"]
