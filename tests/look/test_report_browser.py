"""The page of a report in a real browser."""

import csv
import json
import time
from functools import partial

import browsers
import pytest

import fpdb
from fpdb.io.files import read_pairs

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.slow("it starts a browser")]

WORDS = [f"word{number}" for number in range(3000)]
HAN = [chr(0x4E00 + number) for number in range(2000)]
CHANGES = {"slightly": [150], "more": [60, 120, 180], "most": [20, 60, 120, 180, 220]}


def records():
    """Yield groups of pairs that are edited ever more, one of copies, and one of four texts."""
    for number, (name, places) in enumerate(CHANGES.items()):
        words = WORDS[number * 300 :][:300]
        yield {"id": f"{name}/1", "title": f"Story edited {name}", "text": " ".join(words)}
        for place in places:
            words[place] = "changed"
        yield {"id": f"{name}/2", "text": " ".join(words)}
    for copy in range(3):
        yield {"id": f"copy/{copy}", "title": "Copies", "text": " ".join(WORDS[1000:1080])}
    words = WORDS[1200:1500]
    for step in range(4):
        words[step * 70 : step * 70 + 8] = [f"step{step}x{n}" for n in range(8)]
        yield {"id": f'ballad,"{step}"', "title": "Ballad", "text": " ".join(words)}
    text = "".join(HAN[:400])
    yield {"id": "news/1", "title": "新闻", "text": text}
    yield {"id": "news/2", "title": "新闻", "text": text.replace(HAN[200], "红鸢")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    source = folder / "news.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records()))
    fpdb.report(str(source), folder / "report.html")
    return folder


@pytest.fixture(scope="module")
def window(folder):
    with browsers.started(folder) as window:
        yield window


@pytest.fixture
def page(window, folder):
    page = Report(window)
    page.resize(1200)
    window.get(f"file://{folder}/report.html")
    if window.execute_script("return localStorage.length"):  # what the page before chose
        window.execute_script("localStorage.clear()")
        window.refresh()
    yield page
    assert [entry["message"] for entry in window.get_log("browser")] == []


class Report(browsers.Reader):
    """What a reader of a report sees and does."""

    def shown(self, selector):
        return [text.strip() for text in self.texts(selector) if text]

    def titles(self):
        return self.texts("#list .title")

    def choose(self, label, value):
        self.window.execute_script(
            "const select = [...document.querySelectorAll('label')]"
            ".find((label) => label.textContent.startsWith(arguments[0])).querySelector('select');"
            "select.value = arguments[1]; select.dispatchEvent(new Event('input'));",
            label,
            value,
        )

    def write(self, selector, text):
        field = self.one(selector)
        field.clear()
        field.send_keys(text)

    def press(self, keys):
        for key in keys:
            self.window.switch_to.active_element.send_keys(key)


ORDER = [
    "Ballad",
    "Story edited most",
    "Story edited more",
    "新闻",
    "Story edited slightly",
    "Copies",
]


def test_groups_are_listed_and_opened(page):
    assert page.titles() == ORDER
    assert page.texts(".identical .share") == ["same"]
    assert page.one("[role=status]").text == "6 groups"
    page.all(".head")[1].click()
    assert page.texts(".body .name") == ["most/1", "most/2"]
    assert page.shown("del") == [WORDS[600 + place] for place in CHANGES["most"]]
    assert page.shown("ins") == ["changed"] * 5
    assert "Left only 2 %, right only 2 % of the words." in page.one("p.facts").text
    page.all(".head")[1].click()
    assert page.all(".body") == []


def test_filters(page):
    page.write("input[type=search]", "edited M")
    assert page.titles() == ["Story edited most", "Story edited more"]
    assert page.one("[role=status]").text == "2 of 6 groups"
    page.write("input[type=search]", "copy/2")
    assert page.titles() == ["Copies"]
    page.write("input[type=search]", "nothing")
    assert page.titles() == []
    assert "No group fits" in page.one("#none").text
    page.button("Show all groups").click()
    assert page.titles() == ORDER
    assert not page.one("#none").is_displayed()
    page.write("input[type=search]", "新闻")
    assert page.titles() == ["新闻"]
    page.window.refresh()
    page.choose("Show", "identical")
    assert page.titles() == ["Copies"]
    page.choose("Show", "")
    page.write("[aria-label^=Least]", "98")
    assert page.titles() == ["Story edited slightly", "Copies"]
    page.write("[aria-label^=Largest]", "99")
    assert page.titles() == ["Story edited slightly"]


def test_folding(page):
    page.all(".head")[4].click()
    page.button("As one text").click()
    folds = page.texts(".folded summary")
    assert len(folds) == 2
    assert all("equal words" in fold for fold in folds)
    closed = ".folded:not([open])"
    assert WORDS[50] not in page.one(".body").text.split()
    page.all(".folded summary")[0].click()
    assert len(page.all(closed)) == 1
    page.button("Show all").click()
    assert page.all(closed) == []
    shown = " ".join(page.shown(".row > :first-child")).split()
    shown.remove("changed")
    assert shown == WORDS[:300]
    page.button("Fold equal passages").click()
    assert len(page.all(closed)) == 2


def test_keys_verdicts_and_pairs_csv(page, folder, tmp_path):
    (folder / "pairs.csv").unlink(missing_ok=True)
    page.press("jos")
    assert page.shown(".verdict .soft") == ["Your verdict: same"]
    page.press("jod")
    page.press("jou")
    assert page.texts(".marks") == ["✓ same", "✓ different", "✓ unsure", "", "", ""]
    page.press("kkk")
    assert "at" in page.all(".group")[0].get_attribute("class").split()
    page.press("/")
    page.press("sd")
    assert page.one("input[type=search]").get_attribute("value") == "sd"
    page.one("input[type=search]").clear()
    # The browser keeps what a page stores a moment later.
    limit = time.monotonic() + 20
    marks = []
    while "✓ unsure" not in marks and time.monotonic() < limit:
        page.window.refresh()
        marks = page.texts(".marks")
    assert marks == ["✓ same", "✓ different", "✓ unsure", "", "", ""]
    page.choose("Show", "open")
    assert page.titles() == ORDER[3:5]
    page.button("Save 3 verdicts").click()
    saved = folder / "pairs.csv"
    limit = time.monotonic() + 20
    while not (saved.exists() and saved.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.02)
    assert list(read_pairs(str(saved))) == [
        ('ballad,"0"', 'ballad,"1"', True),
        ("most/1", "most/2", False),
    ]
    source = [fpdb.Document(each["id"], each["text"]) for each in records()]
    found = fpdb.evaluate(source, read_pairs(str(saved)), k=[3])
    assert found.true == 1


def test_the_groups_that_are_shown_are_saved(page, folder):
    page.write("input[type=search]", "新闻")
    page.button("Save as CSV").click()
    saved = folder / "groups.csv"
    limit = time.monotonic() + 20
    while not (saved.exists() and saved.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.02)
    assert saved.read_bytes().startswith(b"\xef\xbb\xbfgroup,percent,")
    with saved.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["title"], row["role"], row["key"]) for row in rows] == [
        ("新闻", "Kept", "news/1"),
        ("新闻", "Near-duplicate", "news/2"),
    ]
    assert "[object" not in page.window.page_source
    assert page.one("#list").rect["y"] < 400


