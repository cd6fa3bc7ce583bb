"""The pipeline by itself: its settings, and all kinds of items."""

import asyncio
import dataclasses
import logging
import random

import pytest
from tiers import of_gate

import fpdb

(scrapy,) = of_gate("scrapy")

from fpdb.integrations.scrapy import NearDuplicatesPipeline  # noqa: E402

TEXT = "Red kites nest above the quarry again: wardens counted eleven pairs in April, four more."


def said_by_pipeline(caplog):
    return [each for each in caplog.records if each.name == "fpdb.integrations.scrapy"]


class Stats(dict):
    def inc_value(self, name):
        self[name] = self.get(name, 0) + 1


class FakeCrawler:
    """Has what a pipeline looks at."""

    def __init__(self, **settings):
        from scrapy.settings import Settings

        self.settings = Settings(settings)
        self.stats = Stats()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


def process(path, items, **settings):
    """Bring items through a pipeline, one after the other; give what came out, and the counts."""
    crawler = FakeCrawler(FPDB_DATABASE=str(path), **settings)
    pipeline = NearDuplicatesPipeline.from_crawler(crawler)

    async def run():
        pipeline.open_spider()
        out = []
        for item in items:
            try:
                out.append(await pipeline.process_item(item))
            except scrapy.exceptions.DropItem as error:
                out.append(str(error))
        await pipeline.close_spider()
        return out

    return asyncio.run(run()), crawler.stats


@dataclasses.dataclass
class Page:
    url: str
    text: str
    near_duplicate_of: str | None = None


class Item(scrapy.Item):
    url = scrapy.Field()
    text = scrapy.Field()
    near_duplicate_of = scrapy.Field()


@pytest.mark.parametrize("make", [dict, Page, Item])
def test_every_kind_of_item_is_tagged(path, make):
    items = [make(url=url, text=TEXT) for url in ("a", "b")]
    (first, second), stats = process(path, items)
    assert first is items[0]
    assert second is items[1]
    tag = second.near_duplicate_of if make is Page else second["near_duplicate_of"]
    assert tag == "a"
    assert stats == {"fpdb/added": 1, "fpdb/duplicate": 1}


def test_empty_pages_pass_and_are_no_duplicates(path):
    texts = ["", "", "Please wait", "please wait", "Please wait"]
    texts += ["Page not found.", "page NOT found"]
    items = [{"url": f"u{number}", "text": text} for number, text in enumerate(texts)]
    out, stats = process(path, items)
    assert [item.get("near_duplicate_of") for item in out] == [None] * 4 + ["u2", None, "u5"]
    assert stats == {"fpdb/unusable": 2, "fpdb/short": 3, "fpdb/duplicate": 2}


def test_an_item_that_has_no_field_for_the_tag_passes_and_that_is_said_once(path, caplog):
    class Bare(scrapy.Item):
        url = scrapy.Field()
        text = scrapy.Field()

    items = [Bare(url=url, text=TEXT) for url in ("a", "b", "c")]
    out, stats = process(path, items)
    assert out == items
    assert stats == {"fpdb/added": 1, "fpdb/duplicate": 2, "fpdb/untagged": 2}
    [said] = [each for each in said_by_pipeline(caplog) if each.levelno >= logging.ERROR]
    assert "Bare have no field near_duplicate_of" in said.getMessage()


def test_an_incomplete_search_is_counted_and_warned_of_once(path, caplog, monkeypatch):
    monkeypatch.setattr("fpdb.documents.lookup.CANDIDATES", 100)
    with fpdb.create(path, similarity=None) as database:
        number = database.recipe.fingerprint(TEXT)
        crowd = [number ^ (0x9E3779B97F4A7C15 * n) % 2**48 for n in range(1, 1000)]
        database.add_fingerprints([f"c{n}" for n in range(len(crowd))], crowd)
        # Only a table other than that of the crowd finds it.
        database.add_fingerprints(["original"], [number ^ (1 << 63 | 1)])
    texts = {"a": TEXT, "b": TEXT}
    items = [{"url": url, "text": text} for url, text in texts.items()]
    out, stats = process(path, items)
    assert [item.get("near_duplicate_of") for item in out] == ["original", "original"]
    assert stats == {"fpdb/duplicate": 2, "fpdb/incomplete": 2}
    [said] = [each for each in said_by_pipeline(caplog) if each.levelno >= logging.WARNING]
    assert said.levelno == logging.WARNING
    assert "near-duplicates of a was incomplete" in said.getMessage()


