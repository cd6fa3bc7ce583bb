"""How fast the store answers and takes documents, and how large it is, beside FAISS in memory."""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import fpdb
from fpdb.tables.pages import seek

BITS, K = 64, 3
QUERIES = 2_000
BATCH = 1_000
# documents -> microseconds that a query may take at the median
SIZES = {1_000_000: 40, 10_000_000: 60}
TIMES_FASTER = {10_000_000: 3}
ADDS_PER_SECOND = 10_000
BYTES_BULK, BYTES_RANDOM = 45, 75


def _workload(documents, seed=1):
    """Make random fingerprints, and queries of which every second has a neighbour within k."""
    generator = np.random.default_rng(seed)
    stored = generator.integers(0, 1 << 64, documents, dtype=np.uint64)
    queries = generator.integers(0, 1 << 64, QUERIES, dtype=np.uint64)
    planted = stored[generator.integers(0, documents, QUERIES // 2)]
    for _ in range(K):
        planted = planted ^ (np.uint64(1) << generator.integers(0, 64, len(planted), np.uint64))
    queries[::2] = planted
    return stored, queries


def _faiss_index(stored):
    import faiss

    faiss.omp_set_num_threads(1)
    index = faiss.IndexBinaryMultiHash(BITS, 4, 16)
    index.add(_as_bytes(stored))
    return index


def _as_bytes(fingerprints):
    return fingerprints.astype(">u8").view(np.uint8).reshape(-1, 8)


def _each(ask, queries):
    """Time every query on its own."""
    taken = []
    for query in queries:
        start = time.perf_counter()
        ask(query)
        taken.append(time.perf_counter() - start)
    return taken


def _check(database, index, queries):
    """Both sides must find the same documents before either is timed."""
    limits, _, found = index.range_search(_as_bytes(queries), K + 1)  # FAISS's radius is strict
    for place, query in enumerate(queries.tolist()):
        own = sorted(match.id for match in database.query_fingerprint(query))
        if own != sorted(found[limits[place] : limits[place + 1]].tolist()):
            raise SystemExit(f"different answers for {query:016x}")


def _row(name, own, peer, ratio, target, reached):
    return {
        "row": name,
        "fpdb": own,
        "FAISS MultiHash(64,4,16)": peer,
        "ratio": ratio,
        "to reach": target,
        "reached": "yes" if reached else "**no**",
    }


def _queries(rows, raw, database, stored, queries, rounds):
    documents = len(stored)
    index = _faiss_index(stored)
    _check(database, index, queries[:500])
    own, peer = [], []
    single = [_as_bytes(queries[at : at + 1]) for at in range(len(queries))]
    numbers = queries.tolist()
    for _ in range(rounds):
        own += _each(database.query_fingerprint, numbers)
        peer += _each(lambda query: index.range_search(query, K + 1), single)
    raw[f"query {documents}"], raw[f"faiss {documents}"] = own, peer
    mine, theirs = (1e6 * statistics.median(taken) for taken in (own, peer))
    tail = 1e6 * float(np.quantile(own, 0.99))
    times = TIMES_FASTER.get(documents)
    target = f"{SIZES[documents]} µs" + (f", {times} times" if times else "")
    reached = mine <= SIZES[documents] and (not times or theirs / mine >= times)
    name = f"one query, {documents // 10**6} M, median (p99)"
    peer_tail = 1e6 * float(np.quantile(peer, 0.99))
    ratio = f"{theirs / mine:.1f}"
    shown = f"{mine:.1f} µs ({tail:.0f})"
    rows.append(_row(name, shown, f"{theirs:.1f} µs ({peer_tail:.0f})", ratio, target, reached))


def _interpolation_search(column, wanted):
    """Find where a number belongs in a sorted column of uniform numbers, as the paper suggests."""
    low, high = 0, len(column)
    while high - low > 64:
        first, last = int(column[low]), int(column[high - 1])
        if not first < wanted <= last:
            break
        guess = low + (wanted - first) * (high - 1 - low) // (last - first)
        if int(column[guess]) < wanted:
            low = guess + 1
        else:
            high = guess
    return low + int(column[low:high].searchsorted(np.uint64(wanted)))


def _search(rows, raw, database, stored, queries):
    """Compare ways to find where a prefix begins: the store's, and searches of one large column."""
    column = np.sort(stored)
    index, environment = database._index, database._environment
    wanted = [query >> 48 << 48 for query in queries.tolist()]
    keys = [number.to_bytes(8, "big") + bytes(8) for number in wanted]
    with environment.read() as txn, txn.cursor(index.home.name) as cursor:
        own = _each(lambda key: seek(cursor, key), keys)
    others = _each(lambda number: _interpolation_search(column, number), wanted)
    binary = _each(column.searchsorted, [np.uint64(number) for number in wanted])
    expected = column.searchsorted(np.array(wanted, np.uint64)).tolist()
    if [_interpolation_search(column, number) for number in wanted] != expected:
        raise SystemExit("the interpolation search is wrong")
    raw["seek"], raw["interpolation"], raw["binary"] = own, others, binary
    mine, theirs, halves = (1e6 * statistics.median(taken) for taken in (own, others, binary))
    name = f"find where a prefix begins, {len(stored) // 10**6} M; not FAISS but interpolation"
    shown = f"interpolation {theirs:.1f} µs, binary search {halves:.1f} µs, of one array"
    faster = mine <= theirs
    rows.append(_row(name, f"{mine:.1f} µs", shown, f"{theirs / mine:.1f}", "as fast", faster))


def _bytes(rows, database, name, target):
    stats = database.stats()
    used, size = stats.bytes_used / stats.documents, stats.bytes / stats.documents
    shown = f"{used:.1f} in use, {size:.1f} in the file"
    rows.append(_row(name, shown, "-", "-", f"{target} in use", used <= target))


def _adds(rows, raw, database, generator, first):
    taken = []
    for batch in range(30):
        keys = np.arange(first + batch * BATCH, first + (batch + 1) * BATCH, dtype=np.uint64)
        array = generator.integers(0, 1 << 64, BATCH, dtype=np.uint64)
        start = time.perf_counter()
        database.add_fingerprints(keys, array)
        taken.append(time.perf_counter() - start)
    raw["adds"] = taken
    rate = BATCH / statistics.median(taken)
    reached = rate >= ADDS_PER_SECOND
    target = f"{ADDS_PER_SECOND:,}/s"
    rows.append(
        _row("durable adds at 1 M, batches of 1,000", f"{rate:,.0f}/s", "-", "-", target, reached)
    )


def _random_inserts(rows, folder, generator, documents=1_000_000):
    database = fpdb.create(folder / "random", keys="integer", capacity=documents)
    for first in range(0, documents, BATCH):
        array = generator.integers(0, 1 << 64, BATCH, dtype=np.uint64)
        database.add_fingerprints(np.arange(first, first + BATCH, dtype=np.uint64), array)
    _bytes(rows, database, "bytes a document, 1 M random inserts in batches of 1,000", BYTES_RANDOM)
    database.close()


def run(rounds):
    """Measure all rows."""
    rows, raw = [], {}
    folder = Path(tempfile.mkdtemp(prefix="fpdb-bench-"))
    generator = np.random.default_rng(2)
    try:
        for documents in SIZES:
            stored, queries = _workload(documents)
            database = fpdb.create(folder / str(documents), keys="integer", capacity=documents)
            start = time.perf_counter()
            database.add_fingerprints(np.arange(documents, dtype=np.uint64), stored)
            raw[f"load {documents}"] = time.perf_counter() - start
            _bytes(rows, database, f"bytes a document, {documents // 10**6} M loaded", BYTES_BULK)
            _queries(rows, raw, database, stored, queries, rounds)
            if documents == max(SIZES):
                _search(rows, raw, database, stored, queries)
            if documents == min(SIZES):
                _adds(rows, raw, database, generator, documents)
            database.close()
        _random_inserts(rows, folder, generator)
    finally:
        shutil.rmtree(folder)
    notes = (
        "Random 64-bit fingerprints, k = 3, integer keys, four tables with 16-bit prefixes; every "
        "second query has a planted neighbour. FAISS is in memory, on one thread."
    )
    return rows, raw, notes
