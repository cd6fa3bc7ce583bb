"""Paragraphs that many texts have are cut: those of a definition, before records are compared."""

import csv
import io
import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tiers import examples, of_gate

import fpdb
from fpdb.io import arrow, streams
from fpdb.io.edits import edited_object
from fpdb.tables import sorter

pd, pl = of_gate("pandas", "polars")

NOTICE = " ".join(f"notice{number}" for number in range(115))
LONG = [f"paragraph {letter} " + " ".join(f"{letter}{n}" for n in range(40)) for letter in "abcd"]
LINES = st.sampled_from([*LONG, LONG[0].upper(), f" {LONG[1]}\r", "short", "", "汉" * 40, NOTICE])
TEXTS = st.lists(LINES, max_size=5).map("\n".join)
RECORDS = st.lists(st.tuples(TEXTS, st.sampled_from(["x", "y", None])), min_size=1, max_size=14)


def folded(text):
    return [line.strip().casefold() for line in text.split("\n")]


def written(record):
    """Return the lines of a text by which it is another one, or the same."""
    return tuple(sorted(filter(None, folded(record["text"]))))


def cut_by_definition(records, least, within=None):
    """Return the text that is left of each record, and who keeps what is cut from it."""
    having = {}  # the numbers of the records that have a paragraph, by its value and itself
    units = []
    for number, record in enumerate(records):
        lines = folded(record["text"])
        several = sum(map(bool, lines)) > 1
        long = [len(line.split(" ")) >= 10 or line.count("汉") >= 20 for line in lines]
        units.append({at: (record.get(within), lines[at]) for at in range(len(lines)) if long[at]})
        units[-1] = units[-1] if several else {}
        for unit in set(units[-1].values()):
            having.setdefault(unit, []).append(number)
    results = []
    for number, record in enumerate(records):
        lines, lost = record["text"].split("\n"), {}
        for at, unit in units[number].items():
            texts = [written(records[other]) for other in having[unit]]
            if len(set(texts)) >= least and texts[0] != written(record):
                lost[at] = having[unit][0]
        gone = {at for at in range(len(lines)) if at in lost or is_after(at, lines, lost)}
        left = "\n".join(line for at, line in enumerate(lines) if at not in gone)
        left = left.rstrip() if len(lines) - 1 in gone else left
        results.append((left, [(lost[at], len(lines[at])) for at in lost]))
    return results


def is_after(at, lines, lost):
    """Return whether a line is blank, as all lines are between it and one that is lost."""
    before = [place for place in range(at) if lines[place].strip()]
    return bool(before and before[-1] in lost and not lines[at].strip())


def row_by_row(rows):
    """Return a method that yields the same rows in the smallest blocks."""

    def yield_rows(self):
        for block in rows(self):
            for at in range(len(block[0])):
                yield [column[at : at + 1] for column in block]

    return yield_rows


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(
    rows=RECORDS,
    least=st.integers(2, 4),
    within=st.sampled_from([None, "site"]),
    chunk=st.sampled_from([64, 1000, 1 << 18]),
    memory=st.sampled_from([None, 0]),
    split=st.integers(0, 14),
    jobs=st.sampled_from([1, 2]),
)
@settings(max_examples=examples(150), deadline=None)
def test_cuts_are_those_of_the_definition(
    tmp_path_factory, rows, least, within, chunk, memory, split, jobs
):
    folder = tmp_path_factory.mktemp("cuts")
    records = [{"id": at, "text": text, "site": site} for at, (text, site) in enumerate(rows)]
    removed, sources = folder / "removed.jsonl", [folder / "a.jsonl", folder / "b.jsonl"]
    as_jsonl(records[:split], sources[0])
    as_jsonl([*records[split:], {"text": "", "site": "x"}, {"site": "bad"}], sources[1])
    places = [f"{sources[0]}:{at + 1}" for at in range(len(records[:split]))]
    places += [f"{sources[1]}:{at + 1}" for at in range(len(records[split:]))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "_CHUNK", chunk)
        if memory == 0:
            patch.setattr(sorter, "_LEAST", 3)
            patch.setattr(sorter.Sorter, "rows", row_by_row(sorter.Sorter.rows))
        counts = fpdb.dedupe(
            sources, folder / "out.jsonl", annotate=True, cut=least, within=within,
            removed=removed, memory=memory, jobs=jobs, bad="keep",
        )  # fmt: skip
    expected = cut_by_definition(records, least, within)
    copied = lines_of(folder / "out.jsonl")[: len(records)]
    assert [record["text"] for record in copied] == [text for text, _ in expected]
    told = [
        {
            "key": at,
            "source": places[at],
            "kept_key": keeper,
            "kept_source": places[keeper],
            "characters": size,
        }
        for at, (_, lost) in enumerate(expected)
        for keeper, size in lost
    ]
    assert [line for line in lines_of(removed) if "characters" in line] == told
    assert counts.cut_records == sum(bool(lost) for _, lost in expected)
    assert counts.cut_characters == sum(line["characters"] for line in told)


