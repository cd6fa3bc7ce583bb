"""A library of news as TSV, as an older script kept it: url, title, content and fingerprint."""

import pytest

import fpdb

STORIES = {
    "http://n.example/1": ("国务院 发布 通知", "国务院 今天 发布 关于 放假 的 通知 放假 三天"),
    "http://n.example/2": ("the cat", "the cat sat on the mat"),
    "http://n.example/3": ("", "a"),
    "http://n.example/4": ("天气", "今天 北京 晴 最高 气温 三十 度 明天 有 小 雨"),
}
FINGERPRINTS = {
    "http://n.example/1": 0x5EAE6CB0CB7DBD17,
    "http://n.example/2": 0xDFF9E69F3A2DE8FF,
    "http://n.example/3": 0xC0F1B6A831C399E2,
}
CREATED = ["--recipe", "news-md5", "-k", "4"]
TEXTS = ["--key-field", 1, "--text-field", 2, "--text-field", 3]
READY = ["--base", "decimal", "--format", "tsv"]


@pytest.fixture
def library(tmp_path):
    """The library's file: four columns, no header, fingerprints in decimal digits."""
    recipe = fpdb.recipe("news-md5")
    file = tmp_path / "library.tsv"
    rows = []
    for url, story in STORIES.items():
        number = FINGERPRINTS.get(url) or recipe.fingerprint("\n".join(story))
        rows.append("\t".join([url, *story, str(number)]) + "\n")
    file.write_text("".join(rows), "utf-8")
    return file


@pytest.fixture
def path(run, library, tmp_path):
    where = tmp_path / "news.fpdb"
    created = run("create", where, *CREATED)
    assert "5 tables, p=12" in created.out
    done = run("ingest", where, library, *TEXTS)
    assert done.code == 0
    assert "read 4, added 4" in done.err
    assert done.err.rstrip().endswith(" documents/s")
    return where


def test_titles_and_contents_give_the_script_s_fingerprints(path):
    with fpdb.open(path, readonly=True) as database:
        assert database.k == 4
        for url, number in FINGERPRINTS.items():
            assert database[url].fingerprint == number


def test_named_columns_do_the_same(run, library, path, tmp_path):
    headed = tmp_path / "headed.tsv"
    headed.write_text("url\ttitle\tcontent\tfp\n" + library.read_text("utf-8"), "utf-8")
    fields = ["--key-field", "url", "--text-field", "title", "--text-field", "content"]
    done = run("ingest", path, headed, *fields)
    assert "read 4, unchanged 4" in done.err


def test_ready_fingerprints_are_the_same_documents(run, library, path, tmp_path):
    other = tmp_path / "ready.fpdb"
    run("create", other, *CREATED)
    done = run("load", other, library, "--key-field", 1, "--fingerprint-field", 4, *READY)
    assert "added 4" in done.err
    same = run("get", other, "--prefix", "").rows
    assert [row[:3] for row in same] == [row[:3] for row in run("get", path, "--prefix", "").rows]


def test_the_first_hit_of_each_url_is_printed(run, library, path):
    fields = ["--key-field", 1, "--fingerprint-field", 4, "--limit", 1]
    done = run("query", path, library, *fields, *READY)
    assert [row[:2] for row in done.rows] == [[url, url] for url in STORIES]


def test_four_changed_bits_are_a_hit_and_five_are_not(run, path):
    for changed, hits in ((0xF, 1), (0x1F, 0)):
        number = FINGERPRINTS["http://n.example/2"] ^ changed
        row = f"http://new.example/\t{number}\n".encode()
        fields = ["--key-field", 1, "--fingerprint-field", 2, "--limit", 1]
        done = run("query", path, *fields, *READY, stdin=row)
        assert [each[:2] for each in done.rows] == [
            ["http://new.example/", "http://n.example/2"]
        ] * hits


@pytest.mark.process
def test_urls_are_added_and_deleted(run, path):
    row = f"http://n.example/5\t新 闻\t{STORIES['http://n.example/4'][1]} 后天 晴\n".encode()
    assert "added 1" in run("ingest", path, "--format", "tsv", *TEXTS, stdin=row).err
    assert run("get", path, "http://n.example/5").code == 0
    assert run("delete", path, "http://n.example/5").err == "deleted: 1\n"
    assert run("get", path, "http://n.example/5").code == 3
    assert run("check", path).code == 0
