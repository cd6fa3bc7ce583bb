"""What stays is unchanged: bytes of lines and rows, schemas of Parquet; whole files or none."""

import csv
import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tiers import examples

import fpdb

TEXTS = [" ".join(f"w{place}x{number}" for place in range(40)) for number in range(8)]
LINES = st.lists(
    st.one_of(
        st.sampled_from(TEXTS).map(lambda text: json.dumps({"text": text}).encode()),
        st.sampled_from(TEXTS).map(lambda text: f'  {{"text":"{text}"}} \r'.encode()),
        st.sampled_from([b"", b"  ", b"\r", b"\xc2\xa0", b"\x1f", b"no JSON", b"\xff{}", b"[]"]),
    ),
    max_size=12,
)


def text_in(line):
    """The text of a line that is a record, by the documented rules."""
    try:
        return json.loads(line)["text"]
    except (ValueError, TypeError):
        return None


@given(files=st.lists(LINES, min_size=1, max_size=3), ended=st.booleans(), bom=st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_lines_that_stay_are_the_same_bytes(tmp_path_factory, files, ended, bom):
    folder = tmp_path_factory.mktemp("lines")
    paths, expected, seen = [], [], set()
    for number, given_lines in enumerate(files):
        lines = [*given_lines, json.dumps({"text": f"{TEXTS[0]} {number}" * 3}).encode()]
        path = folder / f"{number}.jsonl"
        data = b"\n".join(lines) + (b"\n" if ended else b"")
        path.write_bytes((b"\xef\xbb\xbf" if bom else b"") + data)
        paths.append(path)
        for line in lines:
            text = text_in(line)
            if line.decode(errors="replace").strip() and (text is None or text not in seen):
                seen.add(text)
                expected.append(line)
    fpdb.dedupe(paths, folder / "out.jsonl", similarity=1.0)
    found = (folder / "out.jsonl").read_bytes()
    assert found == b"\n".join(expected) + (b"\n" if ended else b"")


CELLS = st.one_of(
    st.sampled_from(["plain", 'a "quoted" cell', "two\nlines", "three\r\nlines\n", "", "ä,;\t|"]),
    st.sampled_from(TEXTS),
)


@given(
    rows=st.lists(st.tuples(CELLS, st.sampled_from(TEXTS)), max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
@settings(max_examples=examples(100), deadline=None)
def test_rows_of_csv_are_the_same_bytes(tmp_path_factory, rows, end, quoting):
    folder = tmp_path_factory.mktemp("csv")
    written = []
    for row in [("note", "text"), *rows]:
        line = io.StringIO()
        csv.writer(line, lineterminator=end, quoting=quoting).writerow(row)
        written.append(line.getvalue())
    source = folder / "in.csv"
    source.write_bytes(("\ufeff" + "".join(written)).encode())
    fpdb.dedupe(source, folder / "out.csv")
    seen, expected = set(), [written[0]]
    for (_, text), line in zip(rows, written[1:], strict=True):
        if text not in seen:
            seen.add(text)
            expected.append(line)
    assert (folder / "out.csv").read_bytes() == ("\ufeff" + "".join(expected)).encode()


def test_a_table_without_names_has_no_header(tmp_path):
    source = tmp_path / "in.tsv"
    source.write_text("".join(f"{place}\t{TEXTS[place % 3]}\n" for place in range(6)))
    reading = fpdb.Reading(key_field="1", text_field="2")
    fpdb.dedupe(source, tmp_path / "out.tsv", reading)
    rows = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert [row[0] for row in rows] == ["0", "1", "2"]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ""])
def test_the_suffix_of_the_output_says_how_it_is_packed(tmp_path, jsonl, corpus, suffix):
    records = corpus(30)
    fpdb.dedupe(jsonl("in.jsonl.gz", records), tmp_path / f"out.jsonl{suffix}")
    fpdb.dedupe(tmp_path / "in.jsonl.gz", tmp_path / "plain.jsonl")
    data = (tmp_path / f"out.jsonl{suffix}").read_bytes()
    if suffix == ".gz":
        data = gzip.decompress(data)
    elif suffix:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    assert data == (tmp_path / "plain.jsonl").read_bytes()


def table(count, schema=None):
    texts = [TEXTS[place % len(TEXTS)] for place in range(count)]
    columns = {
        "url": pa.array([f"https://a.example/{place}" for place in range(count)]),
        "text": pa.array(texts, pa.large_string()),
        "when": pa.array([place * 1000 for place in range(count)], pa.timestamp("ms", "UTC")),
        "vector": pa.array([[place, 0.5] for place in range(count)], pa.list_(pa.float32(), 2)),
        "tags": pa.array([{"a": place, "b": None} for place in range(count)]),
        "kind": pa.array(["x", None] * (count // 2)).dictionary_encode(),
        "amount": pa.array(range(count), pa.decimal128(9, 2)),
    }
    found = pa.table(columns)
    return found.replace_schema_metadata({b"about": b"a corpus", b"pandas": b"{}"})


@pytest.mark.process
def test_progress_of_parquet_is_shown_by_its_row_groups(tmp_path):
    texts = [f"page {number} {number * 7919 % 1009} has words of its own" for number in range(5000)]
    source = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"text": texts}), source, row_group_size=500)
    read = []
    fpdb.dedupe(
        source,
        tmp_path / "out.parquet",
        jobs=1,
        on_progress=lambda now: read.append(now.done) if now.stage == "reading" else None,
    )
    assert read == sorted(read)
    assert 0 < read[0] < 0.5 < read[-1] == 1


