"""Tables of known pairs."""

import gzip

import pytest

from fpdb.errors import InputError
from fpdb.io.files import read_pairs


def read(path, content):
    path.write_bytes(content.encode())
    return list(read_pairs(str(path)))


def test_similarities_and_labels(tmp_path):
    content = "a\tb\t0.85\na\tc\t1\nb\tc\t0\nd\te\t1.0\nd\tf\t5e-1\n"
    assert read(tmp_path / "pairs.tsv", content) == [
        ("a", "b", 0.85),
        ("a", "c", True),
        ("b", "c", False),
        ("d", "e", 1.0),
        ("d", "f", 0.5),
    ]


def test_the_first_row_may_name_the_columns(tmp_path):
    assert read(tmp_path / "pairs.tsv", "id_a\tid_b\tjaccard\na\tb\t.5\n") == [("a", "b", 0.5)]


def test_csv_and_gzip(tmp_path):
    path = tmp_path / "pairs.csv.gz"
    path.write_bytes(gzip.compress(b'"a, b";c;1\n'))
    assert list(read_pairs(str(path))) == [("a, b", "c", True)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tb\n", ":1: found '', expected a similarity"),
        ("a\tb\t1\na\tb\t2\n", ":2: found '2'"),
        ("a\tb\t1\na\tb\ttrue\n", ":2: found 'true'"),
        ("a\tb\t1\na\tb\t1.5\n", ":2: found '1.5'"),
        ("a\tb\tx\na\tb\tnan\n", ":2: found 'nan'"),
        ("a\tb\t1\na\tb\t-0.5\n", ":2: found '-0.5'"),
    ],
)
def test_what_is_no_pair_is_an_error_with_its_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message) as error:
        read(tmp_path / "pairs.tsv", content)
    assert "0.85" in error.value.hint


def test_a_missing_file_and_a_long_line(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        list(read_pairs(str(tmp_path / "none.tsv")))
    (tmp_path / "long.tsv").write_text("a\tb\t1\n" + "x" * 100)
    with pytest.raises(InputError, match=":2: holds more than 50 bytes"):
        list(read_pairs(str(tmp_path / "long.tsv"), 50))
