"""Commands whose pages are read in Chinese speak Chinese, where the environment says so."""

import ast
import itertools
import json
import re
from pathlib import Path

import pytest

import fpdb
from fpdb.look.translate import Translator

ROOT = Path(fpdb.__file__).parent
TERMINAL = json.loads((ROOT / "look" / "messages.json").read_text("utf-8"))["zh-CN"]["terminal"]
WORDS = " ".join(f"word{number}" for number in range(100))


@pytest.fixture
def chinese(run, monkeypatch):
    for name in ("LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    return run


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, text in (("a", WORDS), ("b", f"{WORDS} more")):
        (folder / f"{name}.txt").write_text(text)
    return folder


def english(text, *names):
    """Return the English words of lines, without paths, names, numbers and units."""
    for name in sorted(map(str, names), key=len, reverse=True):
        text = text.replace(name, "")
    return re.findall(r"(?<![\w/.-])[a-z]{3,}", text, re.IGNORECASE)


def test_reports_and_copies_are_summarised_in_chinese(chinese, folder, tmp_path):
    done = chinese("report", folder, "-o", tmp_path / "out.html")
    assert (done.code, english(done.err, tmp_path)) == (0, [])
    assert done.err.startswith("文档 2，重复组 1，有改动 1\n")
    assert f"{tmp_path}/out.html：1 组，" in done.err
    done = chinese("copies", folder)
    assert done.rows == [["a.txt", "b.txt", "0.9899"]]
    assert re.fullmatch(r"文档对 1；[\d.]+ s\n", done.err)
    assert json.loads(chinese("copies", folder, "--json").out)["similarity"] > 0.9


def test_errors_are_in_chinese(chinese, folder, tmp_path):
    for arguments, code in (
        (["report", tmp_path / "none"], 3),
        (["explore", tmp_path / "none"], 3),
        (["report", folder, "--recipe", "webb"], 3),
        (["report", folder / "a.txt", "--text-field", "body"], 3),
    ):
        done = chinese(*arguments)
        named = [tmp_path, *fpdb.fingerprint.PRESETS, "webb", "jsonl", "tsv", "csv", "parquet"]
        assert (done.code, english(done.err, *named)) == (code, [])
        assert done.err.startswith("错误：")
    done = chinese("report", folder, "--least", 0.5)
    assert done.code == 2
    assert "--least 要和 --passages 一起用" in done.err


def test_other_commands_and_other_languages_stay_english(chinese, monkeypatch, folder, tmp_path):
    assert chinese("stats", tmp_path / "none").err.startswith("error: there is no database")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")  # which goes before the language
    assert chinese("copies", folder).err.startswith("pairs 1; ")


def test_a_line_is_said_by_its_parts():
    say = Translator("zh-CN").say
    assert say("/tmp/a, b.pdf: has no text: its pages are pictures, of which OCR makes text") == (
        "/tmp/a, b.pdf：没有文本：各页是图片，需用 OCR 转为文本"
    )
    assert say("documents 3, pairs 1") == "文档 3，文档对 1"
    assert say("12,345 pages, 61%, 2 s left") == "12,345 页，61%，剩余 2 秒"
    for unknown in ("what nobody said", "a: b, c; d. e", ""):
        assert say(unknown) == unknown
    assert Translator("xx").say("documents 3") == "documents 3"


def test_messages_are_of_lines_that_are_printed():
    """Each piece of a message between its fields is in the source still."""
    source = "\n".join(
        node.value
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    # Made of words, or by the system.
    made = re.compile(
        r".*(\(s\)|No such|Permission|Is a directory| \{n\}$| left$|none of|\(--|^the ).*"
    )
    for text in itertools.filterfalse(made.fullmatch, TERMINAL):
        for piece in re.split(r"\{\w+\}", text):
            names = {piece.strip(" :.,"), piece.replace("--encoding", "encoding").strip(" :.,")}
            assert any(name in source for name in names), text


def test_messages_have_the_fields_of_their_lines():
    catalogue = json.loads((ROOT / "look" / "messages.json").read_text("utf-8"))["zh-CN"]
    for text, message in (catalogue["messages"] | catalogue["terminal"]).items():
        assert set(re.findall(r"\{(\w+)\}", message)) <= set(re.findall(r"\{(\w+)\}", text)), text
