"""HTML becomes text, whatever its encoding, and no page takes more than its share."""

import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

import fpdb
from fpdb.io import html

pytestmark = pytest.mark.process

ARTICLE = (
    "The old bridge at Lindow is closed until further notice, because the river has washed out "
    "one of its piers. Engineers will look at what is left of it when the water has fallen. "
) * 3
ZH = "记者从有关部门获悉，今年的粮食产量再创新高，来自全国各地的代表出席了在北京召开的会议。" * 5
TW = "臺灣的天氣在今天變得非常寒冷，民眾紛紛穿上厚重的外套，氣象局表示冷氣團將持續到下週。" * 5
JA = (
    "これは日本語の文章です。文字コードの判定を試すために書かれました。東京都は計画を発表しました。"
    * 5
)
FR = "Les élèves étaient très fatigués après la journée à l’école ; où étaient-ils passés ? " * 5


def squeezed(text):
    return "".join(text.split())


def test_main_content_and_page():
    links = "".join(f'<li><a href="/{n}">Section {n}</a></li>' for n in range(40))
    page = (
        f"<title> The  bridge\n</title><body><nav><ul>{links}</ul></nav>"
        f"<article><h1>Closed</h1><p>{ARTICLE}</p></article><footer>Imprint and contact</footer>"
        "<script>var hidden = 1</script><style>p {}</style><!-- a comment -->"
    )
    main = fpdb.html_text(page)
    assert main.title == "The bridge"
    assert main.encoding is None
    assert "Engineers will look" in main.text
    assert "Section 7" not in main.text
    whole = fpdb.html_text(page, main=False).text
    assert "Section 7" in whole
    assert "Imprint" in whole
    for text in (main.text, whole):
        assert "hidden" not in text
        assert "comment" not in text


@pytest.mark.parametrize(
    ("text", "codec", "label", "expected"),
    [
        (ZH, "gb18030", "gb2312", "gb18030"),
        (ZH, "gb18030", "GBK", "gb18030"),
        (TW, "big5", "big5", "big5hkscs"),
        (JA, "cp932", "Shift_JIS", "cp932"),
        (JA, "euc_jp", "euc-jp", "euc_jp"),
        (FR, "cp1252", "ISO-8859-1", "cp1252"),
        (ZH, "utf-8", "utf-8", "utf-8"),
    ],
)
@pytest.mark.parametrize("where", ["http", "meta", "meta-equiv", "nowhere", "wrong"])
def test_encodings(text, codec, label, expected, where):
    head = {
        "meta": f'<meta charset="{label}">',
        "meta-equiv": f'<meta http-equiv=Content-Type content="text/html; charset={label}">',
        "wrong": "<meta charset=utf-8>",
    }.get(where, "")
    content_type = f"text/html; charset={label}" if where == "http" else "text/html"
    page = f"<html><head>{head}</head><body><p>{text}</p></body></html>"
    found = fpdb.html_text(page.encode(codec), content_type=content_type)
    assert squeezed(found.text) == squeezed(text)
    assert not found.replaced
    assert found.encoding == expected


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_wins(codec):
    page = f"<meta charset=gbk><p>{ZH}".encode(codec)
    assert squeezed(fpdb.html_text(page, content_type="text/html; charset=big5").text) == ZH


POLISH = "sprzeciwiają się skandalicznym atakom " * 9
DECLARED = [("utf-8", POLISH), ("utf-8", ZH), ("gb2312", ZH), ("big5", TW), ("shift_jis", JA)]


@pytest.mark.parametrize(("label", "text"), DECLARED)
def test_a_stray_byte_makes_no_other_encoding(label, text):
    page = f'<meta charset="{label}"><p>{text} '.encode(label) + b"caf\xe9 </p>"
    found = fpdb.html_text(page)
    assert squeezed(text) in squeezed(found.text)
    assert "\ufffd" in found.text
    assert found.replaced


def test_japanese_with_escapes():
    page = f"<p>{JA}".encode("iso2022_jp")
    for kind in ("text/html", "text/html; charset=iso-2022-jp"):
        assert squeezed(fpdb.html_text(page, content_type=kind).text) == squeezed(JA)


def test_bytes_that_fit_nothing_are_replaced():
    found = fpdb.html_text(b"<meta charset=utf-8><p>" + ARTICLE.encode() + b"\xff\x81\x81\xfe")
    assert "Engineers" in found.text
    assert fpdb.html_text(b"\xef\xbb\xbf<p>ab\xff\xfecd").replaced


