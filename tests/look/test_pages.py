"""The pages of the explorer, without a server: what they show, and what forms do."""

import csv
import html
import io
import json
import re
import time
from collections import Counter
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import numpy as np
import pytest
from outlines import Outline, Tree

import fpdb
from fpdb.look.page import program_of
from fpdb.markup import visible

pytestmark = pytest.mark.process

WORDS = [f"word{number}" for number in range(2000)]
HAN = "".join(chr(0x4E00 + number) for number in range(600))
HOSTILE = (
    "<script>alert(1)</script></style></title></textarea><img src=x onerror=alert(1)> "
    "&lt;b&gt; \u2028 javascript:alert(1) \u202egnp.exe\u202c \x07\x1b[31m '\"` {{7*7}}"
)
DAYS = {"a": "2024-01-05", "b": "2024-03-07"}


def records():
    """Yield an edited group, copies, a group of Chinese, one of hostile texts, and a single one."""
    words = WORDS[:200]
    yield "https://a.example/story", " ".join(words), DAYS["a"]
    yield "https://b.example/story", " ".join([*words[:100], "changed", *words[101:]]), DAYS["b"]
    for copy in range(3):
        yield f"https://c.example/{copy}", " ".join(WORDS[300:380]), DAYS["a"]
    yield "https://news.example/1", HAN, DAYS["b"]
    yield "https://news.example/2", HAN[:300] + "红鸢" + HAN[301:], DAYS["b"]
    for number in range(2):
        text = " ".join([HOSTILE, *WORDS[400:600], HOSTILE * number])
        yield f"{HOSTILE}{number}", text, DAYS["b"]
    yield "https://d.example/alone ", " ".join(WORDS[700:800]), ""


