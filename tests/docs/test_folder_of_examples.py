"""The folder `examples`: each does what its README says."""

import json
import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import fpdb

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
STORY = " ".join(f"word{place} of the story" for place in range(60))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path):
    """The address of three pages, two of which are near-duplicates, and of links to no pages."""
    folder = tmp_path / "site"
    folder.mkdir()
    texts = {"a": STORY, "b": f"{STORY} and its end"}
    others = ("mailto:a@b.example", "http://[/", "/gone.html", "/bytes", "http://localhost:1/")
    links = "".join(f'<a href="{link}">other</a> ' for link in others)
    texts["index"] = f'{links}<a href="/a.html#top">one</a> <a href="/b.html">two</a>'
    (folder / "bytes").write_bytes(bytes(range(256)))
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(f"<html><body><p>{text}</p></body></html>")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


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


def test_a_crawler_without_a_framework_stores_each_page_once(tmp_path, site):
    out = run(
        tmp_path, sys.executable, ROOT / "examples" / "asyncio_crawler.py", site, "crawl.fpdb"
    )
    assert sorted(line.split()[0] for line in out.splitlines()) == ["added", "duplicate", "short"]
    with fpdb.open(tmp_path / "crawl.fpdb") as db:
        assert len(db) == 2


def test_the_project_of_scrapy_tags_duplicates(tmp_path, site):
    pytest.importorskip("scrapy", reason="scrapy isn't installed")
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / "scrapy_project", project)
    options = ["crawl", "pages", "-a", f"start={site}", "-o", "items.jsonl"]
    run(project, sys.executable, "-m", "scrapy", *options)
    assert (project / "items.jsonl").read_text().count("\n") == 3
    items = [json.loads(line) for line in (project / "items.jsonl").read_text().splitlines()]
    assert sum("near_duplicate_of" in item for item in items) == 1
