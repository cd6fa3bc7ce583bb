"""A teacher's story, in Chinese: a folder of essays with one assignment, some of them copied."""

import random
import zipfile
from functools import partial

import browsers
import pytest
from outcomes import run

__all__ = ["run"]

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.slow("it starts a browser")]

RANDOM = random.Random(2)
ASSIGNMENT = "请阅读下面的材料结合自己的经历写一篇不少于八百字的文章题目自拟文体不限不得抄袭套作"
NAMES = ["王芳", "李娜", "张伟", "刘洋", "陈静", "杨帆"]


def han_of(count):
    return "".join(chr(0x4E00 + RANDOM.randrange(3000)) for _ in range(count))


@pytest.fixture(scope="module")
def essays(tmp_path_factory):
    """Six essays: 陈静 has halves of two others, and 杨帆 a sentence of a third."""
    folder = tmp_path_factory.mktemp("teacher")
    texts = {name: han_of(240) for name in NAMES}
    texts["陈静"] = texts["王芳"][:120] + texts["李娜"][120:]
    sentence = texts["张伟"][100:140]
    texts["杨帆"] = texts["杨帆"][:90] + sentence + texts["杨帆"][90:]
    (folder / "作文").mkdir()
    for number, (name, text) in enumerate(texts.items()):
        whole = f"{ASSIGNMENT}。{text}"
        path = folder / "作文" / f"{name}.{'docx' if number % 2 else 'txt'}"
        if number % 2:
            with zipfile.ZipFile(path, "w") as archive:
                body = f'<w:document xmlns:w="w"><w:p><w:t>{whole}</w:t></w:p></w:document>'
                archive.writestr("word/document.xml", body)
        else:
            path.write_text(whole, "gb18030")
    (folder / "题目.txt").write_text(ASSIGNMENT)
    return folder, sentence


@pytest.fixture(scope="module")
def window(essays):
    with browsers.started(essays[0]) as window:
        agent = window.execute_script("return navigator.userAgent")
        override = partial(window.execute_cdp_cmd, "Network.setUserAgentOverride")
        override({"userAgent": agent, "acceptLanguage": "zh-CN"})
        yield window


def test_who_copied_what_is_seen_without_the_assignment(window, essays, run, monkeypatch):
    folder, sentence = essays
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    page, report = browsers.Reader(window), ("report", folder / "作文", "--passages", "-o")
    done = run(*report, folder / "all.html")
    assert "文档 6，含有其他文档内容的 6，文档对 15\n" in done.err
    page.resize(1280)
    window.get(f"file://{folder}/all.html")
    [note] = [text for text in page.texts(".note") if ASSIGNMENT[:20] in text]
    assert note.startswith("至少 6 篇文档有同一片段：")
    assert "--common" in note
    assert window.execute_script(browsers.ENGLISH) == []

    done = run(*report, folder / "own.html", "--common", folder / "题目.txt")
    assert "文档 6，含有其他文档内容的 5，文档对 3\n" in done.err
    window.get(f"file://{folder}/own.html")
    assert window.execute_script(browsers.ENGLISH) == []
    found = {keys.split(".")[0].split("/")[-1] for keys in page.texts("#list .keys")}
    assert found == {"王芳", "李娜", "张伟", "陈静", "杨帆"}
    # The picture has a cell for each pair from both sides, which shows it.
    window.execute_script("document.querySelector('details:has(.matrix)').open = true")
    named = {name.split(".")[0] for name in page.texts(".matrix .name")}
    assert named == {"王芳", "李娜", "张伟", "陈静", "杨帆"}
    cells = page.all(".matrix rect")
    assert len(cells) == 6
    [cell] = [
        each
        for each in cells
        if "陈静" in each.get_attribute("data-of") and "李娜" in each.get_attribute("data-other")
    ]
    window.execute_script("arguments[0].dispatchEvent(new MouseEvent('click'))", cell)
    [pressed] = page.all(".body .tabs [aria-pressed=true]")
    shown = page.all(".body .names [data-text]")[int(pressed.get_attribute("data-choose")) - 1]
    assert "李娜" in shown.text
    marks = {mark.get_attribute("data-source") for mark in page.all(".body .coloured mark")}
    assert marks == {"1", "2"}
    [given] = page.all(".body .coloured .given")
    assert given.text.startswith(ASSIGNMENT[:20])
    # A sentence of 40 characters is too short from 41 on.
    field = page.one("[name=shortest]")
    field.send_keys("41")
    assert len(page.all("#list article")) == 3
    field.clear()
    field.send_keys("40")
    assert len(page.all("#list article")) == 5
    assert sentence in window.page_source
    for dark in (False, True):
        page.resize(400, dark=dark)
        assert window.execute_script("return document.documentElement.scrollWidth") == 400
    assert [entry["message"] for entry in window.get_log("browser")] == []