def pages(corpus, count=60):
    """Records with texts of several paragraphs, most of which have the notice."""
    records = corpus(count, edited=0.5)
    for number, record in enumerate(records):
        words = record["text"].split()
        parts = [" ".join(words[:40]), " ".join(words[40:])]
        if number % 3:
            parts.insert(number % 5 % 3, NOTICE)
        record["text"] = "\n".join(parts)
    return records


def as_csv(records, path, **options):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(records[0]), **options)
        writer.writeheader()
        writer.writerows(records)


def as_jsonl(records, path):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


WRITERS = {
    "jsonl": as_jsonl,
    "csv": as_csv,
    "parquet": lambda records, path: parquet.write_table(pa.Table.from_pylist(records), path),
}
READERS = {
    "jsonl": lines_of,
    "csv": lambda path: list(csv.DictReader(io.StringIO(path.read_text(), newline=""))),
    "parquet": lambda path: parquet.read_table(path).to_pylist(),
}


@pytest.mark.parametrize(
    "form", ["jsonl", "csv", pytest.param("parquet", marks=pytest.mark.process)]
)
@pytest.mark.parametrize(
    "options", [{}, {"keep": "longest"}, {"lose": 0.02}, {"similarity": 0.5}, {"k": 3}]
)
def test_records_are_compared_without_what_is_cut(tmp_path, corpus, form, options):
    records = pages(corpus)
    short = [
        record | {"text": text}
        for record, (text, _) in zip(records, cut_by_definition(records, 20), strict=True)
    ]
    assert sum(before != after for before, after in zip(records, short, strict=True)) == 39
    whole, part, cut = (tmp_path / f"{name}.{form}" for name in ("whole", "part", "cut"))
    out, expected = tmp_path / f"out.{form}", tmp_path / f"expected.{form}"
    for some, path in ((records[:25], whole), (records[25:], part), (short, cut)):
        WRITERS[form](some, path)
    counts = fpdb.dedupe([whole, part], out, cut=20, **options)
    plain = fpdb.dedupe(cut, expected, **options)
    assert READERS[form](out) == READERS[form](expected)
    assert (counts.kept, counts.removed, counts.copies) == (plain.kept, plain.removed, plain.copies)
    assert counts.removed > (0 if "lose" in options or "k" in options else 10)


KINDS = {
    "pandas": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "objects": lambda table: table.to_pandas(),
    "categories": lambda table: table.to_pandas().astype({"text": "category"}),
    "polars": pl.from_arrow,
    "polars categories": lambda table: _cast(table, pl.Categorical),
    "polars enum": lambda table: _cast(table, pl.Enum(table["text"].unique().to_pylist())),
    "pyarrow": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "dictionary": lambda table: table.set_column(
        1, "text", table["text"].cast(pa.string()).dictionary_encode()
    ),
}


def _cast(table, kind):
    return pl.from_arrow(table).with_columns(pl.col("text").cast(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"annotate": True}, {"lose": 0.02}])
