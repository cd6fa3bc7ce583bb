"""What a terminal shows: aligned tables with titles and colours, and how far long work is."""

import io
import json
import sys
import unicodedata

import pytest

import fpdb
from fpdb.cli import main

STORY = "老茶馆开在运河边上门口有两棵槐树每天清晨店主先把炉火生好再把昨夜的茶具一件件洗净摆齐"
TITLE = "老茶馆开在运河边上，门口有两棵槐树，每天清晨店主先把炉火生好"


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


@pytest.fixture
def show(monkeypatch):
    """Run a command on a terminal of 80 columns; return the lines of its output, and messages."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def show_here(*arguments, piped=False):
        streams = [io.TextIOWrapper(io.BytesIO()) if piped else Terminal(io.BytesIO())]
        streams.append(Terminal(io.BytesIO()))
        with monkeypatch.context() as patch:
            for name, stream in zip(("stdout", "stderr"), streams, strict=True):
                patch.setattr(sys, name, stream)
            patch.setattr(sys, "argv", ["fpdb", *map(str, arguments)])
            with pytest.raises(SystemExit):
                main()
        for stream in streams:
            stream.flush()
        out, err = (stream.buffer.getvalue().decode() for stream in streams)
        return out.splitlines(), err

    return show_here


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "crawl.fpdb"
    with fpdb.create(where) as db:
        db.add("https://例子.cn/新闻/1", STORY, {"title": TITLE})
        db.add("https://a.example/1", STORY + "完", {"title": "A reprint"})
        db.add("number", "another text that resembles neither of both others", {"title": 7})
    return where


def columns_of(line, text):
    """Return the column of a terminal at which a text begins."""
    before = line[: line.index(text)]
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in before)


def test_a_table_is_aligned_whatever_the_width_of_characters(show, path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    [header, row], _ = show("pairs", path)
    assert header.split() == ["key", "other", "similarity", "title"]
    for name, cell in (("other", "https://a.example"), ("title", "老茶馆")):
        assert columns_of(header, name) == columns_of(row, cell)
    assert header.index("similarity") + len("similarity") == columns_of(row, "0.9") + 4
    assert columns_of(f"{row}|", "|") <= 80
    assert row.endswith("…")


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (["clusters"], "cluster role key title"),
        (["query", "--text", STORY], "query key similarity title"),
        (["query", "--text", STORY, "-k", "5"], "query key distance title"),
        (["get", "--prefix", ""], "key id fingerprint added metadata"),
    ],
)
def test_tables_have_headers_and_pipes_have_none(show, path, command, names):
    name, *rest = command
    lines, _ = show(name, path, *rest)
    assert lines[0] == f"\x1b[1m{lines[0][4:-4]}\x1b[0m"
    assert lines[0][4:-4].split() == names.split()
    piped, _ = show(name, path, *rest, piped=True)
    assert len(piped) == len(lines) - 1
    assert piped[0].count("\t") == len(names.split()) - 1 - names.endswith("title")
    assert "\x1b" not in "".join(piped)
    explicit = show(name, path, *rest, "--json")[0]
    assert all(isinstance(json.loads(line), dict) for line in explicit)


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_for_those_who_want_them(show, path, monkeypatch, variable):
    assert "\x1b[1;31merror: \x1b[0m" in show("get", path, "absent")[1]
    assert "\x1b[2m" in show("pairs", path)[0][1]
    monkeypatch.setenv(*variable)
    assert "\x1b" not in show("get", path, "absent")[1]
    assert "\x1b" not in "".join(show("pairs", path)[0])


@pytest.mark.parametrize("command", ["query", "fingerprint"])
def test_a_text_may_be_typed(show, path, monkeypatch, command):
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(STORY.encode())))
    lines, err = show(command, *[path] * (command == "query"))
    assert err.startswith("type or paste a text; Ctrl-D")
    assert lines[1].split()[0 if command == "query" else -1] == "-"
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b'{"text": "a"}')))
    assert "paste jsonl;" in show(command, *[path] * (command == "query"), "--format", "jsonl")[1]
