"""The explorer in a real browser: `fpdb explore`, its pages at two widths, and what keys do."""

import json
import re
import signal
import subprocess
import sys
import time
from functools import cached_property

import browsers
import pytest

import fpdb

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.slow("it starts a browser")]

WORDS = [f"word{number}" for number in range(1500)]
HAN = "".join(chr(0x4E00 + number) for number in range(500))
WIDTHS = (1200, 400)
# Every element with text of its own, and how much its colour differs from what it is on.
CONTRAST = """
const light = (colour) => {
  const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const below = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
};
return [...document.querySelectorAll("body *")]
  .filter((each) => each.offsetParent && [...each.childNodes].some((node) =>
    node.nodeType === 3 && node.textContent.trim()))
  .map((each) => {
    const [one, other] = [light(getComputedStyle(each).color), light(below(each))];
    return [(Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), each.outerHTML];
  }).filter(([ratio]) => ratio < 4.5);
"""


def records():
    for number in range(3):
        words = WORDS[number * 300 :][:300]
        yield f"https://a.example/{number}", " ".join(words)
        words[150] = "changed"
        yield f"https://b.example/{number}", " ".join(words)
    yield "https://news.example/1", HAN
    yield "https://news.example/2", HAN[:250] + "红鸢" + HAN[251:]


class Explored(browsers.Reader):
    """A browser that explores a database, which a process of its own serves."""

    def __init__(self, window, address):
        super().__init__(window)
        self.base = address.partition("?")[0]
        window.get(address)
        self.wait(lambda: "Found at" in self.body())

    def wait(self, condition):
        limit = time.monotonic() + 300
        while not condition():
            assert time.monotonic() < limit
            time.sleep(0.1)

    def body(self):
        return self.window.execute_script("return document.body.innerText")

    def visit(self, page):
        self.window.get(self.base + page)

    def press(self, text):
        self.follow(self.button(text).click)

    def follow(self, action):
        self.window.execute_script("document.left = true")
        action()
        self.wait(
            lambda: self.window.execute_script(
                "return !document.left && document.readyState === 'complete'"
            )
        )

    def place(self, text):
        """Return the page to which a link leads."""
        [found] = [each for each in self.all("a") if text in each.text][:1]
        return found.get_attribute("href").removeprefix(self.base)

    @cached_property
    def pages(self):
        """An address of each page."""
        self.visit("groups?order=large")
        group = self.all("a.head")[0].get_attribute("href").removeprefix(self.base)
        self.visit(group)
        pair = self.place("compare")
        self.visit(group)
        document = self.all("td a.name")[0].get_attribute("href").removeprefix(self.base)
        return ["overview", "groups", group, pair, "documents", document, "near"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explored")
    source = folder / "texts.jsonl"
    source.write_text(
        "".join(json.dumps({"key": key, "text": text}) + "\n" for key, text in records())
    )
    with fpdb.create(folder / "crawl.fpdb") as database:
        fpdb.ingest(database, str(source))
    return folder


@pytest.fixture(scope="module")
def window(folder):
    with browsers.started(folder) as window:
        yield window


def serving(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-m", "fpdb", "explore", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


def end(process):
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)


@pytest.fixture(scope="module")
def explored(window, folder):
    process, address = serving(
        folder / "crawl.fpdb", "--texts", folder / "texts.jsonl", "--write", "--quiet"
    )
    yield Explored(window, address)
    end(process)


@pytest.fixture(autouse=True)
def _no_message_of_the_browser(window):
    yield
    messages = [entry["message"] for entry in window.get_log("browser")]
    assert messages == []


def test_each_page_fits_and_can_be_read(explored):
    pages = explored.pages
    assert len(set(pages)) == 7
    for width, dark in zip(WIDTHS, (False, True), strict=True):
        explored.resize(width, dark=dark)
        for page in pages:
            explored.visit(page)
            size = "return document.documentElement.scrollWidth - innerWidth"
            assert explored.window.execute_script(size) <= 0, (page, width)
            assert explored.window.execute_script(CONTRAST) == [], (page, dark)


def test_no_english_is_left_in_chinese(explored):
    pages = [*explored.pages, "groups?open=1", "groups?least_size=99", "documents?search=nowhere"]
    pages += ["group?of=x", "document?key=1", "nowhere"]
    explored.window.execute_script("localStorage.setItem('fpdb-language', 'zh-CN')")
    found = set()
    for page in pages:
        explored.visit(page)
        assert explored.window.execute_script(browsers.PRESS_ALL) == []
        found.update(explored.window.execute_script(browsers.ENGLISH))
    explored.window.execute_script("localStorage.clear()")
    assert found == set()
    assert len(explored.window.get_log("browser")) == 3  # of the pages that aren't there


def test_what_a_screen_reader_finds(explored):
    controls = {"button", "checkbox", "combobox", "link", "navigation", "region", "searchbox"}
    controls |= {"textbox", "spinbutton", "Date", "image", "DisclosureTriangle"}
    for page in explored.pages:
        explored.visit(page)
        for _ in range(50):  # the browser makes the tree after the page, part by part
            tree = explored.window.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
            named = [
                (node["role"]["value"], node.get("name", {}).get("value", ""))
                for node in tree
                if not node["ignored"] and "role" in node
            ]
            unnamed = [each for each in named if each[0] in controls and not each[1].strip()]
            if len(tree) > 1 and not unnamed:
                break
            time.sleep(0.1)
        assert unnamed == []
        roles = [role for role, _ in named]
        assert roles.count("main") == 1
        headings = [int(level) for level in re.findall("<h([1-6])", explored.window.page_source)]
        assert headings[0] == 1
        assert headings.count(1) == 1


def test_pages_are_used_by_the_keyboard(explored):
    explored.resize(1200)
    explored.visit("groups?host=a.example")
    active = explored.window.switch_to
    active.active_element.send_keys("\ue004")  # Tab
    assert active.active_element.text == "To the content"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    for _ in range(40):
        if "head" in (active.active_element.get_attribute("class") or ""):
            break
        active.active_element.send_keys("\ue004")
        shown = explored.window.execute_script(outline)
        assert shown != "none", active.active_element.get_attribute("outerHTML")
    active.active_element.send_keys("\ue007")  # Enter
    explored.wait(lambda: explored.all("del"))
    [fold] = [each for each in explored.all(".folded summary") if "equal words" in each.text][:1]
    before = explored.body()
    assert "word20 " not in before.replace("\n", " ")[200:] or "word60" not in before
    fold.send_keys("\ue007")
    assert "word60" in explored.body()


def test_a_text_is_pasted(explored):
    explored.visit("near")
    text = " ".join(WORDS[:300]).replace("word77 ", "word77 another ")
    explored.all("textarea")[0].send_keys(f"{text} 红鸢")
    explored.press("Find what is near")
    assert next(each.text for each in explored.all("del") if each.text).strip() == "another"
    assert explored.all("textarea")[0].get_attribute("value") == f"{text} 红鸢"


def test_the_address_works_once(explored, window, folder):
    process, address = serving(folder / "crawl.fpdb")
    assert Explored(window, address).all("form[action=again]")
    window.delete_all_cookies()
    window.get(address)
    assert "This address works once" in window.find_element("css selector", "main").text
    window.get(address.partition("?")[0].rpartition("/explore")[0][:-9])
    assert "There is no such page" in window.find_element("css selector", "h1").text
    window.get_log("browser")
    end(process)
