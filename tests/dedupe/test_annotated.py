"""Annotated copies: all records as they were, and after them which record stays for record."""

import csv
import gzip
import io
import json
import re

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tiers import examples

import fpdb
from fpdb.io import streams

TEXTS = [" ".join(f"w{place}x{number}" for place in range(40)) for number in range(4)]
TEXTS += [f"{text} edited" for text in TEXTS]
OBJECTS = [
    {},
    {"text": 5},
    {"text": "short"},
    {"text": TEXTS[0], "other": {"kept_key": 1, "a": "}"}},
    *({"text": text} for text in TEXTS),
]
LINES = st.lists(
    st.one_of(
        st.sampled_from(OBJECTS).map(lambda fields: json.dumps(fields).encode()),
        st.sampled_from(TEXTS).map(lambda text: f'  {{"text":"{text}" , "n":NaN }} \r'.encode()),
        st.sampled_from(
            [b"", b"  ", b"\r", b"\x1f", b"no JSON", b"\xff{}x", b"[]", b'"{"', b"{ }"]
        ),
    ),
    max_size=12,
)
CELLS = st.sampled_from(
    ["plain", 'a "quoted" cell', "two\nlines", "three\r\nlines\n", "", "ä,;\t|", "x\n\ny"]
)
FIELDS = ["kept_key", "similarity", "own_share"]
ADDED = re.compile(
    rb'(, )?"kept_key": ("[^"]*"|-?\d+), "similarity": [^,]*, "own_share": [^,}]*(?=\}\s*$)'
)


def removed_by(source, folder, **options):
    """The lines about what a plain run removes, by the places of the records."""
    path = folder / "plain-removed.jsonl"
    fpdb.dedupe(source, output_dir=folder / "plain", removed=path, **options)
    return {record["source"]: record for record in map(json.loads, path.read_text().splitlines())}


def require_said(rows, places, keys, removed):
    """Rows of the three fields say what the lines about removed records do, and nothing else."""
    for row, place, key in zip(rows, places, keys, strict=True):
        line = removed.pop(place, None)
        expected = [line[name] for name in FIELDS] if line else [key or place, None, None]
        assert list(row) == expected
    assert not removed


def unpacked(path):
    data = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(data)
    return (
        zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if path.suffix == ".zst"
        else data
    )


@given(
    files=st.lists(LINES, min_size=1, max_size=3),
    ended=st.booleans(),
    bom=st.booleans(),
    keep=st.sampled_from(["first", "longest"]),
)
@settings(max_examples=examples(100), deadline=None)
def test_lines_without_the_fields_are_the_same_bytes(tmp_path_factory, files, ended, bom, keep):
    folder = tmp_path_factory.mktemp("lines")
    mark, paths, expected, places = b"\xef\xbb\xbf" * bom, [], [], []
    for number, given_lines in enumerate(files):
        lines = [*given_lines, json.dumps({"text": f"{TEXTS[0]} {number}" * 3}).encode()]
        paths.append(folder / f"{number}.jsonl")
        paths[-1].write_bytes(mark + b"\n".join(lines) + b"\n" * ended)
        for place, line in enumerate(lines, 1):
            if line.decode(errors="replace").strip():
                expected.append(line)
                places.append(f"{paths[-1]}:{place}")
    fpdb.dedupe(paths, folder / "out.jsonl", annotate=True, keep=keep)
    output = (folder / "out.jsonl").read_bytes()
    lines = output.removesuffix(b"\n").split(b"\n")
    assert b"\n".join(ADDED.sub(b"", line) for line in lines) == b"\n".join(expected)
    assert output.endswith(b"\n") == ended
    pairs = [(line, place) for line, place in zip(lines, places, strict=True) if ADDED.search(line)]
    rows = [[json.loads(line)[name] for name in FIELDS] for line, _ in pairs]
    assert len(rows) == sum(line.strip()[-1:] == b"}" for line in expected)
    require_said(
        rows,
        [place for _, place in pairs],
        [None] * len(rows),
        removed_by(paths, folder, keep=keep),
    )


