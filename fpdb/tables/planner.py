"""Choose the tables of a database, or the prefixes of a join, and estimate their costs.

The constants were measured with tools/lab/bench on one core; only the network, the memory and the
disk of a machine are assumptions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from math import ceil, comb
from operator import le
from typing import NamedTuple

from fpdb.errors import PlanError
from fpdb.fingerprint.sketches import BINS
from fpdb.models import require_similarity
from fpdb.storage.open_checks import LARGEST_MAP
from fpdb.tables.bands import MOST_BINS, Bands
from fpdb.tables.plan import Plan, choose_plan, home_plan, nested_plan

_WIDTHS = (32, 64, 128)
_LARGEST_K = 24
# More tables than this make inserts slow; the storage would open more.
_MOST_PLANNED = 48
_MOST_CHOSEN = 3
# Long enough to single out one document in billions; a longer one only makes more flips.
_HOME_PREFIX = 32
# The best plans of the usual widths and k: how many blocks lead a table each, and from how many
# documents to how many. Nearly all databases have one of these, and a search for it takes longer
# than everything else that creates a database.
_USUAL = {
    (32, 1): (2, 1, 2**25),
    (32, 3): (2, 2**18, 2**26),
    (64, 1): (2, 1, 2**33),
    (64, 2): (3, 1, 2**28),
    (64, 3): (4, 1, 2**24),
    (64, 4): (5, 1, 2**21),
    (64, 6): (4, 2**19, 2**25),
    (64, 7): (4, 2**19, 2**26),
    (64, 8): (5, 2**17, 2**21),
    (128, 1): (2, 1, 2**33),
    (128, 2): (3, 1, 2**33),
    (128, 3): (4, 1, 2**27),
    (128, 4): (5, 1, 2**27),
    (128, 7): (8, 1, 2**24),
}
# Reading a larger share of all fingerprints through tables is no better than reading them all.
_LARGEST_SHARE = 0.125

_QUERY_SECONDS = 10e-6
_PROBE_SECONDS = 2e-6
_CANDIDATE_SECONDS = 15e-9
# One insert into one table, in a transaction with others.
_INSERT_SECONDS = 15e-6
# Seconds that a probe or an insert takes longer when its page has to come from the disk.
_COLD_PAGE_SECONDS = 100e-6
_MEMORY_BYTES = 16e9
# Keys, checksums and slack of pages, for each byte of fingerprints and ids.
_BYTES_PER_BYTE = 1.02
_ID_BYTES = 8
# A text key of 50 bytes with the record of its document.
_TEXT_KEY_BYTES = 110
# Bytes that a sketch adds to the record, with the digest of its text.
_SKETCH_BYTES = 146

# A row of a join is one fingerprint in one table: made, sent to where its prefix belongs, sorted,
# and read again there. Measured with Spark.
_JOIN_DOCUMENT_SECONDS = 4e-6
_JOIN_ROW_SECONDS = 3e-6
_JOIN_CANDIDATE_SECONDS = 6e-9
_MOST_JOIN_TABLES = 1000

# Unrelated documents that are compared with a text, on average: so few that nobody notices, and
# the most that a query bears.
_FEW_CANDIDATES = 1
_MOST_CANDIDATES = 1000
# Costs of bands: looking one up, comparing a candidate, and a row without its id.
_BAND_SECONDS = 4e-6
_COMPARE_SECONDS = 10e-6
_BAND_ROW_BYTES = 2


@dataclass(frozen=True)
class Estimate:
    """The expected costs of a plan: per query, per insert, and in bytes.

    `bytes` is the size of the tables and bands, `key_bytes` what text keys of 50 bytes and the
    sketches add to it.
    `memory_share` is the part of the tables that fits into 16 GB. A query of a fingerprint takes
    `seconds`, one of a text by its sketch `similar_seconds`, None without bands.
    """

    probes: int
    candidates_per_probe: float
    candidates: float
    bytes: int
    key_bytes: int
    memory_share: float
    seconds: float
    insert_seconds: float
    similar_seconds: float | None

    @property
    def fits(self) -> bool:
        """Whether the tables aren't larger than a database can be."""
        return self.bytes <= LARGEST_MAP

    @property
    def seconds_per_document(self) -> float:
        """The time of one query and one insert, as a crawler does them for each page."""
        query = self.seconds if self.similar_seconds is None else self.similar_seconds
        return query + self.insert_seconds


