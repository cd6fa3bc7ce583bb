"""Thousands of hostile keys and titles: nothing printed drives a terminal or a spreadsheet."""

import csv
import io
import json
import os
import random
import stat
from pathlib import Path

import pytest
from terminals import CRAFTED, assert_harmless
from tiers import TIER

import fpdb

COUNT = 10_000 if TIER == "full" else 500


def titles():
    chosen = random.Random(11)
    alphabet = "".join(map(chr, [*range(0x100), *range(0x2000, 0x2070), 0xFEFF, 0x1F600, 0x4E2D]))
    made = list(CRAFTED)
    while len(made) < COUNT:
        kind = chosen.random()
        text = "".join(chosen.choices(alphabet, k=chosen.randint(1, 12)))
        made.append(chosen.choice(CRAFTED) + text if kind < 0.5 else text)
    return made


TITLES = titles()


def key_of(number):
    return f"{TITLES[number]}{number}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A database of hostile keys and metadata, with documents that are near in fives."""
    where = tmp_path_factory.mktemp("output")
    chosen = random.Random(3)
    documents = []
    for number in range(COUNT):
        if number % 5 == 0:
            fingerprint = chosen.getrandbits(64)
        meta = {"title": TITLES[number], TITLES[-1 - number]: [TITLES[number]]}
        documents.append(
            fpdb.Document(key_of(number), meta=meta, fingerprint=fingerprint ^ (number % 5 and 1))
        )
    with fpdb.create(where / "x.fpdb", capacity=COUNT) as db:
        assert sum(added.status == "added" for added in db.add_many(documents)) == COUNT
    with (where / "asked.jsonl").open("w", encoding="utf-8") as file:
        for document in documents:
            line = {"key": document.key, "fingerprint": f"{document.fingerprint:016x}"}
            file.write(json.dumps(line) + "\n")
    with (where / "bad.jsonl").open("w", encoding="utf-8") as file:
        for title in TITLES[:90]:
            file.write(json.dumps({title: title, "key": [title]}) + "\n")
        for title in TITLES[:200]:
            file.write(
                json.dumps({"key": title, "text": "the same words for everybody, " * 3}) + "\n"
            )
    return where


COMMANDS = {
    "query": ["query", "asked.jsonl", "--fingerprint-field", "fingerprint"],
    "query --json": ["query", "asked.jsonl", "--fingerprint-field", "fingerprint", "--json"],
    "pairs": ["pairs", "-k", "3"],
    "pairs --json": ["pairs", "-k", "3", "--json"],
    "clusters": ["clusters", "-k", "3"],
    "clusters --json": ["clusters", "-k", "3", "--json"],
    "export json": ["export", "--json"],
    "export portable json": ["export"],
    "export tsv": ["export", "-o", "printed.tsv"],
    "export csv": ["export", "-o", "printed.csv"],
    "check": ["check"],
    "stats": ["stats"],
}


@pytest.mark.slow("each command prints every hostile character")
@pytest.mark.process
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_is_printed_drives_a_terminal(run, folder, monkeypatch, name):
    monkeypatch.chdir(folder)
    command, *arguments = COMMANDS[name]
    done = run(command, "x.fpdb", *arguments)
    assert done.code == 0, done.err
    out = Path(arguments[-1]).read_bytes().decode("utf-8-sig") if "-o" in arguments else done.out
    assert_harmless(out, "\n" if "json" in name or "csv" in name else "\n\t")
    assert_harmless(done.err)
    rows = out.split("\n")
    assert rows.pop() == ""
    if name not in {"check", "stats"}:
        assert len(rows) >= COUNT // 5
    if "tsv" in name or name in {"pairs", "query"}:
        assert len({row.count("\t") for row in rows}) == 1


