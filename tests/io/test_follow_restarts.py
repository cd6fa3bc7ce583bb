"""A directory is followed across restarts and kills: nothing is missing, nothing comes back."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

import fpdb
from fpdb.io import follow

SECONDS = 60


def line(key, version):
    """A text that resembles no other, of a version that its metadata have."""
    dice = random.Random(f"{key} {version}")
    text = " ".join(f"word{dice.randrange(10**6)}" for _ in range(12))
    return json.dumps({"key": key, "text": text, "version": version}) + "\n"


class EndError(Exception):
    pass


@pytest.fixture
def path(tmp_path):
    return tmp_path / "crawl.fpdb"


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "crawled"
    folder.mkdir()
    return folder


@pytest.fixture
def followed(path, folder, monkeypatch):
    """Follow the directory until nothing is new, or until N answers; give the answers."""

    looks = []

    def idle(_):
        looks.append(1)
        if len(looks) % 3 == 0:
            raise EndError

    monkeypatch.setattr("time.sleep", idle)

    def run(most=None, notes=None):
        open_or_create = fpdb.open if path.exists() else fpdb.create
        answers = []
        with open_or_create(path) as database:
            note = [].append if notes is None else notes.append
            reading = fpdb.Reading(meta_field="version")
            try:
                for answer in fpdb.follow(database, str(folder), reading, on_note=note):
                    answers.append((answer.key, answer.status))
                    if len(answers) == most:
                        break
            except EndError:
                pass
            assert not list(database.check())
        return answers

    return run


def versions(path):
    with fpdb.open(path, readonly=True) as database:
        return {document.key: document.meta["version"] for document in database.scan()}


def test_a_restart_reads_on_where_the_last_run_ended(followed, folder, path):
    file = folder / "a.jsonl"
    file.write_text(line("page", 1) + line("other", 1) + line("page", 2))
    assert len(followed()) == 3
    assert followed() == []
    with file.open("a") as more:
        more.write(line("more", 1) + line("page", 3)[:20])
    assert followed() == [("more", "added")]
    assert versions(path)["page"] == 2
    with file.open("a") as more:
        more.write(line("page", 3)[20:])
    with fpdb.open(path) as database:
        answers = fpdb.follow(database, str(folder), fpdb.Reading(meta_field="version"))
        assert next(answers).source == f"{file}:5"
    assert versions(path)["page"] == 3


def test_an_older_version_never_comes_back_however_few_answers_are_taken(followed, folder, path):
    count = 600
    file = folder / "a.jsonl"
    file.write_text("".join(line(f"k{n}", 1) for n in range(count)))
    with file.open("a") as more:
        more.write("".join(line(f"k{n}", 2) for n in range(count)))
    seen = {}
    while answers := followed(most=10):
        assert answers
        now = versions(path)
        assert all(now[key] >= version for key, version in seen.items())
        seen = now
    assert seen == {f"k{n}": 2 for n in range(count)}


def test_rotated_files_are_recognised_and_read_in_the_order_of_their_age(followed, folder, path):
    live = folder / "page.jsonl"
    live.write_text(line("a", 1) + line("b", 1))
    assert len(followed()) == 2
    with live.open("a") as more:
        more.write(line("a", 2))
    # Neither name sorts by age, and the remembered file is changed last.
    live.rename(folder / "page-2500.jsonl")
    (folder / "page-10000.jsonl").write_text(line("a", 4) + line("b", 2))
    live.write_text(line("a", 3))
    for name, seconds in (("page", 100), ("page-10000", 200), ("page-2500", 300)):
        os.utime(folder / f"{name}.jsonl", (seconds, seconds))
    assert [key for key, _ in followed()] == ["a", "a", "a", "b"]
    assert versions(path) == {"a": 4, "b": 2}
    assert followed() == []


def test_a_file_that_was_cut_or_written_anew_meanwhile_is_read_again(followed, folder):
    file = folder / "a.jsonl"
    first = line("same", 1) * 3
    file.write_text(first + line("one", 1) + line("two", 1))
    followed()
    notes = []
    file.write_text(first + line("new", 1))  # shorter
    assert [key for key, _ in followed(notes=notes)] == ["same"] * 3 + ["new"]
    # It begins as before, and is longer.
    file.write_text(first + line("end", 1) + line("more", 1) + line("most", 1))
    assert [key for key, _ in followed(notes=notes)][3:] == ["end", "more", "most"]
    assert notes == [f"{file} isn't what it was: read from its beginning again"] * 2
    # Another file under the name is none of these.
    file.rename(folder / "b.jsonl")
    file.write_text(first + line("other", 1))
    assert len(followed(notes=notes)) == 4
    assert len(notes) == 2


def test_a_directory_that_was_copied_back_is_known_by_its_paths(followed, folder, tmp_path):
    (folder / "a.jsonl").write_text(line("page", 1) + line("page", 2))
    followed()
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(folder)
    (tmp_path / "copy").rename(folder)
    assert followed() == []
    with (folder / "a.jsonl").open("a") as more:
        more.write(line("page", 3))
    assert followed() == [("page", "replaced")]


def test_several_files_may_have_had_a_path(followed, folder, tmp_path):
    live = folder / "page.jsonl"
    for number in (3, 1, 2):
        live.write_text("".join(line(f"{number}", each) for each in range(number)))
        assert len(followed()) == number
        live.rename(folder / f"rotated-{number}")
    shutil.copy(folder / "rotated-3", tmp_path)
    shutil.rmtree(folder)
    folder.mkdir()
    shutil.copy(tmp_path / "rotated-3", live)
    assert followed() == []


def test_files_that_were_copied_back_may_have_the_inodes_of_others(followed, folder):
    texts = {name: line(name, 1) + line(name, 2) for name in ("a", "b")}
    files = {name: folder / f"{name}.jsonl" for name in texts}
    for name, file in files.items():
        file.write_text(texts[name])
    followed()
    files["a"].rename(folder / "other")
    files["b"].rename(files["a"])
    (folder / "other").rename(files["b"])
    for name, file in files.items():
        file.write_text(texts[name] + line(f"new {name}", 1))
    assert sorted(followed()) == [("new a", "added"), ("new b", "added")]
    assert followed() == []


@pytest.mark.process  # it checks copies in another one
def test_what_the_database_remembers_goes_where_its_documents_stay(followed, folder, path):
    (folder / "a.jsonl").write_text(line("page", 1) + line("page", 2))
    followed()
    with fpdb.open(path) as database:
        [place] = database.file_places()
        database.backup(path.with_name("backup"))
        database.compact(path.with_name("compact"))
        with path.with_name("x.fpdb.jsonl").open("wb") as file:
            database.dump(file)
    assert (place.path, place.lines) == (str(folder / "a.jsonl"), 2)
    fpdb.load(path.with_name("merged"), path)
    fpdb.load(path.with_name("loaded"), str(path.with_name("x.fpdb.jsonl")))
    kept = {"backup": [place], "compact": [place], "merged": [], "loaded": []}
    for name, places in kept.items():
        with fpdb.open(path.with_name(name)) as database:
            assert list(database.file_places()) == places
            assert not list(database.check())


def test_a_file_that_is_gone_is_forgotten_with_what_is_stored_next(path, folder, monkeypatch):
    monkeypatch.setattr(follow, "_MISSES", 1)
    monkeypatch.setattr("time.sleep", lambda _: None)
    (folder / "a.jsonl").write_text(line("a", 1))
    with fpdb.create(path) as database:
        answers = fpdb.follow(database, str(folder))
        assert next(answers).key == "a"
        (folder / "a.jsonl").unlink()
        timer = threading.Timer(0.2, (folder / "b.jsonl").write_text, [line("b", 1)])
        timer.start()
        assert next(answers).key == "b"
        timer.join()
        assert [place.path for place in database.file_places()] == [str(folder / "b.jsonl")]


@pytest.mark.slow("it starts a process for each kill")
@pytest.mark.parametrize(
    "kills", [2, pytest.param(30, marks=pytest.mark.full)], ids=["few", "many"]
)
def test_kills_bring_no_older_version_back(path, folder, kills):
    """A crawler writes versions of a few keys and rotates its file, while follow is killed."""
    options = ["--meta-field", "version", "--quiet"]
    command = [sys.executable, "-m", "fpdb", "follow", path, folder, *options]
    dice = random.Random(kills)
    stop = threading.Event()
    written = {}

    def crawl():
        for number in range(10**9):
            if stop.is_set():
                return
            live = folder / "page.jsonl"
            with live.open("a") as file:
                for _ in range(200):
                    key = f"k{dice.randrange(50)}"
                    written[key] = written.get(key, 0) + 1
                    file.write(line(key, written[key]))
                    file.flush()
                    time.sleep(0.0005)
            live.rename(folder / f"page-{number}.jsonl")

    crawler = threading.Thread(target=crawl)
    crawler.start()
    answered, before = {}, {}
    try:
        for _ in range(kills):
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            for _ in range(dice.randrange(1, 400)):
                answer = json.loads(process.stdout.readline())
                answered[answer["key"]] = answered.get(answer["key"], 0) + 1
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=SECONDS)
            now = versions(path)
            assert answered.keys() <= now.keys()
            assert all(now[key] >= before[key] for key in before)
            assert all(now[key] >= answered[key] for key in answered)
            before = now
    finally:
        stop.set()
        crawler.join()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    (folder / "page.jsonl").write_text(line("last", 1))
    while json.loads(process.stdout.readline())["key"] != "last":
        pass
    process.kill()
    process.communicate(timeout=SECONDS)
    assert versions(path) == written | {"last": 1}
    with fpdb.open(path) as database:
        assert not list(database.check())