def test_an_item_that_was_seen_before_is_no_duplicate_of_itself(path):
    process(path, [{"url": "a", "text": TEXT}])
    (again, changed), stats = process(
        path, [{"url": "a", "text": TEXT}, {"url": "a", "text": TEXT.upper() + " And more."}]
    )
    assert "near_duplicate_of" not in again | changed
    assert stats == {"fpdb/unchanged": 1, "fpdb/replaced": 1}


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"url": "a", "text": " \n"},
        {"url": "a", "text": None},
        {"url": "a", "text": b"bytes"},
        {"url": "a", "text": [7]},
        {"url": None, "text": TEXT},
        {"text": TEXT},
        {"url": "a" * 100_000, "text": TEXT},
    ],
)
def test_an_item_that_cannot_be_used_is_counted_and_passed_on(path, item):
    for action in ("tag", "drop"):
        (out,), stats = process(path, [item], FPDB_ACTION=action)
        assert out is item
        assert stats == {"fpdb/unusable": 1}


def test_the_lists_of_an_item_loader_are_joined(path):
    words = TEXT.split()
    items = [
        {"url": ["a", "other"], "text": [" ".join(words[:7]), " ".join(words[7:])]},
        {"url": "b", "text": TEXT},
    ]
    (_, second), _ = process(path, items, FPDB_TAG_FIELD="copy_of")
    assert second == {**items[1], "copy_of": "a"}


def test_several_fields_other_names_and_dropping(path):
    items = [
        {"link": "a", "title": TEXT[:40], "body": TEXT[40:]},
        {"link": "b", "title": TEXT[:40], "body": TEXT[40:]},
        {"link": "c", "title": "", "body": TEXT[40:]},
    ]
    names = {"FPDB_FIELD": ["title", "body"], "FPDB_KEY_FIELD": "link", "FPDB_ACTION": "drop"}
    (first, second, _), _ = process(path, items, **names)
    assert first is items[0]
    assert second == "Near-duplicate of a (similarity 1.00)"
    with fpdb.open(path) as database:
        [match] = database.query(f"{TEXT[:40]}\n{TEXT[40:]}")
        assert (match.key, match.distance) == ("a", 0)


def test_recipe_and_k_are_those_of_the_new_database(path):
    process(path, [], FPDB_RECIPE="char-4", FPDB_K="5")
    with fpdb.open(path) as database:
        assert (database.recipe.name, database.k) == ("char-4", 5)
    process(path, [])  # what is left out is what is stored
    with pytest.raises(fpdb.RecipeMismatchError, match="char-4"):
        process(path, [], FPDB_RECIPE="web")
    with pytest.raises(fpdb.RecipeMismatchError, match="k=5"):
        process(path, [], FPDB_K=3)


@pytest.mark.process
def test_html_and_responses_are_read(path):
    page = f"<html><body><nav>Home</nav><main><p>{TEXT}</p></main></body></html>"
    chinese = "国务院今天发布了关于放假的通知，全国各地放假三天，请大家注意安全出行，遵守交通规则"
    response = scrapy.http.HtmlResponse(
        "http://a.example/",
        body=f"<html><body><p>{chinese}</p></body></html>".encode("gb18030"),
        headers={"Content-Type": "text/html; charset=gb18030"},
    )
    items = [
        {"url": "a", "text": page},
        {"url": "b", "text": page.replace("<main>", "<main class=x>").encode()},
        {"url": "c", "text": response},
        {"url": "d", "text": [f"<p>{chinese}</p>"]},
        {"url": "e", "text": 7},
        {"url": "f", "text": "<script>nothing()</script>"},
        {"url": "g"},
    ]
    out, stats = process(path, items, FPDB_MARKUP="html")
    assert [item.get("near_duplicate_of") for item in out] == [None, "a", None, "c", *[None] * 3]
    assert stats == {"fpdb/added": 2, "fpdb/duplicate": 2, "fpdb/unusable": 3}


