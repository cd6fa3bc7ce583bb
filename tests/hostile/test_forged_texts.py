"""Forged fingerprints: what anybody can do to an unkeyed recipe, and nobody to a keyed one."""

import random
import time

import numpy as np
import pytest
import xxhash

import fpdb
from fpdb import Hash, Secret
from fpdb.fingerprint.sketches import BINS, mix, salts

WEB, WORDS = fpdb.recipe("web"), fpdb.recipe("words")
FILLERS = [f"filler{number:x}" for number in range(20_000)]


def page(seed, words=400):
    chosen = random.Random(seed)
    return " ".join(f"w{chosen.randrange(3000):x}" for _ in range(words))


def forge(text, victim, most=100):
    """Append words to a text until it has the victim's fingerprint, with public knowledge alone."""

    def signs(words):
        hashes = np.array([xxhash.xxh3_64_intdigest(word.encode()) for word in words], np.uint64)
        bits = hashes[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)
        return np.where(bits == 1, 1.0, -1.0)

    number = WORDS.fingerprint(victim)
    wanted = np.array([1.0 if number >> bit & 1 else -1.0 for bit in range(64)])
    features = WORDS.features(text)
    # How far each bit is on the victim's side; every word moves each of them by one.
    lead = (signs(features) * np.array(list(features.values()))[:, None]).sum(0) * wanted
    moves = signs(FILLERS) * wanted
    added = []
    while (lead <= 0).any() and len(added) < most:
        best = int(np.minimum(moves + lead, 1.0).sum(1).argmax())
        added.append(FILLERS[best])
        lead += moves[best]
        moves[best] = -1e9
    return f"{text} {' '.join(added)}", len(added)


def forge_sketch(text, victim, tries=1 << 17):
    """Append three words for each bin of the victim's sketch that win it, by public knowledge."""
    triples = [f"a{number:x} b{number:x} c{number:x}" for number in range(tries)]
    found = mix(np.concatenate(WEB.shingles_many(triples)) + salts(16, 1)[0])
    bins, values = found >> np.uint64(56), found & np.uint64((1 << 52) - 1)
    packed = WEB.batch([victim], sketches=True).sketches[0]
    wanted = np.column_stack([packed & 15, packed >> 4]).reshape(BINS)
    right = np.flatnonzero(values & np.uint64(15) == wanted[bins])
    order = right[np.lexsort((values[right], bins[right]))]
    _, first = np.unique(bins[order], return_index=True)
    return f"{text} {' '.join(triples[number] for number in order[first])}"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 5))]
)
def test_a_few_dozen_words_forge_an_unkeyed_fingerprint_in_a_second(seed):
    text, victim = page(seed), page(seed + 1000)
    assert fpdb.compare(text, victim, recipe=WORDS).distance > 16
    before = time.process_time()
    forged, words = forge(text, victim)
    assert time.process_time() - before < 2
    assert fpdb.compare(forged, victim, recipe=WORDS).distance == 0
    assert words <= 80
    assert fpdb.compare(forged, victim, recipe=WORDS).jaccard < 0.2


@pytest.mark.full
@pytest.mark.parametrize("by", ["xxh3", "blake2b"])
def test_what_is_forged_without_the_secret_is_as_far_as_any_text(by):
    pages = [page(seed) for seed in range(10)]
    victims = [page(seed + 1000) for seed in range(10)]
    forged = [forge(text, victim)[0] for text, victim in zip(pages, victims, strict=True)]
    assert all(
        fpdb.compare(*pair, recipe=WORDS).distance == 0
        for pair in zip(forged, victims, strict=True)
    )

    def distances(texts):
        found = []
        for key in range(20):
            secret = Secret(key.to_bytes(32, "big"))
            keyed = WORDS.replace(name="keyed", hash=Hash(by=by, secret=secret))
            pairs = zip(keyed.fingerprint_many(texts), keyed.fingerprint_many(victims), strict=True)
            found += [fpdb.distance(int(a), int(b)) for a, b in pairs]
        return np.array(found)

    forgeries, honest = distances(forged), distances(pages)
    # 200 pairs under 20 keys: the standard error of a mean is below 0.4 bits.
    assert abs(forgeries.mean() - honest.mean()) < 2
    assert forgeries.min() > 8


@pytest.mark.parametrize("similarity", [None, 0.8])
def test_a_forged_page_keeps_its_victim_out_of_an_unkeyed_database_only(tmp_path, similarity):
    text, victim = page(1), page(2)
    forged = forge_sketch(text, victim) if similarity else forge(text, victim)[0]
    unkeyed = WEB if similarity else WORDS
    secret = Hash(by=unkeyed.hash.by, secret=Secret(bytes(range(32))))
    outcomes = {}
    for name, recipe in {"unkeyed": unkeyed, "keyed": unkeyed.replace(hash=secret)}.items():
        with fpdb.create(tmp_path / name, recipe=recipe, similarity=similarity) as db:
            db.add("forged", forged)
            outcomes[name] = db.add("victim", victim, skip_duplicates=True).status
    assert outcomes == {"unkeyed": "duplicate", "keyed": "added"}


def test_a_forged_fingerprint_alone_keeps_no_text_out_of_a_database_of_similar_texts(tmp_path):
    text, victim = page(1), page(2)
    with fpdb.create(tmp_path / "db", recipe="words", similarity=0.8) as db:
        db.add("forged", forge(text, victim)[0])
        assert db.query(victim, k=0)[0].key == "forged"
        assert db.add("victim", victim, skip_duplicates=True).status == "added"


def test_three_words_for_each_bin_forge_an_unkeyed_sketch():
    text, victim = page(5), page(6)
    forged = forge_sketch(text, victim)
    assert len(forged.split()) - len(text.split()) == 3 * BINS
    found = fpdb.compare(forged, victim)
    assert found.sketch_jaccard > 0.85
    assert found.shingle_jaccard == 0
    keyed = WEB.replace(name="keyed", hash=Hash(secret=Secret(bytes(range(32)))))
    assert fpdb.compare(forged, victim, recipe=keyed).sketch_jaccard < 0.15