def test_a_table_keeps_its_kind_and_types(tmp_path, corpus, kind, options):
    records = pages(corpus)
    as_jsonl(records, tmp_path / "in.jsonl")
    fpdb.dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl", cut=20, **options)
    given = KINDS[kind](pa.concat_tables(map(pa.Table.from_pylist, (records[:25], records[25:]))))
    found = fpdb.dedupe(given, cut=20, **options)
    assert type(found) is type(given)
    for name in given.schema.names if hasattr(given, "schema") and "polars" not in kind else ():
        assert found.schema.field(name).type == given.schema.field(name).type
    if kind in ("pandas", "objects"):
        assert found.dtypes["text"] == given.dtypes["text"]
    if kind == "categories":
        assert set(found["text"].cat.categories) >= set(found["text"])
    if hasattr(found, "iloc"):
        found = pa.Table.from_pandas(found, preserve_index=False)
    if "polars" in kind:
        assert type(found.schema["text"]) is type(given.schema["text"])
        found = found.with_columns(pl.col("text").cast(pl.String))
    expected = [record["text"] for record in lines_of(tmp_path / "out.jsonl")]
    assert pa.table(found)["text"].cast(pa.string()).to_pylist() == expected


class CountedRow(int):
    """A row of a table that counts how often it is compared with another one."""

    compared = 0

    def __lt__(self, other):
        CountedRow.compared += 1
        return int(self) < int(other)

    def __ge__(self, other):
        return not self < other

    def __gt__(self, other):
        return CountedRow(other) < self

    __hash__ = int.__hash__


def test_the_texts_of_a_table_in_many_chunks_are_each_found_at_once():
    chunk = pa.table({"text": ["same", "same", "same"]})
    table = pa.concat_tables([chunk] * 300)
    edits = {CountedRow(row): (lambda _, row=row: f"text {row}") for row in range(899, -1, -2)}
    found = arrow.edited(table, ["text"], edits)
    texts = [f"text {row}" if row % 2 else "same" for row in range(900)]
    assert found["text"].to_pylist() == texts
    assert CountedRow.compared < 900 * 20


def shops(count=150):
    """Pages with ten own words and one notice."""
    words = [" ".join(f"own{number}x{place}" for place in range(10)) for number in range(count)]
    return [{"id": number, "text": f"{own}\n{NOTICE}"} for number, own in enumerate(words)]


@pytest.mark.parametrize(("cut", "kept"), [(None, 2), (20, 150), (150, 150), (151, 2)])
def test_pages_with_one_notice_stay_and_the_notice_once(tmp_path, jsonl, cut, kept):
    out = tmp_path / "out.jsonl"
    counts = fpdb.dedupe(jsonl("in.jsonl", shops()), out, cut=cut)
    assert abs(counts.kept - kept) < 3
    if kept == 150:
        assert counts.kept == 150
        assert out.read_text().count(NOTICE) == 1


def test_copies_of_a_text_are_no_further_texts(tmp_path, jsonl):
    records = [{"text": "\n".join(LONG)}] * 30
    out = tmp_path / "out.jsonl"
    counts = fpdb.dedupe(jsonl("in.jsonl", records), out, cut=2)
    assert (counts.kept, counts.removed, counts.cut_records) == (1, 29, 0)
    assert lines_of(out) == records[:1]


@pytest.mark.parametrize("line", [b'{"text": "one", "n": 1}', b'{"text": "one", "n": NaN}'])
def test_a_text_is_edited_once_even_if_that_fails(line):
    texts = []

    def edit(text):
        texts.append(text)
        raise ValueError(text)

    with pytest.raises(ValueError, match="one"):
        edited_object(line, ["text"], edit)
    assert texts == ["one"]


def test_a_record_that_loses_nothing_is_the_same_bytes_and_others_keep_their_values(tmp_path):
    lines = [
        json.dumps({"text": f"{LONG[0]}\n{NOTICE}"}).encode() + b" \r\n",
        b'\t{"n" : 1.50 , "text": "' + LONG[1].encode() + b'"}\n',
        b'{"n": 1.50, "text": "' + f"{LONG[2]}\\n{NOTICE}".encode() + b'", "x": {"a" : [ ]}} \r\n',
        b'{"text": "' + f"{LONG[3]}\\n{NOTICE}".encode() + b'", "n": NaN}\n',
        b'{"content": "' + f"{LONG[1]} more\\n{NOTICE}".encode() + b'", "text": null}',
    ]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b"".join(lines))
    fpdb.dedupe(source, out, cut=2, similarity=1.0)
    assert out.read_bytes().split(b"\n") == [
        lines[0].removesuffix(b"\n"),
        lines[1].removesuffix(b"\n"),
        b'{"n":1.50,"text":"' + LONG[2].encode() + b'","x":{"a" : [ ]}} \r',
        b'{"text": "' + LONG[3].encode() + b'", "n": NaN}',
        b'{"content":"' + f"{LONG[1]} more".encode() + b'","text":null}',
    ]


