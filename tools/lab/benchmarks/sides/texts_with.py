"""Look texts up in an index, and add each that is like none of it: one package, one core.

Called with the name of a side, a language, a file of JSON lines, and an empty folder. It prints the
seconds that all texts took, the places of those that were found, and the version of the package.
"""

import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path

import peers

SIMILAR = 0.8
WORDS, CHARACTERS = 3, 5


def shingles(text, language):
    """Cut a text into runs of three words, or of five characters, as users of a package do."""
    if language == "zh":
        return {text[at : at + CHARACTERS] for at in range(len(text) - CHARACTERS + 1)}
    words = text.lower().split()
    return set(map(" ".join, zip(words, words[1:], words[2:], strict=False)))


def with_fpdb(**settings):
    """Return what adds texts to a database on disk; what it adds is durable."""

    def make(_language, folder, count):
        import fpdb

        database = fpdb.create(folder / "db", keys="integer", capacity=count, **settings)

        def run(texts):
            documents = (fpdb.Document(number, text) for number, text in enumerate(texts))
            added = database.add_many(documents, skip_duplicates=True)
            return [each.key for each in added if each.status in ("duplicate", "unchanged")]

        return run

    return make


def one_by_one(index, cut=lambda text: text):
    """Return what looks each text up in a peer's index, and adds those that are like none."""

    def run(texts):
        found = []
        for number, text in enumerate(texts):
            sketch = index.sketch(cut(text))
            if index.find(sketch):
                found.append(number)
            else:
                index.add(number, sketch)
        return found

    return run


def with_peer(kind):
    """Return what looks up the sketches of shingles that are cut in Python."""
    return lambda language, *_: one_by_one(kind(SIMILAR), lambda text: shingles(text, language))


def with_gaoya_minhash(language, *_):
    analyzer, length = {"en": ("word", WORDS), "zh": ("char", CHARACTERS)}[language]
    index = peers.Gaoya(SIMILAR, analyzer, lowercase=True, ngram_range=(length, length))
    return one_by_one(index)


class GaoyaSimHash(peers.Gaoya):
    def __init__(self, language):
        from gaoya.simhash import SimHashStringIndex

        analyzer, runs = {"en": ("word", (1, 1)), "zh": ("char", (CHARACTERS,) * 2)}[language]
        index = SimHashStringIndex(64, 6, 4, analyzer, lowercase=True, ngram_range=runs)
        self.add, self.find = index.insert_document, index.query


class Simhash:
    def __init__(self):
        from simhash import Simhash, SimhashIndex

        index = SimhashIndex([], k=3)
        self.sketch, self.find = Simhash, index.get_near_dups
        self.add = lambda number, sketch: index.add(str(number), sketch)


SIDES = {
    "fpdb bits": with_fpdb(similarity=None, k=3),
    "fpdb bits 7": with_fpdb(similarity=None),
    "fpdb": with_fpdb(similarity=SIMILAR),
    "gaoya SimHash": lambda language, *_: one_by_one(GaoyaSimHash(language)),
    "gaoya MinHash": with_gaoya_minhash,
    "rensa": with_peer(peers.Rensa),
    "datasketch": with_peer(peers.Datasketch),
    "simhash": lambda *_: one_by_one(Simhash()),
}


def main():
    name, language, path, folder = sys.argv[1:]
    with open(path, encoding="utf-8") as lines:
        texts = [json.loads(line) for line in lines]
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    run = SIDES[name](language, Path(folder), len(texts))
    started = time.perf_counter()
    found = run(texts)
    seconds = time.perf_counter() - started
    package = name.split()[0]
    version = "" if package == "fpdb" else importlib.metadata.version(package)
    print(json.dumps({"seconds": seconds, "found": found, "version": f"{package} {version}"}))


if __name__ == "__main__":
    main()