@pytest.mark.process
@pytest.mark.parametrize("codec", ["zstd", "none", "snappy"])
def test_parquet_keeps_schema_types_metadata_and_order(tmp_path, codec):
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    parquet.write_table(table(40), source, compression=codec, row_group_size=7)
    whole = parquet.read_table(source)  # which names the elements of lists otherwise
    stages = []
    counts = fpdb.dedupe(source, out, on_progress=lambda now: stages.append((now.stage, now.done)))
    assert ("writing", 1.0) in stages
    shares = {stage: [done for name, done in stages if name == stage] for stage, _ in stages}
    assert all(each == sorted(each) for each in shares.values())
    found = parquet.read_table(out)
    assert found.schema.equals(whole.schema, check_metadata=True)
    assert found.equals(whole.slice(0, len(TEXTS)))
    assert counts.kept == len(TEXTS)
    packed = parquet.ParquetFile(out).metadata.row_group(0).column(0).compression
    assert packed.lower() == {"none": "uncompressed"}.get(codec, codec)


@pytest.mark.process
@pytest.mark.slow("children load pyarrow")
def test_several_parquet_files_become_one_or_stay_several(tmp_path):
    names = ["a.parquet", "b.parquet"]
    for place, name in enumerate(names):
        parquet.write_table(table(12).slice(place * 5, 6), tmp_path / name)
    paths = [tmp_path / name for name in names]
    fpdb.dedupe(paths, tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").num_rows == len(TEXTS)
    fpdb.dedupe(paths, output_dir=tmp_path / "clean")
    parts = [parquet.read_table(tmp_path / "clean" / name) for name in names]
    assert [part.num_rows for part in parts] == [6, 2]
    joined = pa.concat_tables(parts)
    assert joined.equals(parquet.read_table(tmp_path / "out.parquet"))
    assert sorted(each.name for each in (tmp_path / "clean").iterdir()) == names


@pytest.mark.process
def test_an_empty_corpus_keeps_its_header_and_schema(tmp_path):
    (tmp_path / "in.csv").write_text("id,text\n")
    fpdb.dedupe(tmp_path / "in.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "id,text\n"
    parquet.write_table(table(4).slice(0, 0), tmp_path / "in.parquet")
    fpdb.dedupe(tmp_path / "in.parquet", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet").schema.names[:2] == ["url", "text"]
    (tmp_path / "in.jsonl").write_text("\n")
    assert fpdb.dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl").read == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    ("names", "texts", "message"),
    [
        (["a.csv", "b.csv"], ["id,text\n1,x\n", "text,id\nx,1\n"], "other columns than"),
        (["a.csv"], ["id,words\n1,x\n"], "found no text"),
        (["a.jsonl", "b.csv"], ["{}\n", "id,text\n"], "is csv, and"),
        (["a.txt"], ["a text"], "is text, expected records"),
        (["a.html"], ["<p>a page"], "is html, expected records"),
        (["."], [None], "found no files"),
        (["missing.jsonl"], [None], "No such file"),
    ],
)
def test_what_cant_be_copied_is_refused_at_once(tmp_path, names, texts, message):
    paths = [tmp_path / name for name in names]
    for path, text in zip(paths, texts, strict=True):
        if text is not None:
            path.write_text(text)
    out = tmp_path / f"out{paths[0].suffix if '.' in names[0][1:] else '.jsonl'}"
    before = sorted(tmp_path.iterdir())
    with pytest.raises(fpdb.InputError, match=message) as caught:
        fpdb.dedupe(paths, out)
    assert caught.value.hint
    assert sorted(tmp_path.iterdir()) == before


def test_an_output_that_is_an_input_is_refused(tmp_path, jsonl, corpus):
    path = jsonl("in.jsonl", corpus(3))
    data = path.read_bytes()
    with pytest.raises(fpdb.InputError, match="is an input"):
        fpdb.dedupe(path, path)
    with pytest.raises(fpdb.InputError, match="is an input"):
        fpdb.dedupe(path, output_dir=tmp_path)
    other = jsonl("other.jsonl", corpus(3))
    with pytest.raises(fpdb.InputError, match=f"of the same name: {other} and {other}"):
        fpdb.dedupe([path, other, other, path], output_dir=tmp_path / "clean")
    with pytest.raises(fpdb.InputError, match="in one place"):
        fpdb.dedupe(path, tmp_path / "out.jsonl", removed=tmp_path / "out.jsonl")
    assert path.read_bytes() == data


def test_lines_of_a_pipe_go_by_its_name_in_a_database(tmp_path, monkeypatch):
    texts = [f"the line {number} says {number * 7919} and is {number**5} long" for number in (1, 2)]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    reading = fpdb.Reading(format="lines")
    fpdb.dedupe("-", tmp_path / "out.txt", reading, database=tmp_path / "a.fpdb")
    with fpdb.open(tmp_path / "a.fpdb") as database:
        assert list(database.keys()) == ["-:1", "-:2"]


@pytest.mark.process
def test_folders_that_are_columns_are_in_the_output_too(tmp_path, caplog):
    texts = [
        f"Red kites nest above the quarry again: wardens counted {count} pairs in April this year. "
        f"Their young will fly before the summer is over, and begin the long journey {where}."
        for count, where in [("eleven", "south"), ("eleven", "home"), ("ten", "south")]
    ]
    for month, part in [("01", "a"), ("01", "b"), ("02", "a")]:
        folder = tmp_path / "lake" / "year=2026" / f"month={month}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [{"key": f"{month}{part}{n}", "text": texts[n]} for n in range(3)]
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"part-{part}.parquet")
    fpdb.dedupe(tmp_path / "lake", output_dir=tmp_path / "out")
    written = sorted(p.relative_to(tmp_path / "out") for p in (tmp_path / "out").rglob("*.parquet"))
    assert [str(path) for path in written] == [
        "year=2026/month=01/part-a.parquet",
        "year=2026/month=01/part-b.parquet",
        "year=2026/month=02/part-a.parquet",
    ]
    table = parquet.read_table(tmp_path / "out", partitioning="hive")
    assert set(table.column_names) == {"key", "text", "year", "month"}
    assert table.column("key").to_pylist() == ["01a0"]
    # One file lacks them, which is said.
    fpdb.dedupe(tmp_path / "lake", output=tmp_path / "one.parquet")
    assert parquet.read_table(tmp_path / "one.parquet").column("key").to_pylist() == ["01a0"]
    assert "has no columns month, year of folders" in caplog.text
    # So do files that a pattern names.
    fpdb.dedupe(str(tmp_path / "lake/*/*/*.parquet"), output_dir=tmp_path / "named")
    assert [
        path.relative_to(tmp_path / "named") for path in sorted(tmp_path.glob("named/*/*/*"))
    ] == written
    # Two files of one folder still can't have one name.
    lake = tmp_path / "lake" / "year=2026" / "month=01" / "part-a.parquet"
    with pytest.raises(fpdb.InputError, match="of the same name"):
        fpdb.dedupe([lake, str(lake)], output_dir=tmp_path / "twice")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("run=3/a.jsonl", ["a.jsonl"]),
        ("run=3", ["a.jsonl", "day=1/b.jsonl"]),
        ("run=3/day=1", ["b.jsonl"]),
        (".", ["run=3/a.jsonl", "run=3/day=1/b.jsonl"]),
    ],
)
def test_only_folders_below_a_directory_are_in_the_output(tmp_path, jsonl, source, expected):
    (tmp_path / "in" / "run=3" / "day=1").mkdir(parents=True)
    jsonl("in/run=3/a.jsonl", [{"text": TEXTS[0]}])
    jsonl("in/run=3/day=1/b.jsonl", [{"text": TEXTS[1]}])
    counts = fpdb.dedupe(tmp_path / "in" / source, output_dir=tmp_path / "out")
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(str(path.relative_to(tmp_path / "out")) for path in written) == expected
    assert [Path(path).name for path in counts.paths] == [Path(path).name for path in expected]
