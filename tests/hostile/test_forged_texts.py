"""Forged fingerprints: what anybody can do to an unkeyed recipe, and nobody to a keyed one."""

import random
import re
import time

import numpy as np
import pytest
import xxhash

import fpdb
from fpdb import Hash, Secret

WEB = fpdb.recipe("web")
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

    number = WEB.fingerprint(victim)
    wanted = np.array([1.0 if number >> bit & 1 else -1.0 for bit in range(64)])
    features = WEB.features(text)
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


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 5))]
)
def test_a_few_dozen_words_forge_an_unkeyed_fingerprint_in_a_second(seed):
    text, victim = page(seed), page(seed + 1000)
    assert fpdb.compare(WEB, text, victim).distance > 16
    before = time.process_time()
    forged, words = forge(text, victim)
    assert time.process_time() - before < 2
    assert fpdb.compare(WEB, forged, victim).distance == 0
    assert words <= 80
    assert fpdb.compare(WEB, forged, victim).jaccard < 0.2


@pytest.mark.full
@pytest.mark.parametrize("by", ["xxh3", "blake2b"])
def test_what_is_forged_without_the_secret_is_as_far_as_any_text(by):
    pages = [page(seed) for seed in range(10)]
    victims = [page(seed + 1000) for seed in range(10)]
    forged = [forge(text, victim)[0] for text, victim in zip(pages, victims, strict=True)]
    assert all(fpdb.compare(WEB, *pair).distance == 0 for pair in zip(forged, victims, strict=True))

    def distances(texts):
        found = []
        for key in range(20):
            secret = Secret(key.to_bytes(32, "big"))
            keyed = WEB.replace(name="keyed", hash=Hash(by=by, secret=secret))
            pairs = zip(keyed.fingerprint_many(texts), keyed.fingerprint_many(victims), strict=True)
            found += [fpdb.distance(int(a), int(b)) for a, b in pairs]
        return np.array(found)

    forgeries, honest = distances(forged), distances(pages)
    # 200 pairs under 20 keys: the standard error of a mean is below 0.4 bits.
    assert abs(forgeries.mean() - honest.mean()) < 2
    assert forgeries.min() > 8


def test_a_forged_page_keeps_its_victim_out_of_an_unkeyed_database_only(tmp_path):
    text, victim = page(1), page(2)
    forged, _ = forge(text, victim)
    keyed = WEB.replace(name="keyed", hash=Hash(secret=Secret(bytes(range(32)))))
    outcomes = {}
    for name, recipe in {"unkeyed": WEB, "keyed": keyed}.items():
        with fpdb.create(tmp_path / name, recipe=recipe) as db:
            db.add("forged", forged)
            outcomes[name] = db.add("victim", victim, skip_duplicates=True).status
    assert outcomes == {"unkeyed": "duplicate", "keyed": "added"}


def test_the_forged_words_are_plain_words():
    forged, _ = forge(page(3), page(4))
    assert re.fullmatch(r"[a-z0-9 ]+", forged)