@pytest.mark.parametrize("mark", [",", ";"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_row_of_csv_is_quoted_as_it_has_to_be(tmp_path, mark, end):
    texts = [f'"a{mark}" {LONG[0]}\r\n{NOTICE}', f'"b{mark}" {LONG[1]}\n{NOTICE}']
    records = [{"id": f"k{mark}\n{at}", "text": text} for at, text in enumerate(texts)]
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    as_csv(records, source, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_ALL)
    fpdb.dedupe(source, out, cut=2)
    before, after = (path.read_bytes().split(b"k" + mark.encode()) for path in (source, out))
    assert before[:2] == after[:2]
    row = io.StringIO()
    left = [f"k{mark}\n1", texts[1].split("\n")[0]]
    csv.writer(row, delimiter=mark, lineterminator="\n").writerow(left)
    assert after[2].decode() == row.getvalue()[:-1].split(f"k{mark}")[1] + end


def test_columns_by_numbers_and_encodings_stay(tmp_path):
    texts = [f"ä {text}\n{NOTICE}" for text in LONG]
    row = "".join(f'{at};"{text}"\n' for at, text in enumerate(texts))
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(row.encode("latin-1"))
    reading = fpdb.Reading(key_field="1", text_field="2", encoding="windows-1252", delimiter=";")
    fpdb.dedupe(source, out, reading, cut=4)
    rows = list(csv.reader(io.StringIO(out.read_bytes().decode("latin-1")), delimiter=";"))
    assert rows == [["0", texts[0]], *([str(at), f"ä {LONG[at]}"] for at in (1, 2, 3))]


def test_a_database_gets_the_shortened_texts_and_no_counts(tmp_path, jsonl):
    first, second = shops(60)[:30], shops(60)[30:]
    path = tmp_path / "db"
    for name, records, kept in (("first", first, 30), ("second", second, 29)):
        source = jsonl(f"{name}.jsonl", records)
        counts = fpdb.dedupe(source, tmp_path / f"{name}-out.jsonl", cut=20, database=path)
        # The second notice that stays is in a page that resembles the first one that has it.
        assert (counts.kept, counts.cut_records) == (kept, 29)
    with fpdb.open(path) as database:
        matches = database.query(second[7]["text"].split("\n")[0])
        assert [match.key for match in matches] == ["37"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cut": 1}, "found cut 1, expected a whole number, at least 2"),
        ({"reading": fpdb.Reading(html="main")}, "found HTML, expected plain texts in one field"),
        ({"text_field": ["title", "text"]}, "found texts of several fields, expected plain texts"),
    ],
)
def test_what_has_no_paragraphs_of_its_own_is_refused(tmp_path, jsonl, options, message):
    source = jsonl("in.jsonl", [{"title": "a", "text": "b"}])
    with pytest.raises(fpdb.InputError, match=message) as caught:
        fpdb.dedupe(source, tmp_path / "out.jsonl", **{"cut": 2, **options})
    assert caught.value.parameter == "cut" * ("reading" in options or "text_field" in options)
    assert not (tmp_path / "out.jsonl").exists()


def test_records_that_are_read_once_are_refused():
    with pytest.raises(fpdb.InputError, match="found cut 2, and records, which are yielded"):
        list(fpdb.dedupe([{"text": "a"}], cut=2))


def test_a_file_that_grows_between_the_readings_is_an_error(tmp_path, jsonl):
    source = jsonl("in.jsonl", shops(3))

    def grow(counts):
        if counts.stage == "counting":
            with source.open("a") as file:
                file.write(json.dumps({"text": "more"}) + "\n")

    with pytest.raises(fpdb.InputError, match="isn't what it was when it was read first"):
        fpdb.dedupe(source, tmp_path / "out.jsonl", cut=2, on_progress=grow, jobs=1)
    assert not (tmp_path / "out.jsonl").exists()