class Visitor:
    """Sees pages as a browser of one session does."""

    def __init__(self, explorer, *, may_write=True):
        self.explorer = explorer
        self.may_write = may_write
        self.seen = ""

    def get(self, address, status=200):
        split = urlsplit(address)
        fields = {}
        for name, value in parse_qsl(split.query, keep_blank_values=True):
            fields.setdefault(name, []).append(value)
        return self._take(self.explorer.answer(split.path, fields, **self.who), status)

    @property
    def who(self):
        return {"session": "mine", "may_write": self.may_write}

    def post(self, page, status=200, **fields):
        token = re.search('name="token" value="([^"]*)"', self.get("near"))[1]
        given = {
            name: value if isinstance(value, list) else [value] for name, value in fields.items()
        }
        found = self.explorer.answer(page, {"token": [token]} | given, posted=True, **self.who)
        return self._take(found, status)

    def _take(self, found, status):
        assert found.status == status, found.body.decode()
        self.page = found
        self.seen = re.sub('<script>"use.*</script>', "", found.body.decode(), flags=re.S)
        return self.seen

    def links(self, page):
        return [
            link.replace("&amp;", "&") for link in re.findall(rf'href="({page}\?[^"]*)"', self.seen)
        ]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "texts.jsonl"
    lines = [{"key": key, "text": text, "day": day} for key, text, day in records()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def database(tmp_path):
    with filled(tmp_path) as database:
        yield database


def filled(folder):
    database = fpdb.create(folder / "crawl.fpdb")
    documents = (fpdb.Document(key, text, {"day": day}) for key, text, day in records())
    with pytest.warns(fpdb.TagsWarning):  # the hostile texts
        list(database.add_many(documents))
    return database


def explored(database, **options):
    explorer = fpdb.Explorer(database, **options)
    wait_for(explorer)
    return explorer


def wait_for(explorer):
    work = explorer._work
    limit = time.monotonic() + 60
    while work.stage and time.monotonic() < limit:
        time.sleep(0.02)
    assert not work.stage
    assert not work.error


@pytest.fixture(scope="module")
def reader(tmp_path_factory, source):
    """Return a visitor that changes nothing, though it could."""
    with (
        filled(tmp_path_factory.mktemp("read")) as database,
        explored(
            database, texts=[str(source)], write=True, reading=fpdb.Reading(date_field="day")
        ) as explorer,
    ):
        yield Visitor(explorer)


@pytest.fixture
def visitor(database, source):
    with explored(database, write=True) as explorer:
        yield Visitor(explorer)


def test_groups_are_filtered_and_sorted(reader):
    assert "how similar its first text and the least similar one are" in reader.get("groups")

    def shown(query):
        seen = reader.get(f"groups?{query}")
        return re.findall(r'class="keys" dir="auto">([^ <]*)', seen)

    edited, copies, han, hostile = (
        "https://a.example/story",
        "https://c.example/0",
        "https://news.example/1",
        "&lt;script&gt;alert(1)&lt;/script&gt;&lt;/style&gt;&lt;/title&gt;&lt;/textarea&gt;&lt;img",
    )
    assert set(shown("")) == {edited, copies, han, hostile}
    assert shown("order=large")[0] == copies
    assert shown("")[-1] == copies
    assert shown("least_size=3") == [copies]
    assert copies not in shown("most_share=99")
    assert shown("least_share=100") == [copies]
    assert shown("host=A.EXAMPLE") == [edited]
    assert shown("host=b.example") == [edited]
    assert shown("most_day=2024-02-01&order=large") == [copies, edited]
    assert set(shown("least_day=2024-02-01")) == {edited, han, hostile}
    assert shown("least_day=nonsense&least_size=x&page=-1&order=?") == shown("")
    assert shown("page=9") == []
    assert shown("least_size=9") == []
    assert "No group fits these limits. " in reader.seen
    assert len(shown("open=1")) == 4
    assert reader.seen.count("<ins>changed </ins>") == 2


def test_groups_that_a_database_keeps_are_shown(tmp_path):
    page = " ".join(WORDS[:100])
    with fpdb.create(tmp_path / "kept.fpdb", groups=True) as database:
        for key, text in {"a": page, "b": "few words here", "c": page + " x"}.items():
            database.add(key, text)
        for key, text in {"d": "few words here", "e": page + " x", "f": WORDS[200]}.items():
            database.add(key, text)
        database.add("a", " ".join(WORDS[300:400]))  # so c is the keeper, and e in its group
        database.add("b", page + " x y")  # which is older than its keeper
        with explored(database) as explorer:
            visitor, groups = Visitor(explorer), explorer._work.findings.groups
            kept = [database.keys_of(groups.ids[groups.rows(at)].tolist()) for at in range(1)]
            assert (kept, len(groups.starts)) == ([["b", "c", "e"]], 1)
            assert [round(least, 1) for least in groups.least] == [1.0, 1.0, 1.0]
            assert groups.texts.tolist() == [2]
            visitor.get("groups")
            seen = visitor.get(visitor.links("group")[0])
    assert "3 documents with 2 different texts" in seen


def test_all_texts_of_a_group_are_compared_with_the_first(tmp_path):
    words, source = WORDS[:300], tmp_path / "chain.jsonl"
    texts = []
    for step in range(4):
        words[step * 70 : step * 70 + 8] = [f"step{step}x{n}" for n in range(8)]
        texts.append(" ".join(words))
    source.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    with fpdb.create(tmp_path / "chain.fpdb") as database:
        fpdb.ingest(database, str(source))
        with explored(database, texts=[str(source)], write=True) as explorer:
            visitor = Visitor(explorer)
            visitor.get("groups")
            [place] = visitor.links("group")
            visitor.get(place)
            tabs = visitor.links("group")
            assert len(tabs) == 3
            assert "step3x7" in visitor.get(tabs[2])
            assert re.findall('href="([^"]*)"[^>]* data-key="p"', visitor.seen) == [
                html.escape(tabs[1])
            ]


def test_a_pair_has_one_number_everywhere(reader):
    """It is exact with the texts; without them, it is marked as an estimate."""
    reader.get("groups?host=a.example")
    listed = re.search('class="share">([^<]*)', reader.seen)[1]
    pair = reader.get(reader.links("group")[0])
    shares = "(?<![\xa0\\d])([0-9]+\xa0%)(?: similar[.] |</td>)"
    assert set(re.findall(shares, pair)) == {listed, "100\xa0%"}
    reader.get("document?key=https://a.example/story")
    assert re.findall("<td>([^<]*%)</td>", reader.seen) == [listed]


def test_a_group_shows_what_differs(reader):
    reader.get("groups?host=a.example")
    seen = reader.get(reader.links("group")[0])
    assert seen.count("<del>word100 </del>") == 2  # in both cells, of which one hides it
    assert seen.count("<ins>changed </ins>") == 2
    assert "equal words ⋯" in seen
    assert re.search("9[0-9]\xa0% similar. ", seen)
    assert "only in the second: 3" in seen
    assert "word99 changed word101" in seen
    reader.get("groups?host=news.example")
    seen = reader.get(reader.links("group")[0])
    assert f"<del>{HAN[300]}</del>" in seen
    assert 'lang="zh"' in seen
    reader.get("groups?host=c.example")
    seen = reader.get(reader.links("group")[0])
    assert "3 documents with 1 different text" in seen
    assert "word379" in seen
    assert "<del>" not in seen


def test_documents_are_listed_by_prefix_and_shown(reader):
    reader.get("documents?prefix=https://c.")
    assert reader.links("document") == [
        f"document?key=https%3A%2F%2Fc.example%2F{copy}" for copy in range(3)
    ]
    reader.get("documents?prefix=https://d")
    seen = reader.get(reader.links("document")[0])
    assert '<dd dir="auto">https://d.example/alone </dd>' in seen
    assert "word799" in seen
    assert "No other document is near." in seen
    seen = reader.get("document?key=https://a.example/story")
    assert reader.links("compare") == [
        "compare?key=https%3A%2F%2Fa.example%2Fstory&other=https%3A%2F%2Fb.example%2Fstory"
    ]
    assert "found no document" in reader.get("document?key=nothing", 404)
    reader.get("nothing", 404)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("D.EXAMPLE alone", "https://d.example/alone "),
        ("word799 D.example", "https://d.example/alone "),
        ("2024-03 红鸢", "https://news.example/2"),
        ("word799 nowhere", None),
    ],
)
def test_words_are_searched_in_keys_metadata_and_texts(reader, words, key):
    page = Tree(reader.get("documents?" + urlencode({"search": words}))).root
    found = [each.text for each in page.all("a", of="name")]
    assert found == ([key] if key else [])
    assert ("No document has it." in reader.seen) == (key is None)


