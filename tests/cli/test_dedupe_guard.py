"""fpdb dedupe names the sources that lose most, ends before one does, and annotates."""

import json

import pytest

TEXTS = [" ".join(f"w{site}x{number}" for number in range(40)) for site in range(15)]


@pytest.fixture
def source(tmp_path):
    """Copies of 15 texts, 30 to 44 of each."""
    path = tmp_path / "in.jsonl"
    records = [
        {"site": f"s{site:02}", "text": text}
        for site, text in enumerate(TEXTS)
        for _ in range(30 + site)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_the_summary_names_a_source(run, tmp_path, source):
    out = tmp_path / "out.jsonl"
    done = run("dedupe", source, "-o", out)
    assert done.err.splitlines()[1:] == [f"{source}: 540 of 555 records go (97 %)"]
    counts = json.loads(run("dedupe", source, "-o", out, "--json").out)
    assert counts["losses"] == [{"source": str(source), "records": 555, "removed": 540}]
    assert run("dedupe", source, "-o", out, "--quiet").err == ""


@pytest.mark.parametrize("output", ["out.jsonl", "-"])
def test_too_much_ends_with_1_and_writes_nothing(run, tmp_path, source, output):
    out = output if output == "-" else tmp_path / output
    report = tmp_path / "report.html"
    done = run("dedupe", source, "-o", out, "--most", "0.5", "--report", report)
    assert (done.code, done.out) == (1, "")
    error, hint = done.err.splitlines()
    said = "error: expected that at most 0.5 of a source goes: "
    assert error == f"{said}{source}: 540 of 555 records go (97 %)"
    assert hint.endswith(" (--most)")
    assert list(tmp_path.iterdir()) == [source]
    assert run("dedupe", source, "-o", out, "--most", "1").code == 0


def test_many_sources_take_a_few_lines(run, tmp_path, source):
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--source-field", "site")
    _, *lines = done.err.splitlines()
    assert lines[0] == "s14: 43 of 44 records go (97 %)"
    assert [line[:4] for line in lines[:10]] == [f"s{site:02}:" for site in range(14, 4, -1)]
    assert lines[10:] == ["5 more sources"]


def test_an_annotated_copy_has_all_records(run, tmp_path, source):
    done = run("dedupe", source, "-o", "-", "--annotate")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [row["site"] for row in rows] == [
        json.loads(line)["site"] for line in source.read_text().splitlines()
    ]
    assert [list(row) for row in rows[:1]] == [
        ["site", "text", "kept_key", "similarity", "own_share"]
    ]
    assert len({row["kept_key"] for row in rows}) == 15
    assert done.err.startswith(
        "read 555, kept 15, removed 540 (97.3%); exact copies 540, edited 0, annotated; "
    )
    done = run("dedupe", source, "-o", tmp_path / "out.jsonl", "--annotate", "--json")
    assert json.loads(done.out)["removed"] == 540
    assert "bytes_saved" not in json.loads(done.out)
