"""Write documents as sorted columns, which `fpdb ingest --sorted` loads without sorting again.

The documents are sorted and written first. What is on disk then says which number each of them has,
and the tables are made from it: permuted, sorted and written one after the other.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, LongType, StringType, StructField, StructType, TimestampType

import fpdb
from fpdb.integrations.spark.columns import Kind, fingerprint_column, kind_of, signed
from fpdb.integrations.spark.surveying import FILE, ROW, Survey, survey

_FORMAT = 1
_CAPACITY = 1_000_000
# What near-duplicates usually have, by which a database with sketches chooses its tables.
_SIMILAR = 0.8
# Names of part files have five digits, and above that their order isn't that of their numbers.
_MOST_PARTITIONS = 99_999
_SIGN = 1 << 63


def write_sorted(
    df: DataFrame,
    path: str,
    *,
    recipe: str | fpdb.Recipe,
    k: int = 3,
    capacity: int | None = None,
    plan: fpdb.Plan | None = None,
    partitions: int | None = None,
) -> int:
    """Write documents in the form that `fpdb.load_sorted` takes; return how many there are.

    The DataFrame has the columns of `fingerprint`: `key` and `fingerprint`, and maybe `digest`,
    `characters`, `sketch`, `added` (seconds since 1970, or a timestamp) and `meta` (JSON as text,
    or any other column, which becomes JSON); others are left out. Each key stands there once, and
    whole numbers among keys aren't negative. `recipe` is the one that made the fingerprints.

    The tables are the best for `capacity` documents, unless there is a `plan`. Nothing may be at
    `path`, which can be on any file system that Spark knows; if the job fails, nothing is left
    there. The manifest is written last.
    """
    chosen = fpdb.recipe(recipe) if isinstance(recipe, str) else recipe
    kind = kind_of(df, chosen.bits)
    if kind.recipe_id not in (None, chosen.id):
        raise fpdb.RecipeMismatchError(
            f"the fingerprints were made by the recipe {kind.recipe_id}, "
            f"found {chosen.name} ({chosen.id})",
            hint="give the recipe that made them",
        )
    if plan is not None and (plan.bits, plan.k) != (chosen.bits, k):
        raise fpdb.PlanError(
            f"the plan is made for {plan.bits} bits and k={plan.k}, "
            f"expected {chosen.bits} bits and k={k}",
            hint="take one of fpdb.plans(bits, k, documents)",
        )
    if partitions is not None and not 1 <= partitions <= _MOST_PARTITIONS:
        raise fpdb.InputError(
            f"found partitions={partitions}, expected 1 to {_MOST_PARTITIONS:,}",
            hint="leave partitions out, and Spark chooses",
        )
    target = _Target(df.sparkSession, path)
    target.require_vacant()
    try:
        job = _Job(target, kind, partitions)
        found = job.write_documents(_documents(df, kind))
        room = max(found.documents, _CAPACITY) if capacity is None else capacity
        tables = plan or _best_plan(chosen.bits, k, room, sketched=job.sketched)
        job.write_tables(tables, found)
        manifest = {
            "format": _FORMAT,
            "recipe": chosen.to_dict(),
            "recipe_id": chosen.id,
            "plan": tables.to_dict(),
            "keys": job.keys,
            "sketch": "minhash" if job.sketched else None,
            "capacity": room,
            "documents": found.documents,
            "short": found.short,
        }
        target.write_manifest(json.dumps(manifest))
    except BaseException:
        target.remove()
        raise
    return found.documents


def _best_plan(bits: int, k: int, capacity: int, *, sketched: bool) -> fpdb.Plan:
    query_k = fpdb.first_look(bits, k, _SIMILAR) if sketched else None
    return fpdb.plans(bits, k, capacity, query_k=query_k)[0]


def _documents(df: DataFrame, kind: Kind) -> DataFrame:
    """Choose the columns of the form, each of its type."""
    key = df.schema["key"].dataType
    own = F.col("key").cast("string" if isinstance(key, StringType) else "bigint")
    fingerprint = fingerprint_column(df, kind)
    words = [fingerprint] if kind.bits < 128 else [fingerprint[name] for name in kind.words]
    columns = [own.alias("key")]
    columns += [word.alias(name) for word, name in zip(words, _names(kind), strict=True)]
    more = {"digest": "binary", "characters": "bigint", "sketch": "binary"}
    columns += [F.col(name).cast(to).alias(name) for name, to in more.items() if name in df.columns]
    if "added" in df.columns:
        timed = isinstance(df.schema["added"].dataType, DateType | TimestampType)
        added = F.col("added").cast("timestamp") if timed else F.col("added")
        columns.append(added.cast("bigint").alias("added"))
    if "meta" in df.columns:
        text = isinstance(df.schema["meta"].dataType, StringType)
        columns.append((F.col("meta") if text else F.to_json("meta")).alias("meta"))
    return df.select(*columns)


def _names(kind: Kind) -> tuple[str, ...]:
    return kind.words if kind.bits == 128 else ("fingerprint",)


class _Job:
    """One run, with what is known of the documents."""

    def __init__(self, target: "_Target", kind: Kind, partitions: int | None) -> None:
        self._target = target
        self._kind = kind
        self._words = _names(kind)
        self._partitions = partitions
        self.keys = "text"
        self.sketched = False

    def write_documents(self, documents: DataFrame) -> Survey:
        """Sort documents by their keys and write them; say how many each file has."""
        self.keys = (
            "text" if isinstance(documents.schema["key"].dataType, StringType) else "integer"
        )
        self.sketched = "sketch" in documents.columns
        self._target.write("documents", self._sorted(documents, ["key"]))
        written = self._written()
        if "digest" not in documents.columns:
            written = written.withColumn("digest", F.lit(None).cast("binary"))
        return survey(written, self._words, self._kind.bits)

    def write_tables(self, plan: fpdb.Plan, found: Survey) -> None:
        """Write all tables of the documents that have a fingerprint."""
        placed = self._written().where(F.col(self._words[0]).isNotNull())
        first, *further = plan.tables
        rows = self._permuted(self._numbered(placed, found), first.permutation, "id")
        ordered = self._sorted(rows, [*self._words, "id"])
        self._target.write("table-00", self._with_signs(ordered, "id"))
        for number, table in enumerate(further, 1):
            rows = self._permuted(placed.select(*self._words), table.permutation)
            # Equal ones come to one partition, so this takes no shuffle of its own.
            ranged = self._ranged(rows, list(self._words)).dropDuplicates(list(self._words))
            ordered = ranged.sortWithinPartitions(*self._words)
            self._target.write(f"table-{number:02d}", self._with_signs(ordered))

    def _written(self) -> DataFrame:
        """Read the documents that were written, with the file and the row of each."""
        return self._target.read("documents").select(
            "*",
            F.col("_metadata.file_name").alias(FILE),
            F.col("_metadata.row_index").alias(ROW),
        )

    def _numbered(self, placed: DataFrame, found: Survey) -> DataFrame:
        """Give each document its id."""
        if self.keys == "integer":
            return placed.select(*self._words, F.col("key").alias("id"))
        rows = [(name, offset) for name, offset in found.offsets.items()]
        schema = StructType([StructField(FILE, StringType()), StructField("before", LongType())])
        offsets = F.broadcast(placed.sparkSession.createDataFrame(rows, schema))
        number = F.col("before") + F.col(ROW)
        return placed.join(offsets, FILE).select(*self._words, number.alias("id"))

    def _permuted(self, rows: DataFrame, permutation: fpdb.Permutation, *others: str) -> DataFrame:
        """Permute fingerprints, and turn their sign bit over, so that they sort as unsigned."""
        schema = StructType([StructField(name, LongType()) for name in (*self._words, *others)])
        return rows.mapInArrow(_Permute(permutation, self._words, others), schema)

    def _with_signs(self, ordered: DataFrame, *others: str) -> DataFrame:
        turned = (F.col(name).bitwiseXOR(F.lit(signed(_SIGN))) for name in self._words)
        columns = [word.alias(name) for word, name in zip(turned, self._words, strict=True)]
        return ordered.select(*columns, *others)

    def _ranged(self, rows: DataFrame, by: list[str]) -> DataFrame:
        if self._partitions is None:
            return rows.repartitionByRange(*by)
        return rows.repartitionByRange(self._partitions, *by)

    def _sorted(self, rows: DataFrame, by: list[str]) -> DataFrame:
        return self._ranged(rows, by).sortWithinPartitions(*by)


class _Permute:
    """What is sent to the workers: permutes fingerprints, which come and go with signs."""

    def __init__(
        self, permutation: fpdb.Permutation, words: tuple[str, ...], others: tuple[str, ...]
    ) -> None:
        self._permutation = permutation
        self._words = words
        self._others = others

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = [batch[name].to_numpy().view(np.uint64) for name in self._words]
            array = words[0] if len(words) == 1 else np.stack(words, axis=-1)
            turned = self._permutation.apply(array) ^ np.uint64(_SIGN)
            columns = [turned] if len(words) == 1 else [turned[:, 0], turned[:, 1]]
            plain = [pa.array(np.ascontiguousarray(column).view(np.int64)) for column in columns]
            others = [batch[name] for name in self._others]
            names = [*self._words, *self._others]
            yield pa.RecordBatch.from_arrays([*plain, *others], names=names)


class _Target:
    """The directory that is written, through Hadoop's file systems, so on any that Spark knows."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self._session = session
        self._root = path.rstrip("/") or "/"
        context = session.sparkContext
        java: Any = context._jvm  # noqa: SLF001 - there is no other way
        self._hadoop = java.org.apache.hadoop
        settings = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._files: Any = self._at().getFileSystem(settings)

    def _at(self, *names: str) -> Any:
        return self._hadoop.fs.Path("/".join((self._root, *names)))

    def require_vacant(self) -> None:
        """Refuse a path where there is something."""
        if self._files.exists(self._at()):
            raise fpdb.InputError(
                f"there is something at {self._root}", hint="choose another path, or remove it"
            )

    def write(self, name: str, rows: DataFrame) -> None:
        """Write rows as Parquet files, in as many files as there are partitions."""
        writer = rows.write.option("compression", "zstd").option("maxRecordsPerFile", 0)
        writer.parquet(f"{self._root}/{name}")

    def read(self, name: str) -> DataFrame:
        """Read what was written."""
        return self._session.read.parquet(f"{self._root}/{name}")

    def write_manifest(self, text: str) -> None:
        """Write the manifest beside its place and move it there, so that it is whole or missing."""
        draft = self._at(".manifest.json")
        file = self._files.create(draft)
        try:
            file.write(bytearray(text.encode()))
        finally:
            file.close()
        self._files.rename(draft, self._at("manifest.json"))

    def remove(self) -> None:
        """Remove what was written."""
        self._files.delete(self._at(), True)  # noqa: FBT003 - Java knows no names