def test_a_search_goes_on_from_page_to_page(visitor, database, monkeypatch):
    monkeypatch.setattr("fpdb.look.visit._SEARCH_SECONDS", 0)
    place, keys = "documents?search=news.example", []
    for _ in range(50):
        visitor.get(place)
        keys += visitor.links("document")
        if "Refresh" not in visitor.page.headers and "Search on" not in visitor.seen:
            break
        place = html.unescape(re.search('<a href="([^"]*)">Search on', visitor.seen)[1])
        refresh = visitor.page.headers.get("Refresh", f"0; url={place}")
        assert refresh == f"0; url={place}"
    assert [key.rpartition("F")[2] for key in keys] == ["1", "2"]


def test_groups_are_saved_as_filtered(reader):
    """The table has the documents of the groups that the page lists, and no formulas."""
    reader.get("groups?least_size=2&order=large")
    [address] = reader.links("table")
    rows = list(csv.DictReader(io.StringIO(reader.get(address).removeprefix("\ufeff"))))
    assert reader.page.headers["Content-Type"] == "text/csv; charset=utf-8"
    sizes = Counter(row["group"] for row in rows)
    assert len(rows) > 4
    assert all(sizes[row["group"]] == int(row["size"]) for row in rows)
    assert {row["key"] for row in rows} <= {key for key, _, _ in records()}
    assert len(list(csv.DictReader(io.StringIO(reader.get("table?least_size=999"))))) == 0