def test_chinese_is_set_as_chinese(page):
    page.all(".head")[3].click()
    assert page.shown("del") == [HAN[200]]
    assert {text.get_attribute("lang") for text in page.all(".body .text")} == {"zh"}
    assert "of the characters" in page.one("p.facts").text


def test_a_phone(page):
    page.resize(400)
    page.window.refresh()
    for head in page.all(".head"):
        page.window.execute_script("arguments[0].click()", head)
    assert page.window.execute_script("return document.documentElement.scrollWidth") == 400
    assert len(page.all("#app.one")) == 1
    assert page.shown(".row > :last-child") == []
    assert page.shown("del")
    assert page.shown("ins")


def test_what_was_moved_has_a_colour(page, folder):
    sentences = [" ".join(WORDS[at : at + 12]) for at in range(0, 240, 12)]
    texts = [sentences, [*sentences[2:9], *sentences[:2], *sentences[9:]]]
    lines = [json.dumps({"id": n, "text": " ".join(text)}) for n, text in enumerate(texts)]
    (folder / "moved.jsonl").write_text("\n".join(lines))
    fpdb.report(folder / "moved.jsonl", folder / "moved.html")
    page.window.get(f"file://{folder}/moved.html")
    page.one(".head").click()
    said = "Left only 0 %, right only 0 %, moved 10 % of the words."
    assert said in page.one("p.facts").text.replace("\u00a0", " ")
    moved = " ".join(sentences[:2])
    assert page.shown("del.moved") == page.shown("ins.moved") == [moved]
    colours = {
        page.one(f"p.facts .{name}").value_of_css_property("background-color")
        for name in ("gone", "come", "moved")
    }
    assert len(colours) == 3


