"""Verify pairs of documents by their sketches, many at a time, on the workers."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, StructField, StructType

import fpdb

SKETCH_BYTES = 128


def verified(df: DataFrame, least: float) -> DataFrame:
    """Keep the rows whose likeness is enough: it becomes the column `jaccard`.

    `likeness` and `other_likeness` are sketches, or digests of texts without one, which are only
    like the very same text.
    """
    kept = [field for field in df.schema if field.name not in ("likeness", "other_likeness")]
    schema = StructType([*kept, StructField("jaccard", DoubleType())])
    return df.mapInArrow(_Verify([field.name for field in kept], least), schema)


class _Verify:
    """What is sent to the workers: estimates, and leaves out what isn't similar."""

    def __init__(self, kept: list[str], least: float) -> None:
        self._kept = kept
        self._least = least

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            own, other = batch["likeness"], batch["other_likeness"]
            found = fpdb.sketch_jaccard(_sketches(own), _sketches(other))
            found[pc.equal(own, other).to_numpy(zero_copy_only=False)] = 1.0
            similar = pa.array(found >= self._least)
            columns = {name: batch[name].filter(similar) for name in self._kept}
            columns["jaccard"] = pa.array(found).filter(similar)
            yield pa.RecordBatch.from_pydict(columns)


def _sketches(column: pa.Array) -> NDArray[np.uint8]:
    """Put sketches into rows; in the place of a digest all bytes are zero."""
    rows = column.to_pylist()
    whole = (row if len(row) == SKETCH_BYTES else bytes(SKETCH_BYTES) for row in rows)
    return np.frombuffer(b"".join(whole), np.uint8).reshape(-1, SKETCH_BYTES)