def estimate_cost(plan: Plan, documents: int) -> Estimate:
    """Estimate the costs of a plan with N documents, for queries within its k."""
    probes, share = plan.reads()
    tables, bands = len(plan.tables), plan.bands
    candidates = documents * share
    row = tables * plan.bits / 8 + _ID_BYTES
    if bands:
        row += bands.count * (_BAND_ROW_BYTES + ceil(documents.bit_length() / 8))
    size = documents * row * _BYTES_PER_BYTE
    memory_share = min(1.0, _MEMORY_BYTES / size) if size else 1.0
    cold = (1 - memory_share) * _COLD_PAGE_SECONDS
    return Estimate(
        probes=probes,
        candidates_per_probe=candidates / probes,
        candidates=candidates,
        bytes=round(size),
        key_bytes=documents * (_TEXT_KEY_BYTES + (_SKETCH_BYTES if bands else 0)),
        memory_share=memory_share,
        seconds=_QUERY_SECONDS + probes * (_PROBE_SECONDS + cold) + candidates * _CANDIDATE_SECONDS,
        insert_seconds=(tables + (bands.count if bands else 0)) * (_INSERT_SECONDS + cold),
        similar_seconds=bands.count * (_BAND_SECONDS + cold)
        + bands.chance(documents) * _COMPARE_SECONDS
        if bands
        else None,
    )


def chance_matches(bits: int, k: int, documents: int) -> float:
    """Return how many of N unrelated documents are within k of a query by chance, on average.

    It takes their fingerprints for random bits. Those of short texts, and of pages of one template,
    are nearer than that.
    """
    _check_request(bits, 0, documents=documents)
    if not 0 <= k <= bits:
        raise PlanError(f"k = {k} in {bits} bits", hint=f"give a k from 0 to {bits}")
    near = sum(comb(bits, distance) for distance in range(k + 1))
    return documents * near / (1 << bits)


def plans(bits: int, k: int, documents: int, *, similarity: float | None = None) -> list[Plan]:
    """Return the plans for a width, a k and a number of documents, the best first.

    Those whose tables are larger than a database can be come last. With a `similarity`, they have
    the bands that find sketches with it.

    Raises:
        PlanError: No tables serve this k, or an argument is out of its range.
    """
    _check_request(bits, k, documents=documents)
    bands = None if similarity is None else choose_bands(similarity, documents)
    feasible = list(_feasible(bits, k))
    if not feasible:
        nearest = next(less for less in range(k, -1, -1) if any(_feasible(bits, less)))
        raise PlanError(
            f"k = {k} in {bits} bits takes too many probes, or probes that read too much",
            hint=f"with {bits} bits k can be {nearest}; or take wider fingerprints",
        )
    costs = {plan: estimate_cost(plan, documents) for plan in feasible}
    feasible.sort(key=lambda plan: (not costs[plan].fits, costs[plan].seconds_per_document))
    return [replace(plan, bands=bands) for plan in feasible]


def best_plan(bits: int, k: int, documents: int, *, similarity: float | None = None) -> Plan:
    """Return the first of `plans`, for the usual cases without a search."""
    blocks, least, most = _USUAL.get((bits, k), (0, 0, -1))
    if not least <= documents <= most:
        return plans(bits, k, documents, similarity=similarity)[0]
    bands = None if similarity is None else choose_bands(similarity, documents)
    return replace(choose_plan(bits, k, blocks), bands=bands)


def _check_request(bits: int, k: int, **counts: int | None) -> None:
    """Raise PlanError if no plan can be made for a width, a k or one of some numbers."""
    if bits not in _WIDTHS:
        raise PlanError(f"fingerprints of {bits} bits", hint="choose 32, 64 or 128 bits")
    if not 0 <= k <= _LARGEST_K:
        raise PlanError(
            f"found k = {k}, expected a whole number from 0 to {_LARGEST_K}",
            hint="texts that differ in more bits are found by their similarity",
        )
    for name, value in counts.items():
        if value is not None and value < 1:
            raise PlanError(f"a plan for {value} {name}", hint=f"give at least 1 of {name}")