@pytest.mark.parametrize(("first", "then"), [("off", "0.8"), ("0.8", "off")])
def test_a_similarity_fits_a_database_that_keeps_sketches_only(path, first, then):
    process(path, [], FPDB_SIMILARITY=first)
    with pytest.raises(fpdb.RecipeMismatchError, match=f"similarity {first}, found .* = {then}"):
        process(path, [], FPDB_SIMILARITY=then)
    process(path, [])


def test_the_similarity_of_a_crawl_may_differ_from_that_of_the_database(path):
    words = [f"word{place}" for place in range(300)]
    texts = [words, [*words[:240], *(f"new{n}" for n in range(60))]]
    items = [{"url": str(place), "text": " ".join(each)} for place, each in enumerate(texts)]
    (_, second), _ = process(path, items)
    assert "near_duplicate_of" not in second
    (again,), _ = process(path, [{**items[1], "url": "again"}], FPDB_SIMILARITY=0.95)
    assert again["near_duplicate_of"] == "1"


WORDS = [f"word{place}" for place in range(130)]
STORED = {"a": " ".join(WORDS)}


def text_of(key):
    """Return the text of a stored item, as a project would; FPDB_TEXTS names this function."""
    return STORED.get(key)


def broken(key):
    raise OSError("the archive is away")


@pytest.mark.parametrize("texts", [text_of, f"{__name__}.text_of", None])
def test_items_are_compared_with_the_texts_of_a_project(path, texts):
    """Of many texts that seem to be similar enough, those that aren't are stored."""
    dice = random.Random(2)
    edited = []
    for number in range(40):
        words = list(WORDS)
        for place in dice.sample(range(130), 5):
            words[place] = f"changed{number}x{place}"
        edited.append({"url": str(number), "text": " ".join(words)})
    sets = [
        set(zip(words, words[1:], words[2:], strict=False))
        for words in (each["text"].split() for each in [{"text": STORED["a"]}, *edited])
    ]
    exact = [len(sets[0] & each) / len(sets[0] | each) >= 0.8 for each in sets[1:]]
    found = []
    for number, item in enumerate(edited):
        settings = {} if texts is None else {"FPDB_TEXTS": texts}
        place = path.with_name(f"{number}.fpdb")
        (_, second), _ = process(place, [{"url": "a", "text": STORED["a"]}, item], **settings)
        found.append(second.get("near_duplicate_of") == "a")
    assert (found == exact) == (texts is not None)


def test_items_are_estimated_if_the_texts_of_a_project_fail(path, caplog):
    items = [{"url": "a", "text": STORED["a"]}, {"url": "b", "text": STORED["a"] + " more"}]
    (_, second), stats = process(path, items, FPDB_TEXTS=broken)
    assert second["near_duplicate_of"] == "a"
    assert stats == {"fpdb/added": 1, "fpdb/duplicate": 1}
    [said] = [each for each in said_by_pipeline(caplog) if each.levelno == logging.ERROR]
    assert "FPDB_TEXTS fails" in said.getMessage()
    assert "the archive is away" in said.exc_text


def test_an_item_names_the_sources_of_its_parts(path):
    words = [f"word{place}" for place in range(300)]
    texts = [words[:200], [*words[100:200], *(f"new{n}" for n in range(100))], words[:199]]
    items = [{"url": str(place), "text": " ".join(each)} for place, each in enumerate(texts)]
    parts = {"FPDB_PASSAGES_FIELD": "parts"}
    (first, second, third), stats = process(path, items, **parts)
    assert "parts" not in first
    assert "near_duplicate_of" not in second
    [source] = second["parts"]
    assert (source["key"], source["words"]) == ("0", pytest.approx(100, abs=12))
    assert third["near_duplicate_of"] == "0"
    assert [source["key"] for source in third["parts"]] == ["0", "1"]
    assert stats == {"fpdb/added": 2, "fpdb/duplicate": 1, "fpdb/copied": 2}
    (again,), _ = process(path, [dict(items[1], parts=None)], **parts, FPDB_LEAST=0.9)
    assert again["parts"] is None
    ([dropped], _) = process(path, items[2:], **parts, FPDB_ACTION="drop")
    assert "Near-duplicate of 0" in dropped
    with fpdb.open(path, readonly=True) as database:
        assert not list(database.check())


