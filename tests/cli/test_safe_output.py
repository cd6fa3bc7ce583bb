"""Whatever a document holds, the terminal only ever sees printable characters."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminals import CRAFTED, assert_harmless

from fpdb.cli import render

MARKUP = "[/] [bold]x[/bold] [link=https://evil.example]y[/link]"
EACH = pytest.mark.parametrize("title", [*CRAFTED, "a\ud800b", "中文　标题，是安全的"])


def file_of(path, text):
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@EACH
def test_titles_are_harmless_and_come_back_whole_from_json(run, title):
    done = run("fingerprint", "-r", "charikar", f"--text={title}")
    assert (done.code, len(done.out.splitlines()), len(done.rows[0])) == (0, 1, 2)
    as_json = run("fingerprint", "-r", "charikar", "--json", f"--text={title}")
    assert_harmless(done.out + done.err + as_json.out + as_json.err)
    assert json.loads(as_json.out)["source"] == title


@EACH
def test_errors_are_harmless(run, tmp_path, title):
    name = title.replace("\x00", "").replace("/", "")
    for arguments in (
        ["fingerprint", f"--recipe={title}", "--text", "text"],
        ["fingerprint", "-r", "ascii-mt", f"--text={title}ü"],
        ["fingerprint", tmp_path / name],
        ["fingerprint", "-r", tmp_path / f"{name}.toml", "--text", "text"],
        ["recipes", f"x{title}"],
    ):
        done = run(*arguments)
        assert done.code == 3
        assert_harmless(done.err)
        assert done.err.startswith("error: ")
        assert len(done.err.splitlines()) <= 2


def test_a_hostile_file_name_is_shown_safely(run, tmp_path):
    path = file_of(tmp_path / "a\x1b[2Jb\u202e.txt", "one two three four five six seven eight")
    done = run("fingerprint", path)
    assert done.code == 0
    assert_harmless(done.out)
    assert done.out.rstrip().endswith(r"a\x1b[2Jb\u202e.txt")


@pytest.mark.parametrize("title", [MARKUP, "中文　标题\xa0é😀𠀀"])
def test_markup_chinese_and_spaces_of_any_width_are_shown_as_they_are(run, title):
    assert run("fingerprint", "-r", "charikar", f"--text={title}").rows[0][1] == title
    assert title in run("fingerprint", "-r", "charikar", "--json", f"--text={title}").out


@given(st.text(st.characters(exclude_categories=())))
def test_safe_text_is_harmless_whatever_it_was(text):
    assert_harmless(render.safe(text), allowed="")
