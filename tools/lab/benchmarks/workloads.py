"""The fingerprints that the bench asks about, and the exact answers, found in other ways.

All is seeded: the same name and number of documents give the same fingerprints.
"""

from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

K = 3
BITS = 64
QUERIES = 100_000
UNIFORM_PAIRS = 1_000  # one document in N has a near one planted
SHARE_CLUSTERED = 0.3
LARGE, LARGE_EACH = 1_000, 250_000  # a cluster of a thousand for N documents
# How many bits the member of a cluster is from its centre, and how often.
FLIPS = {0: 15, 1: 25, 2: 25, 3: 15, 4: 6, 5: 5, 6: 4, 7: 3, 8: 2}
BLOCKS = (11, 11, 11, 11, 10, 10)
PART = 10_000_000


@dataclass(frozen=True)
class Workload:
    """The folder with stored.npy, queries.npy and check.npy, and what is known of them."""

    folder: Path
    data: str
    documents: int
    most: int  # more than any query has matches
    answers: np.ndarray  # (query, id) of the check queries, sorted

    @property
    def where(self):
        return {"data": self.data, "documents": self.documents}

    def answers_of(self, side):
        """Return the folder for what a side answers, which isn't counted as its bytes."""
        return self.folder / f"answers of {side}"


def make(folder, data, documents, *, checks):
    folder.mkdir(parents=True)
    generator = np.random.default_rng([documents, len(data)])
    stored = {"uniform": uniform, "clustered": clustered}[data](generator, documents)
    queries = ask(generator, stored)
    np.save(folder / "stored.npy", stored)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "check.npy", queries[:checks])
    most = 8 if data == "uniform" else 2 * LARGE
    return Workload(folder, data, documents, most, exact_answers(stored, queries[:checks]))


def random(generator, count):
    return generator.integers(0, 1 << BITS, count, dtype=np.uint64)


def flip(generator, fingerprints, flips):
    """Flip as many bits of each as `flips` says."""
    flipped = fingerprints.copy()
    start = generator.integers(0, BITS, len(flipped), np.uint64)
    # A random odd step comes back to the same bit only after all 64 of them.
    step = generator.integers(0, BITS // 2, len(flipped), np.uint64) * np.uint64(2) + np.uint64(1)
    for turn in range(int(flips.max(initial=0))):
        bits = np.uint64(1) << (start + step * np.uint64(turn)) % np.uint64(BITS)
        flipped[flips > turn] ^= bits[flips > turn]
    return flipped


def uniform(generator, documents):
    """Make random fingerprints: with so few pairs planted that a self-join has what to find."""
    stored = random(generator, documents)
    count = documents // UNIFORM_PAIRS
    centres = stored[-count:] if count else stored[:0]
    stored[:count] = flip(generator, centres, generator.integers(1, K + 1, count))
    return stored


def clustered(generator, documents):
    """Make random fingerprints, of which a share are near-duplicates, exact copies among them.

    Most clusters have few members, some have up to 50, and a few have a thousand, as boilerplate
    pages do. Some members are 4 to 8 bits from their centre, so what doesn't match lies near.
    """
    stored = random(generator, documents)
    share = int(documents * SHARE_CLUSTERED)
    sizes = np.arange(2, 51)
    chances = 1 / sizes**2
    drawn = generator.choice(sizes, share // 2, p=chances / chances.sum())
    large = min(LARGE, documents // 100)
    many = np.concatenate([np.full(max(documents // LARGE_EACH, 1), large), drawn])
    many = many[: int(np.searchsorted(np.cumsum(many), share))]
    members = np.repeat(random(generator, len(many)), many)
    chances = np.array(list(FLIPS.values())) / sum(FLIPS.values())
    flips = generator.choice(list(FLIPS), len(members), p=chances)
    stored[: len(members)] = flip(generator, members, flips)
    generator.shuffle(stored)
    return stored


def ask(generator, stored):
    """Make queries of which every second has a neighbour within k."""
    queries = random(generator, QUERIES)
    planted = stored[generator.integers(0, len(stored), QUERIES // 2)]
    queries[::2] = flip(generator, planted, generator.integers(0, K + 1, len(planted)))
    return queries


def as_bytes(fingerprints):
    return fingerprints.astype(">u8").view(np.uint8).reshape(-1, 8)


def exact_answers(stored, queries):
    """Compare each query with each document, by FAISS's flat index; some by numpy as well."""
    import faiss

    parts = []
    for begin in range(0, len(stored), PART):
        index = faiss.IndexBinaryFlat(BITS)
        index.add(as_bytes(stored[begin : begin + PART]))
        limits, _, ids = index.range_search(as_bytes(queries), K + 1)  # its radius is strict
        places = np.repeat(np.arange(len(queries)), np.diff(limits.astype(np.int64)))
        parts.append(np.column_stack([places, ids + begin]))
    answers = in_order(np.concatenate(parts))
    for place, query in enumerate(queries[:4]):
        by_hand = np.flatnonzero(np.bitwise_count(stored ^ query) <= K)
        if answers[answers[:, 0] == place, 1].tolist() != by_hand.tolist():
            raise SystemExit("FAISS's flat index and numpy don't agree")
    return answers


def in_order(rows):
    return rows[np.lexsort((rows[:, 1], rows[:, 0]))]


def distinct(fingerprints):
    column = np.sort(fingerprints)
    first = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]]))
    return column[first], np.diff(np.append(first, len(column)))


def exact_pairs(column):
    """Find all pairs within k of a sorted column of distinct fingerprints; one row each.

    Cut into six blocks, two fingerprints within 3 bits agree in three of them. So the column is
    sorted anew for each three blocks, and runs of equal ones are compared. This shares no code
    with any side; a test compares it with each against each.
    """
    edges = np.cumsum((0, *BLOCKS))
    masks = [
        np.uint64(((1 << width) - 1) << int(edge))
        for width, edge in zip(BLOCKS, edges[:-1], strict=True)
    ]
    chosen = [np.bitwise_or.reduce(three) for three in combinations(masks, 3)]
    found = []
    for turn, mask in enumerate(chosen):
        order = np.argsort(column & mask)
        ordered = column[order]
        prefixes = ordered & mask
        active, offset = np.flatnonzero(prefixes[1:] == prefixes[:-1]), 1
        while len(active):
            first, second = ordered[active], ordered[active + offset]
            apart = first ^ second
            near = np.bitwise_count(apart) <= K
            for earlier in chosen[:turn]:  # a pair counts in the first table that has it
                near &= (apart & earlier) != 0
            found.append(np.column_stack([first[near], second[near]]))
            offset += 1
            active = active[active + offset < len(column)]
            active = active[prefixes[active] == prefixes[active + offset]]
    pairs = np.concatenate(found)
    return in_order(np.sort(pairs, axis=1))


def pairs_of_documents(column, counts, pairs):
    """Count the pairs of documents: copies are pairs too, and each copy is in all of its pairs."""
    first, second = (counts[np.searchsorted(column, side)] for side in pairs.T)
    return int((first * second).sum() + (counts * (counts - 1) // 2).sum())


def truth_of_join(work):
    column, counts = distinct(np.load(work / "stored.npy"))
    np.save(work / "distinct.npy", column)
    pairs = exact_pairs(column)
    return {"distinct": len(pairs), "documents": pairs_of_documents(column, counts, pairs)}
