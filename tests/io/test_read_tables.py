"""TSV and CSV: columns by name and by number, quotes, and rows that won't do."""

import csv
import io
import tracemalloc

import pytest

import fpdb
from fpdb.errors import InputError
from fpdb.io.files import read_records
from fpdb.io.records import BadRecord, Reading

SEED = "http://a/1\tTitle\tContent\t11706562889234243588\nhttp://a/2\t標題\t內容\t0xff\n"


def read(tmp_path, content, suffix="csv", **options):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_records(str(path), Reading(**options)))


def bad(found):
    return [
        (record.source.rpartition("/")[2], record.reason)
        for record in found
        if isinstance(record, BadRecord)
    ]


def keys(found):
    return [record.key for record in found if not isinstance(record, BadRecord)]


def test_the_seed_reads_texts_and_fingerprints(tmp_path):
    fields = {"key_field": "1", "text_field": ("3", "2")}
    assert [record.text for record in read(tmp_path, SEED, "tsv", **fields)] == [
        "Content\nTitle",
        "內容\n標題",
    ]
    fields = {"key_field": "1", "fingerprint_field": "4", "base": "decimal"}
    found = read(tmp_path, SEED, "tsv", **fields)
    assert keys(found) == ["http://a/1", "http://a/2"]
    assert [record.fingerprint for record in found] == [11706562889234243588, 255]


@pytest.mark.parametrize(("suffix", "tab"), [("tsv", "\t"), ("csv", ",")])
def test_named_columns(tmp_path, suffix, tab):
    content = "url, title ,content,n\r\nu,T,C,1\r\n\r\nv,T,,2\r\n".replace(",", tab)
    fields = {"text_field": ("title", "content"), "meta_field": ("*",)}
    found = read(tmp_path, content, suffix, **fields)
    assert [(record.key, record.text, record.meta) for record in found] == [
        ("u", "T\nC", {"n": "1"}),
        ("v", "T\n", {"n": "2"}),
    ]
    assert [record.source[-2:] for record in found] == [":2", ":4"]


def test_numbered_columns(tmp_path):
    content = "url,text\nu,t\n"
    fields = {"key_field": "1", "text_field": ("2",), "meta_field": ("*",)}
    assert keys(read(tmp_path, content, **fields)) == ["url", "u"]
    found = read(tmp_path, "u,t,x,y\n", **fields)
    assert found[0].meta == {"3": "x", "4": "y"}


@pytest.mark.parametrize("fields", [{"text_field": ("2",)}, {"key_field": "1"}])
def test_columns_that_cannot_be_are_an_error_at_once(tmp_path, fields):
    (tmp_path / "a.csv").write_text("u,t\n")
    with pytest.raises(InputError) as caught:
        read_records(str(tmp_path / "a.csv"), Reading(**fields))
    assert "number" in caught.value.hint
    assert "number" in bad(read_records(str(tmp_path), Reading(**fields)))[0][1]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("http://a,some text", "found no key: expected the field 'key' or 'id' or 'url'"),
        ("url,title", "found no text: expected the field 'text' or"),
        ("url,text", "lacks a column: expected the field 'host', there are: 'text', 'url'"),
        ("url,text,host,host", "names two columns 'host'"),
        ("url," * 5000, "has 5001 columns, expected at most 4096"),
        ('"url"x,text', "is no CSV"),
        ("x" * 2**15, "holds more than 30000 bytes"),
    ],
)
def test_a_header_that_will_not_do_ends_the_table_with_one_reason(tmp_path, header, reason):
    fields = {"meta_field": ("host",)}
    found = read(tmp_path, f"{header}\nu,t\nv,t\n", **fields, max_bytes=30_000)
    [(source, said)] = bad(found)
    assert source == "a.csv"
    assert said.startswith("the header line ")
    assert reason in said
    assert len(found) == 1


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_wrong_column_counts(tmp_path, suffix):
    tab = {"tsv": "\t", "csv": ","}[suffix]
    found = read(tmp_path, "url,text\na,t\nb\nc,t,t\nd,t\n".replace(",", tab), suffix)
    assert keys(found) == ["a", "d"]
    assert bad(found) == [
        (f"a.{suffix}:3", "found 1 columns, expected 2"),
        (f"a.{suffix}:4", "found 3 columns, expected 2"),
    ]
    fields = {"key_field": "1", "text_field": ("2",)}
    found = read(tmp_path, f"a\na{tab}t\n{tab * 5000}\n".encode(), suffix, **fields)
    assert [reason[:42] for _, reason in bad(found)] == [
        "found no text: expected the field '2', the",
        "found 5001 columns, expected at most 4096",
    ]


def test_tsv_quotes_nothing(tmp_path):
    found = read(tmp_path, 'url\ttext\n"a"\t"t", t\nb\tt"\n', "tsv")
    assert [(record.key, record.text) for record in found] == [('"a"', '"t", t'), ("b", 't"')]