def test_no_cell_of_a_saved_table_is_a_formula(tmp_path):
    signs = "=+-@\t\r\n\0＝＋－＠"
    with fpdb.create(tmp_path / "a.fpdb") as database:
        text = " ".join(WORDS[:60])
        for number, sign in enumerate(signs):
            database.add(f"{number:02}", text, {"title": f"{sign}1+1"})
        with explored(database) as explorer:
            table = Visitor(explorer).get("table")
    rows = list(csv.DictReader(io.StringIO(table.removeprefix("\ufeff"), newline="")))
    assert [row["title"][:2] for row in rows] == [f"'{sign}" for sign in signs]
    for sign in signs:
        assert json.dumps(sign)[1:-1] in program_of("page.js")  # by which a report saves its table


def test_the_parts_of_a_text_are_coloured(tmp_path):
    """The sources of a text come with the largest part first, and each part has a colour."""
    texts = {
        "a": " ".join(WORDS[:90]),
        "b": " ".join(WORDS[200:260]),
        "c": " ".join(WORDS[300:340]),
    }
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps({"id": key, "text": texts[key]}) + "\n" for key in "abc"))
    asked = " ".join([*WORDS[200:250], *WORDS[600:620], *WORDS[10:80]])
    with fpdb.create(tmp_path / "a.fpdb", passages=True) as database:
        fpdb.ingest(database, source)
        for given in ([], [str(source)]):
            with explored(database, texts=given) as explorer:
                visitor = Visitor(explorer)
                page = Tree(visitor.post("near", text=asked, kind="text")).root
                assert re.findall(r'href="document\?key=(.)"', visitor.seen) == ["a", "b"]
                marks = [each.text for box in page.all(of="coloured") for each in box.all("mark")]
                parts = [" ".join(WORDS[200:250]), " ".join(WORDS[10:80])]
                assert marks == (parts if given else [])
                visitor.get("document?key=a")
                assert ("No document has a passage of it." in visitor.seen) == bool(given)


def test_what_is_near_a_text_html_or_a_fingerprint(reader):
    text = " ".join([*WORDS[:50], "other", *WORDS[51:200]])
    seen = reader.post("near", text=text, kind="text")
    assert reader.links("document")[:2] == [
        "document?key=https%3A%2F%2Fa.example%2Fstory",
        "document?key=https%3A%2F%2Fb.example%2Fstory",
    ]
    assert "<del>other </del>" in seen
    seen = reader.post("near", text=text, kind="text", match="https://b.example/story")
    assert "<ins>changed </ins>" in seen
    page = f"<html><body><main><p>{text}</p></main></body></html>"
    assert "<del>other </del>" in reader.post("near", text=page, kind="html")
    number = fpdb.recipe("web").fingerprint(" ".join(WORDS[300:380]))
    seen = reader.post("near", text=f"{number:x}", kind="fingerprint")
    assert len(set(reader.links("document"))) == 3
    reader.post("near", 400, text="no hex", kind="fingerprint")
    assert "No other document is near." in reader.post("near", text="a b c d", kind="text")


def test_hostile_texts_keys_and_metadata_bring_no_markup(reader):
    key = f"{HOSTILE}0"
    for page in ("near", "groups", "documents", "document", "compare"):
        given = {"key": [key], "other": [f"{HOSTILE}1"], "host": [HOSTILE], "prefix": [HOSTILE]}
        seen = reader._take(reader.explorer.answer(page, given, **reader.who), 200)
        check_harmless(seen, reader.page.headers)
    check_harmless(reader.post("near", text=HOSTILE * 3, kind="text"), reader.page.headers)
    seen = reader.post("delete", key=key, which="marked")
    check_harmless(seen, reader.page.headers)
    assert key in unquote(reader.links("document")[0].replace("+", " "))
    reader.get(f"{HOSTILE}?a=b".replace("?", ""), 404)
    check_harmless(reader.seen, reader.page.headers)