def test_what_json_prints_comes_back_whole(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = [json.loads(line) for line in run("export", "x.fpdb", "--json").out.splitlines()]
    assert {each["key"] for each in found} == {key_of(number) for number in range(COUNT)}
    assert {each["meta"]["title"] for each in found} == set(TITLES)


@pytest.mark.full
def test_no_cell_of_csv_is_a_formula_and_tsv_is_left_alone(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for suffix in ("csv", "tsv"):
        run("export", "x.fpdb", "-o", f"all.{suffix}")
    guarded = list(csv.reader(io.StringIO(Path("all.csv").read_bytes().decode("utf-8-sig"))))
    assert len(guarded) == COUNT + 1
    assert {len(row) for row in guarded} == {4}
    starts = tuple("=+-@\t\r\n\0＝＋－＠")
    assert not [cell for row in guarded for cell in row if cell.startswith(starts)]
    # Programs read TSV, so what begins like a formula stays as it is there.
    plain = [row.split("\t")[0] for row in Path("all.tsv").read_bytes().decode().splitlines()]
    assert any(cell.startswith("=cmd|") for cell in plain)
    assert not any(cell.startswith("'=cmd|") for cell in plain)


@pytest.mark.slow("it runs each command on hostile keys")
def test_single_keys_reports_and_errors_are_harmless(run, folder, monkeypatch):
    monkeypatch.chdir(folder)
    for number in [*range(0, len(CRAFTED), 2), *range(len(CRAFTED), COUNT, COUNT // 8)]:
        key = key_of(number)
        if "\0" in key or key.startswith("-"):
            continue
        for arguments in (["get", "x.fpdb", key], ["get", "x.fpdb", key, "--json"]):
            done = run(*arguments)
            assert done.code == 0, done.err
            assert_harmless(done.out + done.err)
        missing = run("get", "x.fpdb", f"{key}?")
        assert_harmless(missing.out + missing.err)
    done = run("ingest", "new.fpdb", "bad.jsonl", "--skip-duplicates")
    assert done.code == 4
    assert_harmless(done.out + done.err)
    assert "bad 90" in done.err
    again = run("ingest", "newer.fpdb", "bad.jsonl", "--skip-duplicates", "--json")
    assert_harmless(again.out + again.err)
    strict = run("ingest", "newest.fpdb", "bad.jsonl", "--bad", "fail")
    assert strict.code == 3
    assert_harmless(strict.err)


@pytest.mark.slow("it runs each command that makes something")
@pytest.mark.process
def test_databases_are_private_and_only_they_are(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mask = os.umask(0)
    try:
        with open("pages.jsonl", "w", encoding="utf-8") as file:
            file.writelines(
                json.dumps({"key": f"{n}", "text": f"{n} words " * 9}) + "\n" for n in range(9)
            )
        with open("ready.tsv", "w", encoding="utf-8") as file:
            numbers = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(2500)] * 2
            file.writelines(f"{n}\t{number:x}\n" for n, number in enumerate(numbers))
        given = {path.name for path in tmp_path.iterdir()}
        outcomes = [
            run("create", "a.fpdb"),
            run("ingest", "a.fpdb", "pages.jsonl"),
            run("ingest", "b.fpdb", "pages.jsonl", "--jobs", 2),
            run("load", "c.fpdb", "ready.tsv", "--key-field", 1, "--fingerprint-field", 2),
            run("compact", "a.fpdb", "-o", "d.fpdb"),
            run("backup", "a.fpdb", "-o", "e.fpdb"),
            run("export", "a.fpdb", "-o", "out.jsonl"),
            run("export", "a.fpdb", "-o", "out.csv"),
            run("export", "a.fpdb", "-o", "a.fpdb.jsonl.gz"),
            run("load", "f.fpdb", "d.fpdb", "e.fpdb"),
            run("repair", "a.fpdb", "-o", "g.fpdb"),
            run("compact", "a.fpdb", "--replace"),
            run("pairs", "c.fpdb", "-o", "pairs.tsv"),
            run("pairs", "c.fpdb", "-o", "pairs.parquet"),
            run("report", "pages.jsonl", "-o", "report.html"),
            run("check", "c.fpdb"),
        ]
    finally:
        os.umask(mask)
    assert [done.code for done in outcomes] == [0] * len(outcomes), outcomes
    found = 0
    for path in tmp_path.rglob("*"):
        if path.name in given:
            continue
        mode = stat.S_IMODE(path.lstat().st_mode)
        private = 0o700 if path.is_dir() else 0o600
        assert mode == (0o666 if path.parent == tmp_path and path.is_file() else private), path
        found += 1
    assert found > 30