def test_a_text_that_tsv_cuts_at_its_line_end_is_refused(tmp_path):
    """As pandas and the module csv write it: the first line was stored under the key."""
    file = io.StringIO()
    rows = [("url", "text"), ("a", 'one "line"\nand another'), ("b", "t"), ("c", '"x"\n"y"')]
    csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
    found = read(tmp_path, file.getvalue(), "tsv")
    assert keys(found) == ["b"]
    assert [(source, reason[:40]) for source, reason in bad(found)] == [
        ("a.tsv:2", "opens a quote that it doesn't close: a l"),
        ("a.tsv:3", "found 1 columns, expected 2"),
        ("a.tsv:5", "opens a quote that it doesn't close: a l"),
        ("a.tsv:6", "opens a quote that it doesn't close: a l"),
    ]


def test_csv_quotes_line_ends_and_numbers_the_first(tmp_path):
    found = read(tmp_path, b'\xef\xbb\xbf"url",text\r\na,"x,""y""\r\nz\n\n1"\r\nb,t\nc,"\x81"\n')
    assert [record.text for record in found[:2]] == ['x,"y"\r\nz\n\n1', "t"]
    assert [record.source[-2:] for record in found] == [":2", ":6", ":7"]
    assert isinstance(found[2], BadRecord)


def test_a_broken_quote_costs_the_record_that_it_makes(tmp_path):
    # The quote of b is closed by that of d.
    content = 'url,text\na,t\nb,"t\nc,t\nd,"text"\ne,"t"x\nf,t\n'
    found = read(tmp_path, content)
    assert keys(found) == ["a", "f"]
    assert [source for source, _ in bad(found)] == ["a.csv:3", "a.csv:6"]
    first, second = (reason for _, reason in bad(found))
    assert first.startswith("is no CSV: ")
    assert first.endswith("; so 2 more lines, to line 5, weren't read")
    assert second.startswith("is no CSV: ")
    assert ";" not in second


def test_a_quote_that_never_closes_takes_little_memory(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('key,text\na,"x\n' + "some words, and more\n" * 150_000)
    tracemalloc.start()
    [bad] = read_records(str(path))
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "more than 2097152 bytes" in bad.reason
    assert used < 24 << 20


def test_a_quote_that_never_closes(tmp_path):
    # Its lines may be the text of a file that was cut: they are no records.
    found = read(tmp_path, 'url,text\na,t\nb,"x\nevil,t\n')
    assert keys(found) == ["a"]
    assert bad(found) == [
        ("a.csv:3", "is no CSV: unexpected end of data; so 1 more line, to line 4, weren't read")
    ]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("x\n" * 600 + "evil,t\n", id="many lines"),
        pytest.param("x" * 2000 + "\nevil,t\n", id="a long line"),
        pytest.param("x\n" + 'y""' * 700 + "\nevil,t\n", id="quotes in a long line"),
        pytest.param("x\n" * 600 + 'y""\n""\nevil,t\n', id="quotes in many lines"),
    ],
)
def test_the_lines_of_a_record_that_is_too_long_are_no_records(tmp_path, content):
    found = read(tmp_path, f'url,text\na,t\nb,"{content}"\nc,t\n', max_bytes=1000)
    assert keys(found) == ["a", "c"]
    [(place, reason)] = bad(found)
    assert (place, "holds more than 1000 bytes in one record; so " in reason) == ("a.csv:3", True)
    assert f" more lines, to line {content.count(chr(10)) + 3:,}, weren't read" in reason


def test_fields_above_the_limit_of_the_csv_module(tmp_path):
    assert len(read(tmp_path, f"url,text\na,{'x' * 1_000_000}\n")[0].text) == 1_000_000


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_separator_is_found_by_the_header(tmp_path, mark):
    rows = [["id", "a, b; c", "Body"], ["1", 'x, "y"; z|w\tv', "two\nlines"], ["2", "", "t"]]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=mark).writerows(rows)
    for content in (file.getvalue(), f"\r\n{file.getvalue()}"):
        found = read(tmp_path, content, text_field="Body", meta_field="*")
        assert [(record.key, record.text) for record in found] == [("1", "two\nlines"), ("2", "t")]
        assert found[0].meta == {"a, b; c": 'x, "y"; z|w\tv'}
    numbers = {"key_field": "1", "text_field": "3"}
    assert keys(read(tmp_path, file.getvalue(), **numbers)) == ["id", "1", "2"]
    [(_, reason)] = bad(read(tmp_path, file.getvalue(), text_field="none"))
    assert "'Body', 'a, b; c', 'id'" in reason


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_given_delimiter_wins(tmp_path, suffix):
    [record] = read(tmp_path, "id:text\n1:a,b\n", suffix, delimiter=":")
    assert (record.key, record.text) == ("1", "a,b")
    with pytest.raises(InputError, match="expected one character"):
        Reading(delimiter="::")


def test_dedupe_gives_back_the_dialect(tmp_path):
    content = (
        b"\xef\xbb\xbfid;text\r\n1;red kites, again\r\n2;red kites, again\r\n3;other words\r\n"
    )
    (tmp_path / "a.csv").write_bytes(content)
    fpdb.dedupe(tmp_path / "a.csv", tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_bytes() == content.replace(b"2;red kites, again\r\n", b"")
