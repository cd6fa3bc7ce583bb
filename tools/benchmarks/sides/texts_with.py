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

SIMILAR, HASHES = 0.8, 128
BANDS = 16  # of rensa, whose caller chooses: they find .95 of the pairs at .8
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


def one_by_one(look, add):
    """Return what looks each text up, and adds those of which nothing is found."""

    def run(texts):
        found = []
        for number, text in enumerate(texts):
            asked, near = look(text)
            if near:
                found.append(number)
            else:
                add(number, asked)
        return found

    return run


def with_gaoya_simhash(language, _folder, _count):
    from gaoya.simhash import SimHashStringIndex

    analyzer = {"en": ("word", (1, 1)), "zh": ("char", (CHARACTERS, CHARACTERS))}[language]
    # It finds what is less than this many bits away.
    index = SimHashStringIndex(64, 6, 4, analyzer[0], lowercase=True, ngram_range=analyzer[1])
    return one_by_one(lambda text: (text, index.query(text)), index.insert_document)


def with_gaoya_minhash(language, _folder, _count):
    from gaoya.minhash import MinHashStringIndex

    analyzer, length = {"en": ("word", WORDS), "zh": ("char", CHARACTERS)}[language]
    index = MinHashStringIndex(
        jaccard_threshold=SIMILAR, analyzer=analyzer, lowercase=True, ngram_range=(length, length)
    )
    return one_by_one(lambda text: (text, index.query(text)), index.insert_document)


def with_rensa(language, _folder, _count):
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(threshold=SIMILAR, num_perm=HASHES, num_bands=BANDS)
    sketches = {}

    def look(text):
        own = RMinHash(num_perm=HASHES, seed=42)
        own.update(list(shingles(text, language)))
        near = index.query(own)
        return own, [other for other in near if sketches[other].jaccard(own) >= SIMILAR]

    def add(number, own):
        index.insert(number, own)
        sketches[number] = own

    return one_by_one(look, add)


def with_datasketch(language, _folder, _count):
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=SIMILAR, num_perm=HASHES)

    def look(text):
        own = MinHash(num_perm=HASHES)
        own.update_batch([each.encode() for each in shingles(text, language)])
        return own, index.query(own)

    return one_by_one(look, index.insert)


def with_simhash(_language, _folder, _count):
    from simhash import Simhash, SimhashIndex

    index = SimhashIndex([], k=3)

    def look(text):
        own = Simhash(text)
        return own, index.get_near_dups(own)

    return one_by_one(look, lambda number, own: index.add(str(number), own))


SIDES = {
    "fpdb bits": with_fpdb(similarity=None, k=3),
    "fpdb bits 7": with_fpdb(similarity=None),
    "fpdb": with_fpdb(similarity=SIMILAR),
    "gaoya SimHash": with_gaoya_simhash,
    "gaoya MinHash": with_gaoya_minhash,
    "rensa": with_rensa,
    "datasketch": with_datasketch,
    "simhash": with_simhash,
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