@given(
    rows=st.lists(st.tuples(CELLS, st.sampled_from(TEXTS)), max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    mark=st.sampled_from(",;|"),
    chunk=st.sampled_from([7, 100, 1 << 18]),
    blank=st.booleans(),
)
@settings(max_examples=examples(100), deadline=None)
def test_rows_of_csv_get_three_cells(tmp_path_factory, rows, end, quoting, mark, chunk, blank):
    folder = tmp_path_factory.mktemp("csv")
    rows = [*rows, ("last", TEXTS[-1])]
    written = [row_of(row, mark, quoting) for row in [("id", "text"), *rows]]
    source = folder / "in.csv"
    between = end * (1 + blank)  # an empty line belongs to no row
    source.write_bytes(("\ufeff" + between.join(written) + end).encode())
    removed = removed_by(source, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_CHUNK", chunk)
        fpdb.dedupe(source, folder / "out.csv", annotate=True)
    expected, line = [written[0] + mark + row_of(FIELDS, mark)], 1
    for (key, _), row, before in zip(rows, written[1:], written, strict=False):
        line += before.count("\n") + 1 + blank
        place = f"{source}:{line}"
        said = removed.pop(place, {"kept_key": key or place})
        expected.append(row + row_of(["", *map(said.get, FIELDS)], mark))
    assert not removed
    assert (folder / "out.csv").read_bytes() == ("\ufeff" + end.join([*expected, ""])).encode()


def row_of(values, mark, quoting=csv.QUOTE_MINIMAL):
    line = io.StringIO()
    csv.writer(line, delimiter=mark, quoting=quoting).writerow(values)
    return line.getvalue().removesuffix("\r\n")


def lines_of(records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def rows_of(records, mark):
    names = list(records[0])
    rows = [names, *(list(map(str, record.values())) for record in records)]
    return "".join(row_of(row, mark) + "\n" for row in rows).encode()


def packed_table(records):
    data = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(records), data, row_group_size=70)
    return data.getvalue()


WRITERS = {
    "jsonl": lines_of,
    "csv": lambda records: rows_of(records, ","),
    "tsv": lambda records: rows_of(records, "\t"),
    "parquet": packed_table,
}
READERS = {
    "jsonl": lambda data: list(map(json.loads, data.splitlines())),
    "csv": lambda data: list(csv.DictReader(io.StringIO(data.decode()))),
    "tsv": lambda data: list(csv.DictReader(io.StringIO(data.decode()), delimiter="\t")),
    "parquet": lambda data: parquet.read_table(io.BytesIO(data)).to_pylist(),
}
PACKED = {"": bytes, "gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}


@pytest.mark.parametrize(
    ("form", "packing"),
    [
        pytest.param("parquet", "", marks=pytest.mark.process),
        *((form, packing) for form in ("jsonl", "csv", "tsv") for packing in PACKED),
    ],
)
def test_every_format_says_what_is_removed(tmp_path, corpus, form, packing):
    records = corpus(300)
    suffix = ".".join(filter(None, [form, packing]))
    paths = [tmp_path / f"{side}.{suffix}" for side in "ab"]
    for path, part in zip(paths, [records[:200], records[200:]], strict=True):
        path.write_bytes(PACKED[packing](WRITERS[form](part)))
    removed = removed_by(paths, tmp_path)
    assert 50 < len(removed) < 200
    fpdb.dedupe(paths, tmp_path / f"out.{suffix}", annotate=True)
    fpdb.dedupe(paths, output_dir=tmp_path / "out", annotate=True)
    together = READERS[form](unpacked(tmp_path / f"out.{suffix}"))
    parts = [READERS[form](unpacked(tmp_path / "out" / path.name)) for path in paths]
    assert together == parts[0] + parts[1]
    before = [row for path in paths for row in READERS[form](unpacked(path))]
    assert [{name: row[name] for name in row if name not in FIELDS} for row in together] == before
    said = {row["id"]: row for row in together if row["kept_key"] != row["id"]}
    assert said.keys() == {record["key"] for record in removed.values()}
    for record in removed.values():
        row = said[record["key"]]
        assert row["kept_key"] == record["kept_key"]
        assert float(row["similarity"]) == record["similarity"]
        assert float(row["own_share"]) == record["own_share"]
    alone = [row for row in together if row["id"] not in said]
    assert {row[name] or None for row in alone for name in FIELDS[1:]} == {None}
    assert {row["kept_key"] for row in together} == {row["id"] for row in alone}


@pytest.mark.process
def test_keys_of_columns_are_numbers_if_all_are(tmp_path, corpus):
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    records = [{**record, "id": number << 50} for number, record in enumerate(corpus(60))]
    table = pa.Table.from_pylist(records).replace_schema_metadata({b"about": b"a corpus"})
    for key, kind in [(0, pa.int64()), (None, pa.string()), (2**63, pa.string())]:
        ids = [key, *table["id"].to_pylist()[1:]]
        given_table = table.set_column(0, "id", pa.array(ids, pa.uint64()))
        parquet.write_table(given_table, source, compression="zstd")
        fpdb.dedupe(source, out, annotate=True)
        schema = parquet.read_schema(source)
        for name, of_it in zip(FIELDS, [kind, pa.float64(), pa.float64()], strict=True):
            schema = schema.append(pa.field(name, of_it))
        output = parquet.read_table(out)
        assert output.schema.equals(schema, check_metadata=True)
        assert output.drop_columns(FIELDS).equals(parquet.read_table(source))
        first = f"{source}:1" if key is None else key
        assert output["kept_key"][0].as_py() == (first if kind == "int64" else str(first))
        assert parquet.ParquetFile(out).metadata.row_group(0).column(0).compression == "ZSTD"


def test_records_in_memory_get_the_fields_or_metadata(corpus):
    records, removed = corpus(1500), []
    for keep in ("first", "longest"):
        removed.clear()
        kept = list(fpdb.dedupe(records, keep=keep, on_removed=removed.append))
        output = list(fpdb.dedupe(iter(records), keep=keep, annotate=True))
        assert [list(record) for record in output] == [["id", "text", "n", *FIELDS]] * len(records)
        assert [
            {name: record[name] for name in record if name not in FIELDS} for record in output
        ] == records
        assert [record["id"] for record in output if record["kept_key"] == record["id"]] == [
            record["id"] for record in kept
        ]
        said = {record.key: [record.kept_key, round(record.similarity, 4)] for record in removed}
        gone = [record for record in output if record["id"] in said]
        assert [[record["kept_key"], record["similarity"]] for record in gone] == list(
            map(said.get, (record["id"] for record in gone))
        )
    documents = [
        fpdb.Document(record["id"], record["text"], {"n": record["n"]}) for record in records
    ]
    metas = [record.meta for record in fpdb.dedupe(documents, keep="longest", annotate=True)]
    assert metas == [{name: record[name] for name in ["n", *FIELDS]} for record in output]


def test_what_is_bad_or_short_stays_as_it_is(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    lines = ["no JSON", '{"id": 1}', '{"id": 2, "text": "Thanks!"}', json.dumps({"text": TEXTS[0]})]
    source.write_text("\n".join([*lines, *lines]))
    fpdb.dedupe(source, out, annotate=True)
    first, *rows = out.read_text().splitlines()
    assert [first, rows.pop(3)] == ["no JSON"] * 2
    said = [list(json.loads(row).values())[-3:] for row in rows]
    places = [f"{source}:4", 1.0, 0.0]
    assert said == [
        *([1, None, None], [2, None, None], [f"{source}:4", None, None]),
        *([1, None, None], [2, 1.0, 0.0], places),
    ]
    counts = fpdb.dedupe(source, out, annotate=True, bad="drop")
    rows = [rows[1], rows[2], rows[4], rows[5]]
    assert out.read_text().splitlines() == rows
    assert (counts.kept, counts.removed, counts.bytes_saved) == (2, 2, None)
    assert counts.marks.tolist() == [False, False, True, True, *[False] * 4]


def test_a_document_of_the_database_stays(tmp_path, corpus, jsonl):
    records, database = corpus(200), tmp_path / "corpus.fpdb"
    first, second = jsonl("first.jsonl", records[:100]), jsonl("second.jsonl", records[100:])
    fpdb.dedupe(first, tmp_path / "a.jsonl", database=database, annotate=True)
    removed = tmp_path / "removed.jsonl"
    out = tmp_path / "b.jsonl"
    fpdb.dedupe(second, out, database=database, annotate=True, removed=removed)
    rows = {row["id"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert len(rows) == 100
    told = list(map(json.loads, removed.read_text().splitlines()))
    assert any(record["kept_source"].startswith(str(first)) for record in told)
    for record in told:
        row = rows.pop(record["key"])
        assert [row[name] for name in FIELDS] == [record[name] for name in FIELDS]
    assert all(row["kept_key"] == key for key, row in rows.items())
    with fpdb.open(database) as db:
        assert sorted(db.keys()) == sorted(record["id"] for record in fpdb.dedupe(records))


@pytest.mark.process
@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_is_there_is_an_error(tmp_path, corpus, form, name):
    records = [*corpus(40), {"id": "x", "text": TEXTS[0], "n": 1}]
    if form == "jsonl":
        records[-1][name] = None
    else:
        records = [{**record, name: 1} for record in records]
    source = tmp_path / f"in.{form}"
    source.write_bytes(WRITERS[form](records))
    where = f"{source}:41" if form == "jsonl" else source
    outputs = {"removed": tmp_path / "removed.jsonl", "database": tmp_path / "corpus.fpdb"}
    with pytest.raises(fpdb.InputError) as caught:
        fpdb.dedupe(
            source,
            tmp_path / f"out.{form}.gz"[: None if form != "parquet" else -3],
            annotate=True,
            **outputs,
        )
    assert str(caught.value).startswith(f"{where} has a field {name!r}, ")
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    "line",
    ['{"text": "a b c", "own\\u005fshare": 1}', '{"similarity": NaN, "text": "a b c"}'],
)
def test_a_field_is_found_however_it_is_written(tmp_path, line):
    source = tmp_path / "in.jsonl"
    source.write_text(line)
    with pytest.raises(fpdb.InputError, match=r"in\.jsonl:1 has a field '(own_share|similarity)'"):
        fpdb.dedupe(source, tmp_path / "out.jsonl", annotate=True)


@pytest.mark.parametrize(
    ("records", "where"),
    [
        ([{"text": "a"}, {"text": "b", "kept_key": None}], "record 2"),
        ([fpdb.Document(1, "a", {"kept_key": 2})], "record 1"),
        (pa.table({"text": ["a"], "kept_key": ["b"]}), "the table"),
    ],
)
def test_a_field_in_memory_that_is_there_is_an_error(tmp_path, records, where):
    with pytest.raises(fpdb.InputError, match=f"{where} has a field 'kept_key'"):
        list(fpdb.dedupe(records, annotate=True, database=tmp_path / "corpus.fpdb"))
    assert not (tmp_path / "corpus.fpdb").exists()


def test_an_encoding_stays_if_it_has_the_keys(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_bytes(f"id,text\n键,{TEXTS[0]}\n".encode("gb18030"))
    second.write_bytes(f"id,text\né,{TEXTS[0]}\n".encode("latin-1"))
    reading = fpdb.Reading(encoding="gb18030")
    fpdb.dedupe(first, tmp_path / "out.csv", reading, annotate=True)
    row = f"键,{TEXTS[0]},键,,\n"
    assert (tmp_path / "out.csv").read_bytes().decode("gb18030").endswith(row)
    first.write_text(first.read_bytes().decode("gb18030"))
    reading = fpdb.Reading(encoding=None)
    before = sorted(tmp_path.iterdir())
    second.write_bytes(
        f"id,text\né,{TEXTS[0]}\nà,les élèves français à Genève ont été\n".encode("latin-1")
    )
    with pytest.raises(fpdb.InputError, match=r"is in cp1252, which lacks '键' of a key"):
        fpdb.dedupe([first, second], output_dir=tmp_path / "out", annotate=True)
    assert not any((tmp_path / "out").iterdir())
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "out"])


def test_what_has_no_place_for_a_field_is_refused(tmp_path, jsonl):
    lines = tmp_path / "in.txt"
    lines.write_text("a b c\n")
    reading = fpdb.Reading(format="lines")
    with pytest.raises(fpdb.InputError, match="has lines of text, which have no fields"):
        fpdb.dedupe(lines, tmp_path / "out.txt", reading, annotate=True)
    records = jsonl("in.jsonl", [{"id": "a\tb", "text": TEXTS[0]}])
    table = tmp_path / "in.tsv"
    table.write_text(f'id\ttext\n"1"\t{TEXTS[0]}\n')
    fpdb.dedupe(table, tmp_path / "out.tsv", annotate=True)
    assert (tmp_path / "out.tsv").read_text().endswith('\t"1"\t\t\n')
    with pytest.raises(fpdb.InputError, match=r"'a\\tb' can't be in a table where nothing is"):
        fpdb.dedupe([records, table], output_dir=tmp_path / "out", annotate=True)
    assert not any((tmp_path / "out").iterdir())


def test_numbered_columns_get_three_more(tmp_path):
    source, out = tmp_path / "in.tsv", tmp_path / "out.tsv"
    source.write_text(f"a\t{TEXTS[0]}\nb\t{TEXTS[0]}")
    reading = fpdb.Reading(key_field="1", text_field="2")
    fpdb.dedupe(source, out, reading, annotate=True)
    rows = [line.split("\t") for line in out.read_text().splitlines()]
    assert [row[2:] for row in rows] == [["a", "", ""], ["a", "1.0", "0.0"]]
    paths = [tmp_path / "first.csv", tmp_path / "second.csv"]
    for path, mark in zip(paths, ",;", strict=True):
        path.write_text(f"a{mark}{TEXTS[0]}\n")
    fpdb.dedupe(paths, tmp_path / "out.csv", reading, annotate=True)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines == [f"a,{TEXTS[0]},a,,", f"a;{TEXTS[0]};a;1.0;0.0"]


def test_a_database_with_groups_names_the_keeper_in_each_delivery(tmp_path):
    words = [f"word{number}" for number in range(300)]
    texts = [" ".join(words)]
    for step in range(2):  # each is about .85 like the one before
        words[step * 100 : step * 100 + 80 : 10] = [f"step{step}x{place}" for place in range(8)]
        texts.append(" ".join(words))
    with fpdb.create(tmp_path / "db", groups=True) as db:
        assert [db.add(f"{n}", text).group for n, text in enumerate(texts[:2])] == ["0", "0"]
        for number in range(2):
            source, out = tmp_path / f"{number}.jsonl", tmp_path / f"{number}-out.jsonl"
            records = [{"id": f"new {number}", "text": f"{texts[2]} {number}"}]
            records.append({"id": f"other {number}", "text": " ".join(words[:40]) + f" {number}"})
            source.write_text("".join(json.dumps(record) + "\n" for record in records))
            fpdb.dedupe(source, out, database=db, annotate=True)
            rows = list(map(json.loads, out.read_text().splitlines()))
            assert [row["kept_key"] for row in rows] == ["0", "other 0"]
        assert db["other 0"].group == "other 0"
        assert not list(db.check())