def test_sources_are_found_in_a_database_that_was_replaced_just_now(path, monkeypatch):
    genuine, replaced = fpdb.Database.passages, []

    def after_a_compaction(self, text, **options):
        if text and not replaced:
            with fpdb.open(self.path) as other:
                other.compact()
            replaced.append(text)
        return genuine(self, text, **options)

    monkeypatch.setattr(fpdb.Database, "passages", after_a_compaction)
    words = [f"word{place}" for place in range(300)]
    items = [{"url": "a", "text": " ".join(words)}, {"url": "b", "text": " ".join(words[:150])}]
    (_, second), stats = process(path, items, FPDB_PASSAGES_FIELD="parts")
    assert [source["key"] for source in second["parts"]] == ["a"]
    assert (stats, len(replaced)) == ({"fpdb/added": 2, "fpdb/copied": 1}, 1)


def test_a_database_without_passages_is_an_error_at_once(path):
    process(path, [])
    with pytest.raises(fpdb.InputError, match="keeps no passages"):
        process(path, [], FPDB_PASSAGES_FIELD="parts")


def test_integer_keys(path):
    with fpdb.create(path, keys="integer"):
        pass
    (_, second, _), stats = process(
        path, [{"url": 7, "text": TEXT}, {"url": 8, "text": TEXT}, {"url": "x", "text": TEXT}]
    )
    assert second["near_duplicate_of"] == 7
    assert stats["fpdb/unusable"] == 1


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({"FPDB_DATABASE": 7}, fpdb.InputError, "FPDB_DATABASE = 7"),
        ({"FPDB_ACTION": "burn"}, fpdb.InputError, "one of tag, drop"),
        ({"FPDB_K": "many"}, fpdb.InputError, "FPDB_K = 'many'"),
        ({"FPDB_SIMILARITY": "much"}, fpdb.InputError, "FPDB_SIMILARITY = 'much'"),
        ({"FPDB_FIELD": [7]}, fpdb.InputError, "FPDB_FIELD"),
        ({"FPDB_TEXTS": "nothing.there"}, fpdb.InputError, "FPDB_TEXTS = 'nothing.there'"),
        ({"FPDB_TEXTS": "fpdb.nothing"}, fpdb.InputError, "or its dotted path"),
        ({"FPDB_TEXTS": 7}, fpdb.InputError, "FPDB_TEXTS = 7"),
        (
            {"FPDB_DATABASE": "http://a.example", "FPDB_TEXTS": text_of},
            fpdb.InputError,
            "FPDB_TEXTS, expected none of them with a server",
        ),
        ({"FPDB_RECIPE": "wbe"}, fpdb.RecipeError, "'wbe'"),
        ({"FPDB_DATABASE": __file__}, fpdb.FpdbError, "test_scrapy_pipeline"),
    ],
)
def test_a_wrong_setting_is_an_error_at_once(path, settings, error, said):
    crawler = FakeCrawler(**({"FPDB_DATABASE": str(path)} | settings))
    with pytest.raises(error, match=said) as raised:
        NearDuplicatesPipeline.from_crawler(crawler)
    assert raised.value.hint
    assert not path.exists()


def test_another_reactor_than_that_of_asyncio_is_refused(path):
    pipeline = NearDuplicatesPipeline.from_crawler(FakeCrawler(FPDB_DATABASE=str(path)))
    with pytest.raises(fpdb.InputError, match="a reactor without asyncio"):
        pipeline.open_spider()


