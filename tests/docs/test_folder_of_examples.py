"""The folder `examples`: each does what its README says."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import sites

import fpdb

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
STORY = " ".join(f"word{place} of the story" for place in range(60))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


STORIES, MIRRORED, PRINTED = 24, 8, 12
# Every page has these, and so much of them that they outweigh most stories.
STYLE = "".join(f".box-{n} {{ margin: {n}px; padding: {n % 7}em }}\n" for n in range(150))
SCRIPT = "".join(f'track("event-{n}", {{page: {n}, kind: "view"}});\n' for n in range(150))


def pages_of_paper():
    """Return the pages of a site by their names: stories, mirrors, print versions, a first page."""
    writer, pages = sites.Writer(random.Random(1)), {}

    def add(kind, number, text, design):
        content = f"<style>{STYLE}</style><script>{SCRIPT}</script><h1>Story {number}</h1>{text}"
        pages[f"{kind}/{number}"] = sites.page(kind, content, sites.NEWS_NOTICE, design)

    for number in range(STORIES):
        paragraphs = [writer.sentences(3, 3) for _ in range(writer.dice.randint(2, 6))]
        add("story", number, sites.tagged(paragraphs, "p"), "semantic")
        if number < MIRRORED:
            added = "This text appeared on another site before it came here, a week ago."
            add("mirror", number, sites.tagged([*paragraphs, added], "p"), "semantic")
        if number < PRINTED:
            add("print", number, "<br><br>\n".join(paragraphs), "named")
    listed = "".join(f'<li><a href="/{name}.html">{name}</a></li>' for name in pages)
    pages["index"] = f"<html><body><ul>{listed}</ul></body></html>"
    return pages


def require_right(copies):
    """Each mirror, print version or their original is a copy, and no other page of the paper."""
    assert len(copies) == MIRRORED + PRINTED
    numbers = [[re.search("[0-9]+[.]html", url)[0] for url in pair] for pair in copies.items()]
    assert all(number == other for number, other in numbers)
    assert not copies.keys() & set(copies.values())


@pytest.fixture
def serve(tmp_path):
    """What serves pages by their names, and returns the address of the site."""
    started = []

    def start(pages):
        folder = tmp_path / "site"
        for name, page in pages.items():
            file = folder / f"{name}.html"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(page)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.fixture
def site(tmp_path, serve):
    """The address of three pages, two of which are near-duplicates, and of links to no pages."""
    texts = {"a": STORY, "b": f"{STORY} and its end"}
    others = ("mailto:a@b.example", "http://[/", "/gone.html", "/bytes", "http://localhost:1/")
    links = "".join(f'<a href="{link}">other</a> ' for link in others)
    texts["index"] = f'{links}<a href="/a.html#top">one</a> <a href="/b.html">two</a>'
    pages = {name: f"<html><body><p>{text}</p></body></html>" for name, text in texts.items()}
    address = serve(pages)
    (tmp_path / "site" / "bytes").write_bytes(bytes(range(256)))
    return address


def run(folder, *command):
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_corpus_is_cleaned(tmp_path):
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "fpdb").write_text(f'#!/bin/sh\nexec {sys.executable} -m fpdb "$@"\n')
    (commands / "fpdb").chmod(0o755)
    script = f'PATH="{commands}:$PATH" "{ROOT}/examples/clean_corpus.sh" "$0" clean.jsonl'
    run(tmp_path, "bash", "-c", script, ROOT / "sample" / "pages.jsonl")
    assert len((tmp_path / "clean.jsonl").read_text().splitlines()) == 2
    assert len((tmp_path / "clean.jsonl.removed.jsonl").read_text().splitlines()) == 2
    assert "<html" in (tmp_path / "clean.jsonl.html").read_text()


def crawl(folder, site, name="asyncio_crawler"):
    """Crawl with a program of the folder; return what it prints, each line as words."""
    crawler = ROOT / "examples" / f"{name}.py"
    out = run(folder, sys.executable, crawler, site, "crawl.fpdb")
    return [line.split() for line in out.splitlines()]


def scrape(folder, site):
    """Crawl with the project of Scrapy; return the items."""
    project = folder / "project"
    shutil.copytree(ROOT / "examples" / "scrapy_project", project)
    options = ["crawl", "pages", "-a", f"start={site}", "-o", "items.jsonl"]
    run(project, sys.executable, "-m", "scrapy", *options)
    return [json.loads(line) for line in (project / "items.jsonl").read_text().splitlines()]


def test_a_crawler_without_a_framework_stores_each_page_once(tmp_path, site):
    lines = crawl(tmp_path, site)
    assert sorted(status for status, *_ in lines) == ["added", "duplicate", "short"]
    with fpdb.open(tmp_path / "crawl.fpdb") as db:
        assert len(db) == 2


def test_a_crawler_without_a_framework_finds_copies_in_other_templates(tmp_path, serve):
    pages = pages_of_paper()
    lines = crawl(tmp_path, serve(pages))
    assert len(lines) == len(pages)
    require_right({line[1]: line[2] for line in lines if line[0] == "duplicate"})


@pytest.mark.full
def test_a_crawler_of_crawlee_finds_copies_in_other_templates(tmp_path, serve):
    pages = pages_of_paper()
    lines = crawl(tmp_path, serve(pages), "crawlee_crawler")
    assert len(lines) == len(pages)
    require_right({line[1]: line[2] for line in lines if line[0] == "duplicate"})


def test_the_project_of_scrapy_finds_copies_in_other_templates(tmp_path, serve):
    pages = pages_of_paper()
    items = scrape(tmp_path, serve(pages))
    assert len(items) == len(pages)
    tagged = [item for item in items if "near_duplicate_of" in item]
    require_right({item["url"]: item["near_duplicate_of"] for item in tagged})
