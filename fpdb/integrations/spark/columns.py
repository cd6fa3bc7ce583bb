"""What columns of fingerprints are in a DataFrame, and how they become words of 64 bits."""

from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

import fpdb

# What a column of fingerprints tells of itself, in Parquet files as well.
NOTE = "fpdb"
WIDE = StructType([StructField("high", LongType()), StructField("low", LongType())])
WORDS = ("high", "low")
# The gateway to Java takes no whole numbers as large as these.
_LOWEST_NEGATIVE, _WORDS = Decimal(1 << 63), Decimal(1 << 64)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


class Kind(NamedTuple):
    """How wide the fingerprints of a column are, and the id of the recipe that made them."""

    bits: int
    recipe_id: str | None

    @property
    def words(self) -> tuple[str, ...]:
        """The names of the words, the high one first."""
        return WORDS if self.bits == 128 else WORDS[1:]

    @property
    def type(self) -> DataType:
        """The type of such a column, whose numbers have signs, though fingerprints have none."""
        return WIDE if self.bits == 128 else LongType()


def require_columns(df: DataFrame, *names: str) -> None:
    """Refuse a DataFrame that lacks a column."""
    for name in names:
        if name not in df.columns:
            raise fpdb.InputError(
                f"found the columns {', '.join(df.columns)}, expected {name!r} among them",
                hint="rename a column: df.withColumnRenamed(old, new)",
            )


def kind_of(df: DataFrame, bits: int | None = None) -> Kind:
    """Tell how wide the fingerprints of a DataFrame are, from the column itself if it says it."""
    require_columns(df, "key", "fingerprint")
    field = df.schema["fingerprint"]
    note = (field.metadata or {}).get(NOTE) or {}
    wide = isinstance(field.dataType, StructType)
    known = note.get("bits") or bits or (128 if wide else 64)
    if bits not in (None, known) or wide != (known == 128 and not _is_text(field.dataType)):
        raise fpdb.InputError(
            f"found a column of {field.dataType.simpleString()}"
            + (f" that tells of {note['bits']} bits" if "bits" in note else "")
            + f", expected fingerprints of {bits or known} bits",
            hint="64 bits are a bigint, 128 a struct of two: high and low",
        )
    if known not in (32, 64, 128):
        raise fpdb.InputError(f"found {known} bits", hint="fingerprints have 32, 64 or 128 bits")
    return Kind(known, note.get("recipe_id"))


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def fingerprint_column(df: DataFrame, kind: Kind) -> Column:
    """Give the fingerprints of a DataFrame as this package has them: words with signs.

    Unsigned numbers of 64 bits come out of Parquet as decimals, and exports have hexadecimal
    digits.
    """
    found = df.schema["fingerprint"].dataType
    column = F.col("fingerprint")
    if found == kind.type:
        return column
    if isinstance(found, StructType):
        return F.when(
            column.isNotNull(),
            F.struct(*(column[name].cast("bigint").alias(name) for name in WORDS)),
        )
    if isinstance(found, DecimalType):
        return _signed(column).cast("bigint")
    if isinstance(found, StringType):
        digits = F.regexp_replace(F.lower(column), "^0x", "")
        return _of_digits(digits, kind.bits)
    if isinstance(found, _WHOLE):
        return column.cast("bigint")
    raise fpdb.InputError(
        f"found fingerprints of the type {found.simpleString()}, expected bigint",
        hint="fpdb.integrations.spark.fingerprint makes such a column",
    )


def _signed(number: Column) -> Column:
    wide = number.cast("decimal(21,0)")
    return F.when(wide >= _LOWEST_NEGATIVE, wide - _WORDS).otherwise(wide)


def _of_digits(digits: Column, bits: int) -> Column:
    if bits == 128:
        padded = F.lpad(digits, 32, "0")
        high, low = padded.substr(1, 16), padded.substr(17, 16)
        return F.when(
            digits.isNotNull(), F.struct(_word(high).alias("high"), _word(low).alias("low"))
        )
    return _word(digits)


def _word(digits: Column) -> Column:
    return F.conv(digits, 16, -10).cast("bigint")


def note(bits: int, recipe_id: str, sketch: str | None = None) -> dict[str, Any]:
    """Give what a column of fingerprints tells of itself."""
    return {NOTE: {"bits": bits, "recipe_id": recipe_id, "sketch": sketch}}


def signed(word: int) -> int:
    """Give a word of 64 bits as the number with a sign that has the same bits."""
    return word - (1 << 64) if word >> 63 else word


def masked(fingerprint: Column, kind: Kind, mask: int) -> list[Column]:
    """Keep the bits of a mask, word by word."""
    if kind.bits == 128:
        parts = (mask >> 64, mask & (1 << 64) - 1)
        return [
            fingerprint[name].bitwiseAND(F.lit(signed(part)))
            for name, part in zip(WORDS, parts, strict=True)
        ]
    return [fingerprint.bitwiseAND(F.lit(signed(mask)))]


def words_array(fingerprints: NDArray[np.uint64], missing: NDArray[np.bool_] | None = None) -> Any:
    """Make an Arrow column of fingerprints, with nulls where they are missing."""
    numbers = np.ascontiguousarray(fingerprints).view(np.int64)
    if numbers.ndim == 1 or numbers.shape[1] == 1:
        return pa.array(numbers.reshape(-1), mask=missing)
    words = [pa.array(np.ascontiguousarray(numbers[:, word])) for word in (0, 1)]
    mask = None if missing is None else pa.array(missing)
    return pa.StructArray.from_arrays(words, names=["high", "low"], mask=mask)