def check_harmless(seen, headers):
    outline = Outline(seen)
    assert not {"script", "img", "b>"} & set(outline.elements)
    assert outline.elements["style"] == 1
    named = {name for _, name in outline.attributes}
    assert not {name for name in named if name.startswith("on")} | (named & {"src", "style"})
    assert all(tag == "a" for tag, name in outline.attributes if name == "href")
    assert not re.search('(href|action)="(?!#|[a-z]*(\\?|"))', seen)
    body = seen.partition("</head>")[2]
    shown = re.sub(r'(value|href)="[^"]*"|<textarea.*?</textarea>', "", body, flags=re.S)
    assert shown == visible(shown)
    policy = dict(rule.split(" ", 1) for rule in headers["Content-Security-Policy"].split("; "))
    assert all(policy.pop(f"{kind}-src").startswith("'sha256-") for kind in ("style", "script"))
    assert policy == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
    }


def test_deleted_documents_can_be_brought_back(visitor, database, tmp_path):
    before = {key: database[key] for key in database}
    visitor.get("groups?host=c.example")
    group = dict(parse_qsl(urlsplit(visitor.links("group")[0]).query))["of"]
    keys = [f"https://c.example/{copy}" for copy in range(3)]
    seen = visitor.post("delete", of=group, which="others", key=keys[1])
    assert "Delete 2 documents?" in seen
    assert len(database) == 10
    # Another number than was confirmed asks again.
    visitor.post("delete", of=group, which="others", key=keys[1], sure="3")
    assert len(database) == 10
    seen = visitor.post("delete", of=group, which="others", key=keys[1], sure="2")
    assert sorted(before.keys() - set(database)) == [keys[0], keys[2]]
    [undo] = tmp_path.glob("crawl.fpdb-deleted-*.fpdb.jsonl")
    assert undo.stat().st_mode & 0o777 == 0o600
    assert str(undo) in seen
    assert "There were 10 documents then, and are 8 now." in visitor.get("overview")
    assert "was deleted" in visitor.get(f"group?of={group}", 404)
    fpdb.load(database.path, str(undo))
    for key in keys:
        assert database[key].sketch == before[key].sketch
        assert database[key].added == before[key].added
        assert database[key].meta == before[key].meta
    visitor.post("delete", key=keys[0], which="marked", sure="1")
    assert keys[0] not in database
    assert "no document is marked" in visitor.post("delete", 400, of=group, which="others")


def test_many_documents_are_deleted_in_steps(visitor, database, tmp_path, monkeypatch):
    monkeypatch.setattr("fpdb.look.explorer._DELETED", 2)
    keys = [f"https://c.example/{copy}" for copy in range(3)]
    group = str(database[keys[0]].id)
    more = {"of": group, "which": "others", "key": "https://a.example/story"}
    assert "Of 3, a step deletes 2" in visitor.post("delete", **more)
    assert "2 documents deleted" in visitor.post("delete", **more, sure="2")
    assert "Delete 1 document?" in visitor.post("delete", **more)
    assert "1 document deleted" in visitor.post("delete", **more, sure="1")
    assert not {*keys} & {*database}
    assert len(list(tmp_path.glob("crawl.fpdb-deleted-*"))) == 2


def test_a_form_needs_the_token_of_its_session(reader):
    token = re.search('name="token" value="([^"]*)"', reader.get("near"))[1]
    fields = {"key": ["https://a.example/story"], "which": ["marked"], "sure": ["1"]}
    for page in ("delete", "near", "again"):
        for session, given in (("mine", ""), ("mine", "é"), ("other", token)):
            found = reader.explorer.answer(
                page, fields | {"token": [given]}, session=session, posted=True, may_write=True
            )
            assert found.status == 403
    assert reader.explorer.answer("delete", fields, session="mine", may_write=True).status == 404
    reader.get("document?key=https://a.example/story")