def _feasible(bits: int, k: int) -> Iterator[Plan]:
    """Yield the designs with few and short enough probes that no other one beats."""
    known: list[tuple[int, int, float]] = []
    for plan in sorted(_designs(bits, k), key=lambda plan: len(plan.tables)):
        try:
            probes, share = plan.reads()
        except PlanError:
            continue
        burden = (len(plan.tables), probes, share)
        beaten = any(all(map(le, other, burden)) for other in known)
        if share <= _LARGEST_SHARE and not beaten:
            known.append(burden)
            yield plan


def _designs(bits: int, k: int) -> Iterator[Plan]:
    if k == 0:
        yield home_plan(bits, k, min(bits, _HOME_PREFIX))
        return
    # Fewer blocks than k + 1 make fewer tables with longer prefixes, at the price of flipped bits.
    for blocks in range(2, k + 2):
        yield choose_plan(bits, k, blocks)
    for choose in range(2, _MOST_CHOSEN + 1):
        if comb(k + choose, choose) <= _MOST_PLANNED and k + choose <= bits:
            yield choose_plan(bits, k, choose=choose)
    if (k + 1) ** 2 <= _MOST_PLANNED:
        yield nested_plan(bits, k)


def choose_bands(similarity: float, documents: int) -> Bands:
    """Return the bands that find texts with a similarity among N documents.

    Longer bands have fewer candidates by chance, but there must be more of them.

    Raises:
        InputError: The similarity is no number above 0, at most 1.
        PlanError: It is so low that nearly everything would be a candidate.
    """
    require_similarity(similarity)
    bands = _bands(similarity, documents)
    if bands is None:
        least = next(
            share / 100 for share in range(1, 101) if _bands(share / 100, documents) is not None
        )
        raise PlanError(
            f"found the similarity {similarity}, expected at least {least}: no database of "
            f"{documents:,} documents finds less similar ones",
            hint="fpdb copies, or fpdb.exact_pairs, compares all texts with each other",
        )
    return bands


def _bands(similarity: float, documents: int) -> Bands | None:
    bands = None
    for bins in range(1, MOST_BINS + 1):
        count = Bands(1, bins).needed(similarity)
        if count > BINS // bins:
            break
        bands = Bands(count, bins)
        if bands.chance(documents) <= _FEW_CANDIDATES:
            break
    return bands if bands and bands.chance(documents) <= _MOST_CANDIDATES else None


class JoinPlan(NamedTuple):
    """A way to find all pairs within k on Spark, without a database.

    A join sends each fingerprint once to each table, where it meets those that agree with it in
    the bits of its mask. Of k + c blocks, two fingerprints within k agree in at least c, so that a
    mask for each choice of c blocks leaves no pair out.
    """

    bits: int
    k: int
    fingerprints: int
    masks: tuple[int, ...]


def join_plans(bits: int, k: int, documents: int, *, queries: int | None = None) -> list[JoinPlan]:
    """Return the plans for a join of N documents, the fastest first.

    With `queries`, it is a join of that many other fingerprints with the documents.

    Raises:
        PlanError: An argument is out of its range.
    """
    _check_request(bits, k, documents=documents, queries=queries)
    fingerprints = documents + (queries or 0)
    pairs = documents * ((documents - 1) / 2 if queries is None else queries)
    choices = []
    # More tables have longer prefixes: more rows to send, and fewer candidates to check.
    for masks in _join_masks(bits, k):
        rows = fingerprints * len(masks)
        work = (
            fingerprints * _JOIN_DOCUMENT_SECONDS
            + rows * _JOIN_ROW_SECONDS
            + pairs * sum(2.0 ** -mask.bit_count() for mask in masks) * _JOIN_CANDIDATE_SECONDS
        )
        choices.append((work, JoinPlan(bits, k, fingerprints, masks)))
    return [plan for _, plan in sorted(choices)]


def _join_masks(bits: int, k: int) -> Iterator[tuple[int, ...]]:
    """Yield the masks of each design: c of k + c blocks each."""
    if k == 0:
        yield ((1 << bits) - 1,)
        return
    for choose in range(1, bits - k):
        if comb(k + choose, choose) > _MOST_JOIN_TABLES:
            break
        cuts = [bits * block // (k + choose) for block in range(k + choose + 1)]
        blocks = [(1 << high) - (1 << low) for low, high in pairwise(cuts)]
        yield tuple(sum(chosen) for chosen in combinations(blocks, choose))