def test_a_database_that_fails_lets_items_pass_and_says_so_once(path, caplog, monkeypatch):
    def fail(*_, **__):
        raise fpdb.LockTimeoutError("no write lock", hint="wait")

    monkeypatch.setattr(fpdb.Database, "add_prepared", fail)
    items = [{"url": url, "text": TEXT} for url in ("a", "b")]
    out, stats = process(path, items)
    assert out == items
    assert stats == {"fpdb/failed": 2}
    [said] = [each for each in said_by_pipeline(caplog) if each.levelno >= logging.ERROR]
    assert "no write lock; wait" in said.getMessage()


class FakeServer:
    """Has what the pipeline calls of a server."""

    key_type = "text"
    patient = None

    def __init__(self, address, token, *, patient):
        type(self).patient = patient
        self.fails = token == "fails"

    def add(self, documents):
        if self.fails:
            return [fpdb.OpenError("the server doesn't answer")] * len(documents)
        return [fpdb.Added(each.key, None, "added", fpdb.Matches()) for each in documents]

    def passages(self, text, *, least, limit):
        return [
            fpdb.models.PartMatch(key, 0, 9, least, 0.4, None) for key in "abcdefghijkl"[:limit]
        ]

    def close(self):
        pass


@pytest.mark.parametrize("away", ["wait", "pass", "fail"])
def test_the_database_may_be_a_server(monkeypatch, away):
    monkeypatch.setattr("fpdb.integrations.scrapy.Remote", FakeServer)
    items = [{"url": url, "text": TEXT} for url in ("a", "b")]
    out, stats = process("http://127.0.0.1:7373", items, FPDB_AWAY=away)
    assert (out, stats) == (items, {"fpdb/added": 2})
    assert FakeServer.patient == (away == "wait")


def test_a_server_names_at_most_ten_sources_of_an_item(monkeypatch):
    monkeypatch.setattr("fpdb.integrations.scrapy.Remote", FakeServer)
    items = [{"url": "c", "text": TEXT}]
    ([item], _) = process("unix:sock", items, FPDB_PASSAGES_FIELD="parts", FPDB_LEAST=0.3)
    assert [part["key"] for part in item["parts"]] == list("abdefghijk")
    assert item["parts"][0] == {"key": "a", "words": 9, "share": 0.3, "other_share": 0.4}


@pytest.mark.parametrize("away", ["pass", "fail"])
def test_items_pass_while_the_server_is_away(monkeypatch, away):
    closed = []

    class Engine:
        async def close_spider_async(self, *, reason):
            closed.append(reason)

    monkeypatch.setattr("fpdb.integrations.scrapy.Remote", FakeServer)
    monkeypatch.setattr(FakeCrawler, "engine", Engine(), raising=False)
    items = [{"url": url, "text": TEXT} for url in ("a", "b")]
    out, stats = process("unix:sock", items, FPDB_AWAY=away, FPDB_TOKEN="fails")
    assert (out, stats) == (items, {"fpdb/failed": 2})
    assert closed == (["fpdb_failed"] if away == "fail" else [])


def test_a_server_has_settings_of_its_own():
    with pytest.raises(fpdb.InputError, match="none of them with a server"):
        process("http://127.0.0.1:7373", [], FPDB_K=3)


def test_the_pipeline_can_be_turned_off(path):
    with pytest.raises(scrapy.exceptions.NotConfigured):
        process(path, [], FPDB_ENABLED="0")
    assert not path.exists()
    with pytest.raises(fpdb.InputError, match="FPDB_ENABLED = 'perhaps'"):
        process(path, [], FPDB_ENABLED="perhaps")


def test_a_reset_forgets_what_is_stored(path):
    items = [{"url": "a", "text": TEXT}]
    process(path, items, FPDB_RECIPE="char-4")
    _, stats = process(path, [{"url": "b", "text": TEXT}], FPDB_RESET="1", FPDB_RECIPE="web")
    assert stats == {"fpdb/added": 1}
    with fpdb.open(path) as db:
        assert list(db) == ["b"]