def test_without_write_nothing_changes(database, source):
    explorer = explored(database, texts=[str(source)])
    for explorer_writes, may_write in ((False, True), (True, False)):
        if explorer_writes:
            explorer.close()
            explorer = explored(database, write=True)
        visitor = Visitor(explorer, may_write=may_write)
        visitor.post("delete", 403, key="https://a.example/story", which="marked", sure="1")
        assert "Delete" not in visitor.get("document?key=https://a.example/story")
    explorer.close()
    assert len(database) == 10
    assert list(database.path.parent.iterdir()) == [database.path]


def test_texts_that_changed_or_are_missing(database, tmp_path):
    lines = [
        {"key": "https://a.example/story", "text": "something else"},
        {"key": "https://c.example/0", "text": "an older version"},
        {"key": "https://c.example/0", "text": " ".join(WORDS[300:380])},
    ]
    source = tmp_path / "texts.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines) + "no record\n")
    explorer = explored(database, texts=[str(source)])
    visitor = Visitor(explorer)
    assert "The text has changed since" in visitor.get("document?key=https://a.example/story")
    assert "The text isn&#x27;t there." in visitor.get("document?key=https://b.example/story")
    seen = visitor.get("document?key=https://c.example/0")
    assert "word379" in seen
    assert "has changed" not in seen
    explorer.close()
    explorer = explored(database)
    assert "No texts were given" in Visitor(explorer).get("document?key=https://c.example/0")
    explorer.close()


def test_a_database_of_bits_with_integer_keys(tmp_path):
    numbers = [3, 1, 0, 0xFF << 56, 0xFF << 56, (1 << 40) - 1]
    with fpdb.create(tmp_path / "bits.fpdb", similarity=None, k=3, keys="integer") as database:
        database.add_fingerprints(range(10, 16), np.array(numbers, np.uint64))
        explorer = explored(database, write=True)
        visitor = Visitor(explorer)
        seen = visitor.get("")
        assert "Documents by distance. 0: 3; 1: 1; 2: 1" in seen
        visitor.get("groups")
        assert len(visitor.links("group")) == 2
        assert "2 bits" in visitor.seen
        seen = visitor.get("group?of=12")
        assert re.findall(r"<td>(\d)</td><td><a href=.compare", seen) == ["1", "2"]
        visitor.get("documents?prefix=13")
        assert visitor.links("document") == [f"document?key={key}" for key in (13, 14, 15)]
        assert "differ in 1 of 64 bits" in visitor.get("compare?key=10&other=11")
        visitor.post("near", text="1", kind="fingerprint")
        assert visitor.links("document")[0] == "document?key=11"
        explorer.close()


def test_ids_are_whole_numbers_of_any_size(tmp_path):
    last = (1 << 64) - 1
    with fpdb.create(tmp_path / "ids.fpdb", keys="integer") as database:
        for key in (1 << 60, (1 << 60) + 1, last - 1, last):
            database.add(key, " ".join(WORDS[:50] if key < 1 << 61 else WORDS[50:100]))
        with explored(database, write=True) as explorer:
            visitor = Visitor(explorer)
            visitor.get("groups")
            links = visitor.links("group")
            assert sorted(links) == [f"group?of={1 << 60}", f"group?of={last - 1}"]
            for link in links:
                assert "2 documents with 1 different text" in visitor.get(link)
            strange = ("", "x", "-1", "1.5", "nan", "1e400", str(1 << 64), "9" * 5000, "\ud800")
            for of in ("group", *(f"group?of={each}" for each in strange)):
                assert "found no group of this document" in visitor.get(of, 404)
            for page in strange:
                assert visitor.get(f"groups?page={page}")
                assert visitor.get(f"{links[0]}&page={page}")
            of = str(last - 1)
            for given in (of, "x"):
                more = {"which": "others", "key": of}
                seen = visitor.post("delete", 200 if given == of else 404, of=given, **more)
                assert given != of or f"document?key={last}" in seen


def test_groups_are_looked_for_again(visitor, database):
    database.add("https://d.example/copy", " ".join(WORDS[700:800]))
    visitor.post("again", 303)
    wait_for(visitor.explorer)
    assert "<b>5</b> <span>groups</span>" in visitor.get("")
