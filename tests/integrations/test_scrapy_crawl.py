"""The real Scrapy crawls a real web site, with fpdb's pipeline."""

import importlib.util
import json
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tiers import of_gate
from waiting import wait_for

import fpdb

pytestmark = pytest.mark.process

of_gate("scrapy")

SECONDS = 120


def load_site():
    spec = importlib.util.spec_from_file_location("crawled_site", Path(__file__).parent / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site = load_site()

SPIDER = """
import json
import scrapy


class PageSpider(scrapy.Spider):
    name = "pages"
    custom_settings = {
        "ITEM_PIPELINES": {"fpdb.integrations.scrapy.NearDuplicatesPipeline": 300},
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "INFO",
    }

    async def start(self):
        for request in self.start_requests():
            yield request

    def start_requests(self):
        yield scrapy.Request(self.site, self.parse)

    def parse(self, response):
        for link in response.css("a::attr(href)"):
            yield response.follow(link, self.parse_page)

    def parse_page(self, response):
        yield {"url": response.url, "text": " ".join(response.css("body ::text").getall())}

    def closed(self, reason):
        found = {k: v for k, v in self.crawler.stats.get_stats().items() if k.startswith("fpdb/")}
        with open(self.report, "w") as file:
            json.dump(found, file)
"""


class Crawl:
    """A crawl in a process of its own."""

    def __init__(self, scrapy, folder, url, database):
        self.items_file = folder / "crawl.jsonl"
        self.report = folder / "crawl.json"
        script = folder / "pages.py"
        script.write_text(SPIDER)
        command = [scrapy, "runspider", script, "-o", self.items_file]
        command += ["-s", f"FPDB_DATABASE={database}"]
        command += ["-a", f"site={url}", "-a", f"report={self.report}"]
        self.process = subprocess.Popen(
            list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def finish(self):
        out, _ = self.process.communicate(timeout=SECONDS)
        self.log = out.decode()
        return self.process.returncode

    @property
    def stats(self):
        return json.loads(self.report.read_text())

    @property
    def items(self):
        return [json.loads(line) for line in self.items_file.read_text().splitlines()]


@pytest.fixture
def crawl(tmp_path, warm_commands):
    started = []

    def start(url, database):
        started.append(Crawl(warm_commands / "scrapy", tmp_path, url, database))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


def text_number(url):
    """Tell which article a page shows."""
    parts = url.split("?")[0].split("/")
    return parts[-1] if parts[-1].isdigit() else url


def require_sound(path, articles):
    """Each article is stored once, under one of its addresses, and the database is whole."""
    with fpdb.open(path, readonly=True) as database:
        assert not list(database.check())
        stored = Counter(text_number(key) for key in database)
    assert {key: n for key, n in stored.items() if key.isdigit()} == {
        str(n): 1 for n in range(articles)
    }
    return stored


def test_an_interrupted_crawl_closes_the_database(crawl, path):
    with site.Site(articles=40, delay=0.05) as served:
        found = crawl(served.url, path)
        wait_for(lambda: served.requests >= 20)
        found.process.send_signal(signal.SIGINT)
        found.finish()
    assert "Spider closed (shutdown)" in found.log
    assert "Traceback" not in found.log
    counted = sum(found.stats.values())
    assert 0 < counted < len(served.links)
    with fpdb.open(path) as database:
        assert not list(database.check())
        assert len(database) == found.stats["fpdb/added"] + found.stats.get("fpdb/short", 0)


def test_a_crawl_goes_on_while_its_database_is_compacted(crawl, path):
    with site.Site(articles=40, delay=0.05) as served:
        found = crawl(served.url, path)
        for requests in (20, 60, 100):
            wait_for(lambda: served.requests >= requests)  # noqa: B023
            with fpdb.open(path) as database:
                database.compact()
        assert found.finish() == 0, found.log
    assert "fpdb/failed" not in found.stats
    assert found.stats["fpdb/added"] == 41
    assert found.log.count("was replaced, and is open again") == 3
    assert "ERROR" not in found.log
    require_sound(path, 40)