def test_the_shortest_passage_that_counts_is_chosen_on_the_page(page, folder):
    """One text has 60 words of the first and 40 of the second; a shorter run than 50 is nothing."""
    runs = [WORDS[:60], WORDS[300:340]]
    texts = {
        "both": [*runs[0], *WORDS[600:640], *runs[1]],
        "long": [*runs[0], *WORDS[900:940]],
        "short": [*runs[1], *WORDS[1200:1240]],
    }
    lines = [json.dumps({"id": key, "text": " ".join(words)}) for key, words in texts.items()]
    (folder / "runs.jsonl").write_text("\n".join(lines))
    fpdb.report(folder / "runs.jsonl", folder / "runs.html", passages=True)
    page.window.get(f"file://{folder}/runs.html")
    size = {key: len(" ".join(words)) for key, words in texts.items()}
    long, short = (len(" ".join(run)) for run in runs)
    shares = {"both": (long + short) / size["both"], "long": long / size["long"]}
    shares["short"] = short / size["short"]

    def listed():
        keys = [keys.split(" · ")[0] for keys in page.texts("#list .keys")]
        given = [share.replace("\u00a0", " ") for share in page.texts("#list .share")]
        return dict(zip(keys, given, strict=True))

    assert listed() == {key: f"{share:.0%}".replace("%", " %") for key, share in shares.items()}
    page.all(".head")[0].click()
    assert len(page.all(".body mark:not(.brief)")) == 2
    page.write("[name=shortest]", "50")
    shares = {"both": long / size["both"], "long": shares["long"]}
    assert listed() == {key: f"{share:.0%}".replace("%", " %") for key, share in shares.items()}
    assert page.texts(".body mark:not(.brief)") == [" ".join(runs[0])]
    page.write("[name=shortest]", "61")
    assert listed() == {}
    page.button("Show all documents").click()
    assert len(listed()) == 3


HOSTILE = (
    "</script><script>document.title='taken'</script><img src=x onerror=document.title=1>\u202e"
)


def test_hostile_texts_stay_texts(window, folder):
    texts = [" ".join([HOSTILE, *WORDS[:200], HOSTILE * place]) for place in range(3)]
    lines = [
        json.dumps({"id": f"{HOSTILE}{n}", "text": text, "title": HOSTILE, "site": f"{HOSTILE}{n}"})
        for n, text in enumerate(texts)
    ]
    (folder / "hostile.jsonl").write_text("\n".join(lines))
    fpdb.report(
        str(folder / "hostile.jsonl"), folder / "hostile.html", fpdb.Reading(host_field="site")
    )
    window.get(f"file://{folder}/hostile.html")
    page = Report(window)
    page.one(".head").click()
    assert page.all("img, #list script, [onerror]") == []
    assert window.title == "Duplicates in hostile.jsonl"
    assert page.shown("ins") == [HOSTILE.replace("\u202e", "⟦U+202E⟧")]
    assert page.texts(".name")[0] == page.shown("ins")[0] + "0"
    assert window.get_log("browser") == []


def dated_records():
    """Yield the records with a date and a host, and one that is too short."""
    for number, each in enumerate(records()):
        day, host = f"2024-01-{number % 28 + 1:02}", f"http://{'ab'[number % 2]}.test/{number}"
        yield each | {"date": day, "url": host}
    yield {"id": "short", "text": "short"}


@pytest.fixture(scope="module")
def chinese(window, folder):
    """Return pages to be read in Chinese, in a browser whose language it is."""
    source = folder / "dated.jsonl"
    source.write_text("".join(json.dumps(each) + "\n" for each in dated_records()) + "bad\n")
    fpdb.report(str(source), folder / "full.html")
    fpdb.report(str(source), folder / "some.html", limit=2)
    fpdb.report(str(source), folder / "parts.html", passages=True)
    fpdb.report(str(folder / "news.jsonl"), folder / "undated.html", passages=True)
    agent = window.execute_script("return navigator.userAgent")
    override = partial(window.execute_cdp_cmd, "Network.setUserAgentOverride")
    override({"userAgent": agent, "acceptLanguage": "zh-CN"})
    yield folder
    override({"userAgent": agent, "acceptLanguage": "en-US"})


@pytest.mark.parametrize("name", ["full", "some", "parts", "undated"])
def test_no_english_is_left_in_chinese(window, chinese, name):
    from selenium.webdriver.support.ui import WebDriverWait  # which `quick` lacks

    window.get(f"file://{chinese}/{name}.html")
    window.execute_script("localStorage.clear()")
    window.refresh()
    assert window.execute_script(browsers.PRESS_ALL) == []
    assert window.execute_script(browsers.ENGLISH) == []
    assert window.execute_script("return document.documentElement.lang") == "zh-CN"
    switch = "const it = document.querySelector('#language'); it.value = arguments[0];"

    def is_english(window):
        window.execute_script(f"{switch} it.dispatchEvent(new Event('change'))", "en")
        window.refresh()
        return "Sort" in window.execute_script("return document.querySelector('.tools').innerText")

    # A browser that has just cleared what pages store may lose what one stores at once.
    WebDriverWait(window, 10).until(is_english)
    assert window.get_log("browser") == []
