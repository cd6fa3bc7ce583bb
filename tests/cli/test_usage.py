"""Wrong usage: exit code 2, nothing on standard output, and nothing that is made or changed."""

import os

import pytest

import fpdb

# Arguments, and a part of the message. The database a.fpdb and the file f.jsonl are there.
LINES = [
    ("get a.fpdb", "give keys, or --prefix, --since, --until or --limit"),
    ("delete a.fpdb", "give keys or --keys-from"),
    ("delete a.fpdb key --prefix k", "give keys or --keys-from"),
    ("delete a.fpdb --prefix= --older-than 1d", "every key begins with an empty --prefix"),
    ("delete a.fpdb --older-than 0d", "expected a length of time"),
    ("create b.fpdb --similarity 0", "expected a number above 0"),
    ("pairs a.fpdb --similarity 1.5", "expected a number above 0"),
    ("create b.fpdb --capacity none", "expected a whole number from 1"),
    ("create b.fpdb -k -1", "-k"),
    ("create b.fpdb --key-type float", "'float' is not one of"),
    ("ingest b.fpdb f.jsonl --similarity 0.8", "needs --skip-duplicates"),
    ("ingest b.fpdb f.jsonl --max-bytes 4X", "expected a number of bytes"),
    ("follow b.fpdb --similarity 0.8", "needs --skip-duplicates"),
    ("query a.fpdb --fingerprint ff --similarity 0.9", "--similarity compares texts"),
    ("query a.fpdb -t x --limit 0", "--limit"),
    ("clusters a.fpdb --delete-duplicates --limit 2", "has no --limit"),
    ("clusters a.fpdb --delete-duplicates --chains", "follows no --chains"),
    ("pairs a.fpdb -o x.parquet.gz", "expected x.parquet: Parquet is packed inside"),
    ("dedupe f.jsonl", "give --output or --output-dir"),
    ("dedupe f.jsonl -o out/", "found out/, which names a folder, expected a file"),
    ("export a.fpdb -o out/", "found out/, which names a folder, expected a file"),
    ("dedupe f.jsonl -o - --db b.fpdb", "--db needs a file"),
    ("dedupe f.jsonl -o a --output-dir b", "give --output or --output-dir"),
    ("dedupe f.jsonl -o a.jsonl --removed r.csv", "--removed gets a file of JSON lines"),
    ("compact a.fpdb", "either --output or --replace"),
    ("clusters a.fpdb -n 1 --limit 2", "Invalid value for '--limit' / '-n': found 2 values"),
    ("plan --documents 2**99", "expected a whole number from 1"),
    ("compare", "Usage: "),
    ("compare one two --text three", "Usage: "),
    ("eval f.jsonl -k 3-1", "expected distances"),
    ("serve b.fpdb --host 127..0.1", "expected a name or an address"),
    ("serve b.fpdb --tls-cert c", "--tls-cert needs --tls-key"),
    ("serve b.fpdb --texts f.jsonl", "for the pages of --explorer"),
    ("report f.jsonl -o page.txt", "a name that ends in .html"),
    (
        "dedupe f.jsonl -o o.jsonl --removed r.arrow",
        "--removed gets a file of JSON lines, found r.arrow",
    ),
    ("query a.fpdb -o o.arrow", "found the suffix '.arrow' of o.arrow"),
    ("fingerprnt", "No such command 'fingerprnt'. Did you mean 'fingerprint'"),
    ("stats a.fpdb --jso", "No such option: --jso (Possible options: --json)"),
    *(
        (line, "expected a path")
        for line in (
            "create -",
            "ingest - f.jsonl",
            "load - f.jsonl",
            "load - a.fpdb",
            "compact a.fpdb -o -",
            "backup a.fpdb -o -",
            "repair a.fpdb -o -",
        )
    ),
]


@pytest.mark.parametrize(("line", "said"), LINES)
def test_wrong_usage_says_what_is_expected_and_changes_nothing(
    run, tmp_path, monkeypatch, line, said
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.jsonl").write_text('{"key": "a", "text": "some words"}\n')
    with fpdb.create("a.fpdb") as database:
        database.add("key", "some words")
    before = sorted(os.listdir())
    done = run(*line.split())
    assert (done.code, done.out) == (2, "")
    assert said in " ".join(done.err.split())
    assert sorted(os.listdir()) == before
    with fpdb.open("a.fpdb") as database:
        assert list(database) == ["key"]


@pytest.mark.parametrize("line", ["-k 40", "-r wep", "--similarity 0.1"], ids=lambda line: line[:4])
def test_what_can_t_be_created_leaves_nothing(run, tmp_path, line):
    done = run("create", tmp_path / "db", *line.split())
    assert (done.code, done.out, "\nhint: " in done.err) == (3, "", True)
    assert not (tmp_path / "db").exists()
