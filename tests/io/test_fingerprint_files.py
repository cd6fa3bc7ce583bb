"""Ready fingerprints that are loaded by columns: what is stored is what a plain reading finds."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fpdb
from fpdb.io import fingerprint_files
from fpdb.io.fingerprint_files import UnusualError, digit_blocks
from fpdb.io.records import Reading
from fpdb.io.streams import UNWATCHED

COUNT = 1000
DICE = np.random.default_rng(23)
RECIPES = {32: "none-32", 64: "none", 128: "none-128"}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint_files, "_ROWS", 250)
    monkeypatch.setattr(fingerprint_files, "_CHUNK", 2000)


def prints(bits: int) -> tuple[Any, dict[int, int]]:
    """Make fingerprints as an array, and as numbers by the keys from 0 on; some come twice."""
    words = DICE.integers(0, 2**64, (COUNT, 2), np.uint64)
    words[100:200] = words[:100]
    if bits < 128:
        array = words[:, 0] >> np.uint64(64 - bits)
        return array, dict(enumerate(array.tolist()))
    return words, {key: high << 64 | low for key, (high, low) in enumerate(words.tolist())}


def stored(path: Path) -> dict[Any, int | None]:
    with fpdb.open(path, readonly=True) as db:
        assert list(db.check()) == []
        return {document.key: document.fingerprint for document in db.scan()}


def keyed(keys: Any, array: Any) -> Any:
    """Return one array with the fields key and fingerprint."""
    shape = array.shape[1:]
    kind = [("key", np.asarray(keys).dtype), ("fingerprint", array.dtype, shape)]
    rows = np.empty(len(array), kind)
    rows["key"], rows["fingerprint"] = keys, array
    return rows


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_arrays_are_numbered_on_from_what_is_stored(tmp_path: Path, bits: int) -> None:
    array, expected = prints(bits)
    np.save(tmp_path / "first.npy", array[:400])
    np.save(tmp_path / "second.npy", array[400:500])
    array[500:].astype("<u8").tofile(tmp_path / "third.u64")
    names = [tmp_path / name for name in ("first.npy", "second.npy", "third.u64")]
    counts = fpdb.load(tmp_path / "one", names, recipe=RECIPES[bits])
    assert (counts.read, counts.added, counts.replaced) == (COUNT, COUNT, 0)
    assert stored(tmp_path / "one") == expected
    for name in names:
        fpdb.load(tmp_path / "three", name, recipe=RECIPES[bits])
    assert stored(tmp_path / "three") == expected


def test_an_array_says_its_width_and_the_kind_of_its_keys(tmp_path: Path) -> None:
    array, expected = prints(128)
    np.save(tmp_path / "wide.npy", array)
    fpdb.load(tmp_path / "wide", tmp_path / "wide.npy")
    assert stored(tmp_path / "wide") == expected
    array, expected = prints(64)
    names = np.array([f"page {key}" for key in range(COUNT)])
    np.save(tmp_path / "texts.npy", keyed(names, array))
    fpdb.load(tmp_path / "texts", tmp_path / "texts.npy")
    assert stored(tmp_path / "texts") == {f"page {key}": value for key, value in expected.items()}


@pytest.mark.parametrize("bits", [64, 128])
def test_arrays_with_keys_replace_what_is_stored(tmp_path: Path, bits: int) -> None:
    array, expected = prints(bits)
    keys = DICE.permutation(COUNT)
    twice = np.append(keys[:100], keys)  # the last of each key counts
    np.save(tmp_path / "a.npy", keyed(twice, np.concatenate([array[::-1][:100], array])))
    counts = fpdb.load(tmp_path / "db", tmp_path / "a.npy", recipe=RECIPES[bits])
    assert (counts.read, counts.added, counts.unchanged) == (COUNT + 100, COUNT, 100)
    numbers = [expected[place] for place in range(COUNT)]
    assert stored(tmp_path / "db") == dict(zip(keys.tolist(), numbers, strict=True))
    np.save(tmp_path / "b.npy", keyed(keys[:200].astype(">u4"), array[200:400].astype(">u8")))
    counts = fpdb.load(tmp_path / "db", tmp_path / "b.npy")
    assert (counts.added, counts.replaced, counts.unchanged) == (0, 200, 0)
    new = dict(zip(keys[:200].tolist(), numbers[200:400], strict=True))
    assert stored(tmp_path / "db") == dict(zip(keys.tolist(), numbers, strict=True)) | new


@pytest.mark.process
def test_parquet_of_unsigned_words_is_read_by_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, expected = prints(64)
    keys: list[int | None] = [*range(COUNT)]
    keys[7], values = None, pa.array(array, mask=np.arange(COUNT) == 9)
    parquet.write_table(pa.table({"key": keys, "fingerprint": values}), tmp_path / "p.parquet")
    size = (tmp_path / "p.parquet").stat().st_size
    bad: list[Any] = []
    counts = fpdb.load(tmp_path / "db", tmp_path / "p.parquet", on_bad=bad.append)
    assert (counts.read, counts.added, counts.bad) == (COUNT, COUNT - 2, 2)
    assert (counts.bytes_read, counts.bytes_total) == (counts.bytes_total, size)
    assert [record.source for record in bad] == [
        f"{tmp_path / 'p.parquet'}:{row}" for row in (8, 10)
    ]
    assert "found no key: expected the field" in bad[0].reason
    assert "'fingerprint' holds null" in bad[1].reason
    assert stored(tmp_path / "db") == {k: v for k, v in expected.items() if k not in (7, 9)}
    fpdb.load(tmp_path / "texts", tmp_path / "p.parquet", keys="text")
    assert len(stored(tmp_path / "texts")) == COUNT - 2
    parquet.write_table(
        pa.table({"key": range(COUNT), "fingerprint": array}), tmp_path / "p.parquet"
    )
    monkeypatch.setattr("fpdb.flow.Flow.prepared", None)  # which reads records one by one
    fpdb.load(tmp_path / "whole", tmp_path / "p.parquet")
    assert stored(tmp_path / "whole") == expected


@pytest.mark.process
@pytest.mark.parametrize("signed", [True, False])
def test_a_bad_row_of_parquet_is_named_and_left_out(tmp_path: Path, *, signed: bool) -> None:
    words = pa.array([1, 2, None, 4], pa.int64() if signed else pa.uint64())
    path = tmp_path / "p.parquet"
    parquet.write_table(pa.table({"key": [-1, 6, 7, None], "fingerprint": words}), path)
    bad: list[Any] = []
    counts = fpdb.load(tmp_path / "db", path, on_bad=bad.append)
    assert (counts.read, counts.bad) == (4, 3)
    assert [record.source for record in bad] == [f"{path}:{row}" for row in (1, 3, 4)]
    assert stored(tmp_path / "db") == {6: 2}
    assert counts.bytes_read == path.stat().st_size


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "keys"),
    [("int64", [5, 6]), ("uint64", ["5", "6"]), ("uint32", [5, 6]), ("string", ["5", "6"])],
)
def test_keys_are_of_the_kind_of_their_column(tmp_path: Path, kind: str, keys: list[Any]) -> None:
    table = pa.table({"key": keys, "fingerprint": pa.array([1, 2]).cast(kind)})
    parquet.write_table(table, tmp_path / "p.parquet")
    fpdb.load(tmp_path / "db", tmp_path / "p.parquet")
    assert stored(tmp_path / "db") == dict(zip(keys, (1, 2), strict=True))


@pytest.mark.parametrize("form", ["csv", "tsv"])
@pytest.mark.parametrize("base", ["hex", "decimal"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_tables_of_digits(
    tmp_path: Path, form: str, base: Any, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array, expected = prints(64)
    array[:4] = expected[0], expected[1], expected[2], expected[3] = 0, 1, 2**64 - 1, 10**19
    mark = "," if form == "csv" else "\t"
    written = [format(number, "x" if base == "hex" else "d") for number in array.tolist()]
    lines = [mark.join(("other", "fingerprint", "key"))]
    lines += [mark.join(("é", digits, f"{key:03d}")) for key, digits in enumerate(written)]
    path = tmp_path / f"prints.{form}"
    path.write_text(end.join(lines), "utf-8", newline="")
    reading = Reading(base=base)
    counts = fpdb.load(tmp_path / "records", path, reading, keys="integer")
    monkeypatch.setattr("fpdb.flow.Flow.prepared", None)  # which reads records one by one
    counts = fpdb.load(tmp_path / "columns", path, reading, keys="integer")
    assert (counts.read, counts.added) == (COUNT, COUNT)
    assert stored(tmp_path / "columns") == stored(tmp_path / "records") == expected
    path.write_text(end.join(lines[1:]) + end, "utf-8", newline="")
    reading = Reading(base=base, key_field="3", fingerprint_field="2")
    fpdb.load(tmp_path / "numbered", path, reading, keys="integer")
    assert stored(tmp_path / "numbered") == expected


@pytest.mark.parametrize(
    "line",
    [
        '1,"2"',
        "1,0x2",
        "1,-2",
        "1,",
        ",2",
        "1,2,3\n4",
        "",
        "1,20000000000000000000",
        "1,18446744073709551616",
        "1,123456789012345678901",
        "18446744073709551616,1",
        "1,2g",
        "1,2 ",
    ],
)
def test_a_table_with_a_line_that_isnt_plain_is_read_as_records(tmp_path: Path, line: str) -> None:
    path = tmp_path / "prints.csv"
    path.write_text(f"key,fingerprint\n5,6\n{line}\n7,8\n")
    reading = Reading(base="decimal", fingerprint_field="fingerprint")
    with pytest.raises(UnusualError):
        list(digit_blocks(str(path), "csv", reading, 64, UNWATCHED))
    counts = fpdb.load(tmp_path / "db", path, reading, keys="integer")
    assert stored(tmp_path / "db").items() >= {5: 6, 7: 8}.items() or counts.bad
    assert counts.read == counts.added + counts.bad >= 2


def test_damaged_files_are_named_and_leave_all_as_it_was(tmp_path: Path) -> None:
    array, expected = prints(64)
    np.save(tmp_path / "good.npy", array)
    fpdb.load(tmp_path / "db", tmp_path / "good.npy")
    data = (tmp_path / "good.npy").read_bytes()
    broken = {
        "short.npy": data[:-800],
        "head.npy": data[:70],
        "none.npy": b"",
        "text.npy": b"key,fingerprint\n1,2\n",
        "odd.u64": data[:-3],
    }
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
    np.save(tmp_path / "objects.npy", np.array([1, "a"], object), allow_pickle=True)
    for name, wrong in {
        "signed.npy": array.view(np.int64),
        "halves.npy": np.zeros((3, 2), np.uint32),
        "cube.npy": np.zeros((2, 2, 2), np.uint64),
        "columns.npy": np.asfortranarray(np.zeros((3, 2), np.uint64)),
        "lacking.npy": np.zeros(3, [("keys", "u8"), ("fingerprint", "u8")]),
        "floats.npy": np.zeros(3, [("key", "u8"), ("fingerprint", "f8")]),
        "wide.npy": np.zeros((3, 2), np.uint64),
    }.items():
        np.save(tmp_path / name, wrong)
        broken[name] = b""
    for name in ("pipe.npy", "pipe.u64"):
        os.mkfifo(tmp_path / name)
    for name in [*broken, "objects.npy", "absent.npy", "pipe.npy", "pipe.u64"]:
        with pytest.raises(fpdb.InputError, match=name) as refused:
            fpdb.load(tmp_path / "db", [tmp_path / "good.npy", tmp_path / name])
        assert "load it unsafely" not in str(refused.value)
        with pytest.raises(fpdb.InputError):
            fpdb.load(tmp_path / "new", tmp_path / name, recipe="none")
        assert not (tmp_path / "new").exists()
    assert stored(tmp_path / "db") == expected
    fpdb.create(tmp_path / "texts", recipe="none", similarity=None).close()
    with pytest.raises(fpdb.InputError, match="without keys"):
        fpdb.load(tmp_path / "texts", tmp_path / "good.npy")
    with pytest.raises(fpdb.InputError, match=r"halves\.npy holds an array uint32"):
        fpdb.load(tmp_path / "halves", tmp_path / "halves.npy", recipe="none-128")
