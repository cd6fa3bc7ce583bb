"""The whole story of an editor: files as they are, a page in Chinese, and a table taken along."""

import csv
import io
import random
import subprocess
import sys
import time
import zipfile

import browsers
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.slow("it starts a browser")]

DRAW = random.Random(7)
WORDS = [f"{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}word" for n in range(600)]
HAN = [chr(0x4E00 + number) for number in range(2000)]
ESSAY = [" ".join(DRAW.choices(WORDS, k=60)) for _ in range(5)]
NEWS = ["".join(DRAW.choices(HAN, k=400)) for _ in range(3)]
EDITED = NEWS[0].replace(NEWS[0][9], "鸢")
COLUMNS = "标题", "日期", "来源", "链接", "正文"
TABLE = [
    ("红鸢归来", "2024年3月2日", "晨报", "https://morning.example/1", NEWS[0]),
    ("红鸢再次归来", "2024-03-05", "晚报", "https://evening.example/1", EDITED),
    ("别的消息", "2024-03-03", "晨报", "https://morning.example/2", NEWS[1]),
    ("渡口停航", "昨天", "晨报", "https://morning.example/3", NEWS[2]),
    ("=转载", "2024-03-04", "晚报", "https://evening.example/3", NEWS[2]),
]  # fmt: skip
TITLES = ["红鸢归来", ESSAY[0][:20], "渡口停航"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of what an editor has, as Word, Excel, a browser and an editor write it."""
    folder = tmp_path_factory.mktemp("desk")
    essays = folder / "作业"
    essays.mkdir()
    body = "".join(f"<w:p><w:r><w:t>{each}</w:t></w:r></w:p>" for each in ESSAY)
    with zipfile.ZipFile(essays / "essay.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        document = f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", document)
    (essays / "handed in.txt").write_text(
        "\n".join([*ESSAY[:4], ESSAY[4].replace(ESSAY[4].split()[9], "it")])
    )
    paragraphs = "".join(
        f"<p>{each}</p>" for each in [*ESSAY[:4], ESSAY[4].replace(ESSAY[4].split()[40], "so")]
    )
    page = f"<html><body><nav>Home About</nav><article>{paragraphs}</article></body></html>"
    (essays / "saved.html").write_text(page)
    (essays / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\0\x10JFIF\0")
    table = io.StringIO(newline="")
    csv.writer(table).writerows([COLUMNS, *TABLE])
    (folder / "news.csv").write_bytes(table.getvalue().encode("gb18030"))
    return folder


@pytest.fixture(scope="module")
def written(folder):
    """Return what the terminal says of the report, which is written with one command."""
    command = [sys.executable, "-m", "fpdb", "report", "作业", "news.csv", "-o", "report.html"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture
def page(folder, written):
    with browsers.started(folder) as window:
        agent = window.execute_script("return navigator.userAgent")
        language = {"userAgent": agent, "acceptLanguage": "zh-CN"}
        window.execute_cdp_cmd("Network.setUserAgentOverride", language)
        window.get(f"file://{folder}/report.html")
        yield browsers.Reader(window)
        assert window.get_log("browser") == []


def test_an_editor_sees_who_copied_whom_and_takes_the_list_along(page, written, folder):
    assert "news.csv: read as gb18030" in written
    assert written.count("files that aren't text 1") == 1
    assert "documents 8, groups 3, identical 1, edited 3" in written
    assert "dates that can't be read: 1" in written
    for head in page.all(".head"):
        head.click()
    assert page.window.execute_script(browsers.ENGLISH) == []
    assert sorted(text[:20] for text in page.texts("#list .title")) == sorted(TITLES)
    shown = page.one("#list").text
    assert "2024-03-02" in shown
    assert "晚报" in shown
    links = {each.get_attribute("href") for each in page.all("#list a")}
    assert {"https://morning.example/1", "https://evening.example/1"} <= links
    page.button("另存为 CSV").click()
    saved = folder / "groups.csv"
    limit = time.monotonic() + 20
    while not (saved.exists() and saved.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.02)
    assert saved.read_bytes().startswith(b"\xef\xbb\xbf")
    with saved.open(encoding="utf-8-sig", newline="") as file:
        _, *rows = csv.reader(file)
    dated = [
        [TABLE[0][0], "2024-03-02, 晨报", TABLE[0][3]],
        [TABLE[0][0], "2024-03-05, 晚报", TABLE[1][3]],
        *[[ESSAY[0][:20], "", ""]] * 3,
        [TABLE[3][0], "晨报", TABLE[3][3]],
        [TABLE[3][0], "2024-03-04, 晚报", TABLE[4][3]],
    ]
    assert sorted([row[3][:20], *row[6:]] for row in rows) == sorted(dated)
    assert {row[5] for row in rows if not row[7]} == {
        path.name for path in (folder / "作业").iterdir()
    } - {"photo.jpg"}
