"""Loading the columns that `fpdb.integrations.spark` writes, made here without Spark."""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fpdb

pytestmark = pytest.mark.process  # the files are decoded by a child process

TEXTS = [f"word{n} and further words of the text number {n} in a row" for n in range(40)]
TEXTS += ["short", "", TEXTS[3]]


def _write(path, *, bits=64, keys=None, sketched=False, recipe_id=None):
    """Write the columns of Spark in two files of a directory."""
    recipe = fpdb.recipe("web").with_bits(bits)
    batch = recipe.batch(TEXTS, sketches=sketched)
    missing = np.append(batch.short, True)
    shorts = zip(TEXTS, batch.short.tolist(), strict=True)
    digests = [recipe.digest(text, short=short) for text, short in shorts]
    numbers = np.concatenate([batch.fingerprints, batch.fingerprints[:1]]).view(np.int64)
    words = [pa.array(numbers, mask=missing)] if bits <= 64 else []
    if bits == 128:
        parts = [pa.array(np.ascontiguousarray(numbers[:, word])) for word in (0, 1)]
        words = [pa.StructArray.from_arrays(parts, ["high", "low"], mask=pa.array(missing))]
    columns = {
        "key": [*(keys or [f"k{n}" for n in range(len(TEXTS))]), 999 if keys else "bad"],
        "fingerprint": words[0],
        "digest": pa.array([*digests, None], pa.binary()),
        "characters": pa.array([*map(len, TEXTS), None], pa.int32()),
    }
    if sketched:
        rows = [row.tobytes() if row.any() else None for row in batch.sketches]
        columns["sketch"] = pa.array([*rows, None], pa.binary())
    columns["problem"] = pa.array([None] * len(TEXTS) + ["found no text"], pa.string())
    similarity = 0.9 if sketched else None
    note = {"fpdb": {"bits": bits, "recipe_id": recipe_id or recipe.id, "similarity": similarity}}
    fields = json.dumps({"fields": [{"name": "fingerprint", "metadata": note}]})
    table = pa.table(columns).replace_schema_metadata(
        {"org.apache.spark.sql.parquet.row.metadata": fields}
    )
    path.mkdir()
    parquet.write_table(table.slice(0, 20), path / "part-0.parquet")
    parquet.write_table(table.slice(20), path / "part-1.parquet")
    (path / "_SUCCESS").touch()
    return recipe


@pytest.mark.parametrize(
    ("bits", "keys", "sketched"),
    [(64, None, False), (64, None, True), (128, None, False), (32, list(range(43)), False)],
)
def test_documents_are_those_of_their_texts(tmp_path, bits, keys, sketched):
    recipe = _write(tmp_path / "prints.parquet", bits=bits, keys=keys, sketched=sketched)
    bad, shown = [], []
    loaded = fpdb.load(
        tmp_path / "db",
        str(tmp_path / "prints.parquet"),
        recipe=recipe,
        on_bad=bad.append,
        on_progress=lambda counts: shown.append(counts.read),
    )
    assert shown[-1] == loaded.read
    assert (loaded.read, loaded.bad) == (len(TEXTS) + 1, 1)
    assert [found.reason for found in bad] == ["found no text"]
    kind, similarity = "integer" if keys else "text", 0.9 if sketched else None
    with (
        fpdb.open(tmp_path / "db") as database,
        fpdb.create(tmp_path / "own", recipe=recipe, keys=kind, similarity=similarity) as own,
    ):
        assert database.similarity == similarity
        names = keys or [f"k{n}" for n in range(len(TEXTS))]
        list(own.add_many(fpdb.Document(key, text) for key, text in zip(names, TEXTS, strict=True)))
        for key, text in zip(names, TEXTS, strict=True):
            found, wanted = database[key], own[key]
            assert (found.fingerprint, found.short) == (wanted.fingerprint, wanted.short)
            assert found.sketch == wanted.sketch
            assert {match.key for match in database.query(text)} == {
                match.key for match in own.query(text)
            }
        assert list(database.check()) == []


def test_another_recipe_is_refused(tmp_path):
    _write(tmp_path / "prints.parquet", recipe_id="0123456789abcdef")
    with pytest.raises(fpdb.RecipeMismatchError, match="0123456789abcdef"):
        fpdb.load(tmp_path / "db", str(tmp_path / "prints.parquet"))
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize(("kind", "keys"), [("text", [5, 6]), ("integer", ["a", "b"])])
def test_keys_of_another_type_are_refused_by_their_rows(tmp_path, kind, keys):
    path, bad = str(tmp_path / "prints.parquet"), []
    parquet.write_table(pa.table({"key": keys, "fingerprint": pa.array([1, 2])}), path)
    fpdb.create(tmp_path / "db", keys=kind).close()
    loaded = fpdb.load(tmp_path / "db", path, on_bad=bad.append)
    assert (loaded.read, loaded.bad) == (2, 2)
    assert [record.source for record in bad] == [f"{path}:1", f"{path}:2"]
    assert bad[0].reason.startswith(f"found the key {keys[0]!r}")