@pytest.mark.parametrize("label", ["zlib", "utf-7", "rot13", "idna", "no-such", "x" * 3000, "\r\n"])
def test_labels_that_are_none(label):
    data = f"<p>{ARTICLE}</p>".encode()
    assert "bridge" in fpdb.html_text(data, content_type=f"text/html; charset={label}").text


def test_text_of_templates_is_read_where_a_page_shows_nothing_else():
    template = '<script id=a type="text/x-handlebars-template"><h2>On</h2><p>{}</p></script>'
    pages = [f"<body><div class=content></div>{template.format(text)}" for text in (ARTICLE, ZH)]
    assert "Engineers" in fpdb.html_text(pages[0]).text
    assert squeezed(ZH) in squeezed(fpdb.html_text(pages[1]).text)
    shown = f"<p>{ARTICLE}</p>{template.format('{{user}} replied')}"
    assert "replied" not in fpdb.html_text(shown).text
    code = f"<script type='text/javascript'>{ARTICLE}</script>"
    assert fpdb.html_text(code).text == ""


def test_links_alone_are_the_text_of_a_page_of_contents():
    links = "".join(f'<li><a href="/{n}">Section {n} of the site</a></li>' for n in range(200))
    for main in (True, False):
        assert "Section 7" in fpdb.html_text(f"<ul>{links}</ul>", main=main).text


def test_lists_without_an_article_are_text():
    items = "".join(f"<li><h4>Setting {n}</h4><p>{ARTICLE}</p></li>" for n in range(9))
    assert "Setting 7" in fpdb.html_text(f"<ul class=config-list>{items}</ul>").text


@pytest.mark.slow("hostile pages use up the time that a page may take")
@pytest.mark.parametrize(
    "page",
    [
        "<a " * 20_000,
        "<!--" * 20_000,
        "<p " + " ".join(f"a{n}=1" for n in range(40_000)) + ">x",
        "<div>" * 40_000 + "x",
        "".join(f"<font color={n}><p>" for n in range(20_000)),
        "<p>some words in a paragraph</p>\n" * (2**21 // 36),
        "\0" * 1_000_000,
        "<script " * 100_000 + "type='text/html'",
    ],
    ids=["tags", "comments", "attributes", "depth", "formatting", "large", "zeros", "scripts"],
)
def test_hostile_pages_end(page):
    html._readers.end()  # whose time is that of other tests
    before = os.times()
    try:
        fpdb.html_text(page)
    except fpdb.HtmlError as error:
        assert "within 2 seconds and 256 MiB: it " in str(error)  # noqa: PT017
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert used < 4
    # The next page finds a process of its own.
    assert "bridge" in fpdb.html_text(f"<p>{ARTICLE}").text


def test_a_page_that_is_too_large():
    with pytest.raises(fpdb.HtmlError, match="expected at most 100"):
        fpdb.html_text("x" * 101, max_bytes=100)
    assert fpdb.html_text("x" * 100, max_bytes=100, main=False).text == "x" * 100


@settings(max_examples=examples(100))
@given(st.binary(max_size=400) | st.text(max_size=200), st.text(max_size=20), st.booleans())
def test_anything_is_a_page(data, label, main):
    found = fpdb.html_text(data, content_type=f"text/html; charset={label}", main=main)
    assert isinstance(found.text, str)
    again = fpdb.html_text(data, content_type=f"text/html; charset={label}", main=main)
    assert again == found


def test_threads_and_forks():
    found = {}

    def read(number):
        found[number] = fpdb.html_text(f"<p>{ARTICLE} number {number}</p>").text

    threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"number {number}" in found[number] for number in range(4))
    code = (
        "import os, fpdb\n"
        "fpdb.html_text('<p>a')\n"
        "child = os.fork()\n"
        "text = fpdb.html_text('<p>some words', main=False).text\n"
        "assert text == 'some words', text\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("package", ["resiliparse", "fastwarc"])
def test_without_the_extra(monkeypatch, package):
    html._readers.end()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(fpdb.MissingExtraError) as caught:
        fpdb.html_text("<p>a")
    assert "fpdb-store[web]" in caught.value.hint


def test_importing_loads_no_parser():
    code = "import sys, fpdb; assert not {'resiliparse', 'brotli', 'fastwarc'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
