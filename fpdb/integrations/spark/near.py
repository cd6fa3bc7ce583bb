"""Near documents, found by joins of Spark: those with an equal number meet, and are compared.

A number is what a document has in a band of its sketch, or in a table of its fingerprint. Only ids
and numbers are sent to the join on them; sketches are fetched for the pairs that it finds.
"""

import warnings
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import fpdb
from fpdb.integrations.spark.fingerprints import FingerprintType, bytes_rows, require_workers

# A number of bands is crowded if more documents have it, and if a question would meet more.
_CROWD, _CROWD_OF_QUERY = 1_000, 10_000
# Documents of the sample in which crowds are found, and the least of a crowd there: with fewer,
# chance decides what is crowded.
_SAMPLE, _SAMPLED = 1 << 15, 8
# The bands are those of a database with the usual capacity. They do for so many times as many
# documents, since a comparison by chance costs no more here than a row of one more band.
_USUAL_CAPACITY, _CHANCES = 1_000_000, 16


def near(sides: list[DataFrame], wanted: FingerprintType, least: float = 0.0) -> DataFrame:
    """Return `key`, `other`, `distance` and `similarity` of near documents that aren't equal.

    They are those of one DataFrame, each pair once, or one of each of two; of two, equal ones are
    near as well. Sketches show it from an estimate on, the `least`. The columns are those of
    `documents_of`.
    """
    by_bits = wanted.similarity is None
    present = F.expr(f"{'fingerprint' if by_bits else 'sketch'} IS NOT NULL")
    sides = [side.where(present).select("key", "id", "fingerprint", "sketch") for side in sides]
    counts = [max(1, side.count()) for side in sides]
    one, other = ends((_tables if by_bits else _bands)(sides, wanted, counts))
    met = one.join(other, F.expr("one_number = other_number"))
    if len(sides) == 1:
        met = met.where("one_id < other_id")
    apart = F.expr(_distance(wanted.bits))
    if by_bits:
        met = met.where(apart <= wanted.k)
    one, other = ends(sides)
    pairs = met.select("one_id", "other_id").distinct().join(one, "one_id").join(other, "other_id")
    names = F.expr("one_key AS key"), F.expr("other_key AS other"), apart.alias("distance")
    if by_bits:
        return pairs.select(*names, F.expr("CAST(NULL AS double) AS similarity"))
    pairs = pairs.select(*names, "one_sketch", "other_sketch")
    schema = StructType(pairs.schema.fields[:3]).add("similarity", "double")
    return pairs.mapInArrow(partial(_compared, least), schema)


def ends(sides: list[DataFrame]) -> list[DataFrame]:
    """Name the columns of both ends of a pair: if they are of one DataFrame, it is sent once."""
    ends = zip(("one", "other"), (sides[0], sides[-1]), strict=True)
    return [side.toDF(*(f"{end}_{name}" for name in side.columns)) for end, side in ends]


def _distance(bits: int) -> str:
    """Return in how many bits the fingerprints of a pair differ."""
    words = ("",) if bits <= 64 else (".high", ".low")
    pairs = (f"one_fingerprint{word} ^ other_fingerprint{word}" for word in words)
    return " + ".join(f"bit_count({pair})" for pair in pairs)


def _tables(sides: list[DataFrame], wanted: FingerprintType, counts: list[int]) -> list[DataFrame]:
    """Return a row for each fingerprint and table: any two within k have one number in common."""
    queries = counts[0] if len(counts) > 1 else None
    [plan, *_] = fpdb.join_plans(wanted.bits, wanted.k, counts[-1], queries=queries)
    words = {"": 0} if wanted.bits <= 64 else {".low": 0, ".high": 64}
    numbers = []
    for table, mask in enumerate(plan.masks):
        low = {word: (mask >> shift) % (1 << 64) for word, shift in words.items()}
        signed = {word: number - (number >> 63 << 64) for word, number in low.items()}
        masked = (f"fingerprint{word} & {number}L" for word, number in signed.items())
        numbers.append(f"xxhash64({table}, {', '.join(masked)})")
    number = F.expr(f"explode(array({', '.join(numbers)})) AS number")
    distinct = [side.select("id", "fingerprint").distinct() for side in sides]
    return [side.select(number, "id", "fingerprint") for side in distinct]


def _bands(sides: list[DataFrame], wanted: FingerprintType, counts: list[int]) -> list[DataFrame]:
    """Return a row for each sketch and band: most similar ones have a number in common."""
    require_workers(sides[0].sparkSession)
    capacity = max(_USUAL_CAPACITY, counts[-1] // _CHANCES)
    [plan, *_] = fpdb.plans(64, 0, capacity, similarity=wanted.similarity)
    count, bins = (plan.bands.count, plan.bands.bins) if plan.bands else (0, 0)
    parts = (", ".join(_digits(band * bins, (band + 1) * bins)) for band in range(count))
    numbers = ", ".join(f"xxhash64({band}, {part})" for band, part in enumerate(parts))
    # Equal documents have one id, and go to the join once.
    distinct = [side.select("id", "sketch").distinct() for side in sides]
    digits = [side.selectExpr("id", "hex(sketch) AS digits") for side in distinct]
    rows = [side.selectExpr(f"explode(array({numbers})) AS number", "id") for side in digits]
    return _divided(rows, counts[-1])


def _digits(start: int, stop: int) -> Iterator[str]:
    """Yield the parts of a sketch in hexadecimal digits that have some of its bins.

    Of the two bins of a byte, the first one is the second digit.
    """
    if start % 2:
        yield f"substr(digits, {start}, 1)"
    first = start + start % 2
    yield f"substr(digits, {first + 1}, {stop // 2 * 2 - first})"
    if stop % 2:
        yield f"substr(digits, {stop + 1}, 1)"


def _divided(rows: list[DataFrame], documents: int) -> list[DataFrame]:
    """Salt the numbers that very many documents have, and so divide these into parts.

    They are looked for in a sample. The salt of a document differs between its numbers, so that
    those that are parted in one may meet in another. Equal documents are never parted.
    """
    usual = _CROWD if len(rows) == 1 else _CROWD_OF_QUERY
    rate = max(1, min(documents // _SAMPLE, usual // _SAMPLED))
    drawn = rows[-1].where(f"pmod(id, {rate}) = 0").groupBy("number")
    parts = drawn.agg(F.expr(f"CAST(ceil(count(*) * {rate} / {usual}) AS int) AS parts"))
    crowds = parts.where("parts > 1").collect()
    if not crowds:
        return rows
    warnings.warn(
        "some similar documents may be missing: up to "
        f"{usual * max(row.parts for row in crowds):,} agree in a band of their sketches, and each "
        f"is compared with about {usual:,} of them",
        fpdb.IncompleteWarning,
        stacklevel=5,  # the caller of `pairs` or `query`
    )
    schema = "number long, parts int"
    parted = F.broadcast(rows[0].sparkSession.createDataFrame(crowds, schema))
    salted = "xxhash64(number, pmod(xxhash64(id, number), parts))"
    number = f"if(parts IS NULL, number, {salted}) AS number"
    return [side.join(parted, "number", "left").selectExpr(number, "id") for side in rows]


def _compared(least: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Estimate the similarity of pairs by their sketches, and yield those that are near."""
    for batch in batches:
        shares = fpdb.sketch_jaccard(*(bytes_rows(batch[at], 128) for at in (3, 4)))
        pairs = batch.select([0, 1, 2]).append_column("similarity", pa.array(shares))
        yield pairs.filter(pc.greater_equal(pairs["similarity"], least))
